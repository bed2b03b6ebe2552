package kernel

func goSumDeviations(x *float32, pixels int, out *float32) {
	var sum, squares Block
	to := BlocksAt(out, 3)
	for _, v := range BlocksAt(x, pixels) {
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

func goNormalizeBlock(v *Block, c []Block) (to Block) {
	for j := range v {
		to[j] = max(v[j]*c[0][j]+c[1][j], c[2][j])
	}
	return to
}

func goNormalize(x, y, p *float32, pixels int) {
	c := BlocksAt(p, 3)
	from, to := BlocksAt(x, pixels), BlocksAt(y, pixels)
	for i := range from {
		to[i] = goNormalizeBlock(&from[i], c)
	}
}

func goSumNormGradients(x, dy, p, mean, out *float32, pixels int) {
	var sum, dot Block
	c, m := BlocksAt(p, 3), *blockAt(mean, 0)
	g := BlocksAt(dy, pixels)
	for i, v := range BlocksAt(x, pixels) {
		for j := range v {
			if v[j]*c[0][j]+c[1][j] > c[2][j] {
				sum[j] += g[i][j]
				dot[j] += g[i][j] * (v[j] - m[j])
			}
		}
	}
	*blockAt(out, 0), *blockAt(out, 4*Lanes) = sum, dot
}

func goNormGrad(x, dy, dx, p, q *float32, pixels int) {
	c, k := BlocksAt(p, 3), BlocksAt(q, 4)
	g, to := BlocksAt(dy, pixels), BlocksAt(dx, pixels)
	for i, v := range BlocksAt(x, pixels) {
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
	var sum Block
	for _, v := range BlocksAt(x, pixels) {
		for j := range v {
			sum[j] += v[j]
		}
	}
	*blockAt(out, 0) = sum
}

func goCopyBox(x, y *float32, b PixelBox) {
	b.forEachRow(func(_, from, to int) {
		copy(BlocksAt(&blockAt(y, to)[0], b.Pixels), BlocksAt(&blockAt(x, from)[0], b.Pixels))
	})
}

// newNormalizeBox builds Set.NormalizeBox from Set.Normalize, for instruction sets without an
// assembly version.
func newNormalizeBox(normalize func(x, y, p *float32, pixels int)) func(x, y, p *float32, b PixelBox) {
	return func(x, y, p *float32, b PixelBox) {
		b.forEachRow(func(plane, from, to int) {
			normalize(&blockAt(x, from)[0], &blockAt(y, to)[0], &blockAt(p, plane*4*NormFloats)[0], b.Pixels)
		})
	}
}
