package kernel

import "unsafe"

func goMaxPool(x, y, p *float32, index *byte, count, kh, kw, row, step int) {
	c, to, at := FloatBlocksAt(p, 3), FloatBlocksAt(y, count), unsafe.Slice((*[Lanes]byte)(unsafe.Pointer(index)), count)
	for i := range count {
		best := goNormalizeBlock(blockAtByteOffset(x, i*step), c)
		at[i] = [Lanes]byte{}
		for e := range kh * kw {
			v := goNormalizeBlock(blockAtByteOffset(x, i*step+e/kw*row+e%kw*4*Lanes), c)
			for j := range v {
				if v[j] > best[j] {
					best[j], at[i][j] = v[j], byte(e)
				}
			}
		}
		to[i] = best
	}
}

func goMaxPoolGrad(index *byte, dy, dx *float32, count, kh, kw, row, step int) {
	g, at := FloatBlocksAt(dy, count), unsafe.Slice((*[Lanes]byte)(unsafe.Pointer(index)), count)
	for i := range count {
		for j, e := range at[i] {
			blockAtByteOffset(dx, i*step+int(e)/kw*row+int(e)%kw*4*Lanes)[j] += g[i][j]
		}
	}
}
