package kernel

// matrixProductFunc multiplies a constant matrix of Winograd's transforms by up to six vectors.
// Lavin and Gray call these matrices Bᵀ, A and G.
type matrixProductFunc func(d, to *[6]FloatBlock)

func newGoWinogradTransforms() WinogradTransforms {
	return WinogradTransforms{
		Input: newGoWinogradTransform(6, multiplyByWinogradBT), NormInput: goWinogradNormInput, Gradient: newGoWinogradTransform(4, multiplyByWinogradA), Output: goWinogradOutput,
		Weights: goWinogradWeights, WeightGradient: goWinogradWeightGradient,
	}
}

// transformSquare transforms n×n vectors to m×m vectors: it applies multiply first to the
// columns and then to the rows. load and store return the addresses of the elements.
func transformSquare(n, m int, multiply matrixProductFunc, load, store func(i, j int) *FloatBlock) {
	var half [6][6]FloatBlock // [column][row]
	var d, to [6]FloatBlock
	for j := range n {
		for i := range n {
			d[i] = *load(i, j)
		}
		multiply(&d, &half[j])
	}
	for i := range m {
		for j := range n {
			d[j] = half[j][i]
		}
		multiply(&d, &to)
		for j := range m {
			*store(i, j) = to[j]
		}
	}
}

func newGoWinogradTransform(n int, multiply matrixProductFunc) func(x, v, tmp *float32, row, plane, ld, step, blocks int) {
	return func(x, v, _ *float32, row, plane, ld, step, blocks int) {
		for b := range blocks {
			transformSquare(n, 6, multiply,
				func(i, j int) *FloatBlock { return blockAtByteOffset(x, b*plane+i*row+j*4*Lanes) },
				func(i, j int) *FloatBlock { return blockAtByteOffset(v, b*step+(6*i+j)*ld) })
		}
	}
}

func goWinogradNormInput(x, v, _, p *float32, row, plane, ld, step, blocks int) {
	for b := range blocks {
		var d FloatBlock
		transformSquare(6, 6, multiplyByWinogradBT,
			func(i, j int) *FloatBlock {
				d = goNormalizeBlock(blockAtByteOffset(x, b*plane+i*row+j*4*Lanes), FloatBlocksAt(&blockAtByteOffset(p, b*4*NormConstantFloats)[0], 3))
				return &d
			},
			func(i, j int) *FloatBlock { return blockAtByteOffset(v, b*step+(6*i+j)*ld) })
	}
}

func goWinogradOutput(m, y, bias, _ *float32, ld, row, plane, biasStep, blocks int) {
	for b := range blocks {
		shift := blockAtByteOffset(bias, b*biasStep)
		transformSquare(6, 4, multiplyByWinogradAT,
			func(i, j int) *FloatBlock { return blockAtByteOffset(m, b*4*Lanes+(6*i+j)*ld) },
			func(i, j int) *FloatBlock { return blockAtByteOffset(y, b*plane+i*row+j*4*Lanes) })
		for i := range 4 {
			for j := range 4 {
				to := blockAtByteOffset(y, b*plane+i*row+j*4*Lanes)
				for l := range to {
					to[l] += shift[l]
				}
			}
		}
	}
}

func goWinogradWeights(w, u, _ *float32, ld int) {
	for c := range Lanes {
		transformSquare(3, 6, multiplyByWinogradG,
			func(i, j int) *FloatBlock { return blockAtByteOffset(w, ((3*i+j)*Lanes+c)*4*Lanes) },
			func(i, j int) *FloatBlock { return blockAtByteOffset(u, (6*i+j)*ld+c*4*Lanes) })
	}
}

func goWinogradWeightGradient(d, dw, _ *float32, ld int) {
	for c := range Lanes {
		transformSquare(6, 3, multiplyByWinogradGT,
			func(i, j int) *FloatBlock { return blockAtByteOffset(d, (6*i+j)*ld+c*4*Lanes) },
			func(i, j int) *FloatBlock { return blockAtByteOffset(dw, ((3*i+j)*Lanes+c)*4*Lanes) })
	}
}

