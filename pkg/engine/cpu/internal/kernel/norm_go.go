package kernel

func goSumDeviations(x *float32, pixels int, out *float32) {
	var sum, squares FloatBlock
	to := FloatBlocksAt(out, 3)
	for _, v := range FloatBlocksAt(x, pixels) {
		for j := range v {
			d := v[j] - to[0][j]
			sum[j] += d
			squares[j] += d * d
		}
	}
	for j := range sum {
		to[1][j] += sum[j]
		to[2][j] += squares[j]
	}
}

func goNormalizeBlock(v *FloatBlock, c []FloatBlock) (to FloatBlock) {
	for j := range v {
		to[j] = max(v[j]*c[0][j]+c[1][j], c[2][j])
	}
	return to
}

func goNormalize(x, y, p *float32, pixels int) {
	c := FloatBlocksAt(p, 3)
	from, to := FloatBlocksAt(x, pixels), FloatBlocksAt(y, pixels)
	for i := range from {
		to[i] = goNormalizeBlock(&from[i], c)
	}
}

func goSumNormGradients(x, dy, p, mean, out *float32, pixels int) {
	var sum, dot FloatBlock
	c, m := FloatBlocksAt(p, 3), *blockAtByteOffset(mean, 0)
	g := FloatBlocksAt(dy, pixels)
	for i, v := range FloatBlocksAt(x, pixels) {
		for j := range v {
			if v[j]*c[0][j]+c[1][j] > c[2][j] {
				sum[j] += g[i][j]
				dot[j] += g[i][j] * (v[j] - m[j])
			}
		}
	}
	*blockAtByteOffset(out, 0), *blockAtByteOffset(out, 4*Lanes) = sum, dot
}

func goNormGrad(x, dy, dx, p, q *float32, pixels int) {
	c, k := FloatBlocksAt(p, 3), FloatBlocksAt(q, 4)
	g, to := FloatBlocksAt(dy, pixels), FloatBlocksAt(dx, pixels)
	for i, v := range FloatBlocksAt(x, pixels) {
		for j := range v {
			var d float32
			if v[j]*c[0][j]+c[1][j] > c[2][j] {
				d = g[i][j]
			}
			to[i][j] = k[0][j]*d + k[1][j]*(v[j]-k[2][j]) + k[3][j]
		}
	}
}

func goSumPixels(x *float32, pixels int, out *float32) {
	var sum FloatBlock
	for _, v := range FloatBlocksAt(x, pixels) {
		for j := range v {
			sum[j] += v[j]
		}
	}
	*blockAtByteOffset(out, 0) = sum
}

func goCopyPixelBox(x, y *float32, b PixelBox) {
	b.forEachRow(func(_, from, to int) {
		copy(FloatBlocksAt(&blockAtByteOffset(y, to)[0], b.Pixels), FloatBlocksAt(&blockAtByteOffset(x, from)[0], b.Pixels))
	})
}

// newPixelBoxNormalizer builds Set.NormalizeBox from Set.Normalize, for instruction sets without an
// assembly version.
func newPixelBoxNormalizer(normalize func(x, y, p *float32, pixels int)) func(x, y, p *float32, b PixelBox) {
	return func(x, y, p *float32, b PixelBox) {
		b.forEachRow(func(plane, from, to int) {
			normalize(&blockAtByteOffset(x, from)[0], &blockAtByteOffset(y, to)[0], &blockAtByteOffset(p, plane*4*NormConstantFloats)[0], b.Pixels)
		})
	}
}