func goWinogradWeightPair(w, u, _ *float32, next, ld, row int) {
	for half := range 2 {
		for c := range Lanes {
			transformSquare(3, 6, multiplyByWinogradG,
				func(i, j int) *FloatBlock { return blockAtByteOffset(w, half*next+((3*i+j)*Lanes+c)*4*Lanes) },
				func(i, j int) *FloatBlock { return blockAtByteOffset(u, (6*i+j)*ld+c*row+half*4*Lanes) })
		}
	}
}

func goWinogradWeightGradientPair(d, dw, _ *float32, next, ld, row int) {
	for half := range 2 {
		for c := range Lanes {
			transformSquare(6, 3, multiplyByWinogradGT,
				func(i, j int) *FloatBlock { return blockAtByteOffset(d, (6*i+j)*ld+c*row+half*4*Lanes) },
				func(i, j int) *FloatBlock { return blockAtByteOffset(dw, half*next+((3*i+j)*Lanes+c)*4*Lanes) })
		}
	}
}

// multiplyByWinogradBT multiplies by Bᵀ, which transforms inputs.
func multiplyByWinogradBT(d, to *[6]FloatBlock) {
	for l := range Lanes {
		d0, d1, d2, d3, d4, d5 := d[0][l], d[1][l], d[2][l], d[3][l], d[4][l], d[5][l]
		to[0][l] = 4*d0 - 5*d2 + d4
		even, odd := d4-4*d2, d3-4*d1
		to[1][l], to[2][l] = even+odd, even-odd
		even, odd = d4-d2, 2*(d3-d1)
		to[3][l], to[4][l] = even+odd, even-odd
		to[5][l] = 4*d1 - 5*d3 + d5
	}
}

// multiplyByWinogradA multiplies by A, which transforms gradients of outputs.
func multiplyByWinogradA(d, to *[6]FloatBlock) {
	for l := range Lanes {
		d0, d1, d2, d3 := d[0][l], d[1][l], d[2][l], d[3][l]
		to[0][l], to[5][l] = d0, d3
		even, odd := d0+d2, d1+d3
		to[1][l], to[2][l] = even+odd, even-odd
		even, odd = d0+4*d2, 2*d1+8*d3
		to[3][l], to[4][l] = even+odd, even-odd
	}
}

// multiplyByWinogradAT multiplies by Aᵀ, which transforms sums of products to outputs.
func multiplyByWinogradAT(d, to *[6]FloatBlock) {
	for l := range Lanes {
		p, q, r, t := d[1][l]+d[2][l], d[1][l]-d[2][l], d[3][l]+d[4][l], d[3][l]-d[4][l]
		to[0][l] = d[0][l] + p + r
		to[1][l] = q + 2*t
		to[2][l] = p + 4*r
		to[3][l] = q + 8*t + d[5][l]
	}
}

// multiplyByWinogradG multiplies by G, which transforms weights.
func multiplyByWinogradG(d, to *[6]FloatBlock) {
	for l := range Lanes {
		d0, d1, d2 := d[0][l], d[1][l], d[2][l]
		to[0][l], to[5][l] = d0/4, d2
		even, odd := (d0+d2)/6, d1/6
		to[1][l], to[2][l] = -even-odd, odd-even
		even, odd = d0/24+d2/6, d1/12
		to[3][l], to[4][l] = even+odd, even-odd
	}
}

// multiplyByWinogradGT multiplies by Gᵀ, which transforms sums of products to gradients of weights.
func multiplyByWinogradGT(d, to *[6]FloatBlock) {
	for l := range Lanes {
		p, q, r, t := d[1][l]+d[2][l], d[2][l]-d[1][l], d[3][l]+d[4][l], d[3][l]-d[4][l]
		to[0][l] = d[0][l]/4 - p/6 + r/24
		to[1][l] = q/6 + t/12
		to[2][l] = (r-p)/6 + d[5][l]
	}
}
