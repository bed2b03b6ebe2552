package kernel

import "unsafe"

func uint16AtByteOffset(p *uint16, off int) *uint16 {
	return (*uint16)(unsafe.Add(unsafe.Pointer(p), off))
}

func goBF16Multiply(c *float32, a, b *uint16, steps *int32, nstep, aRow, tiles int, accumulate bool) {
	list := unsafe.Slice(steps, 2*nstep)
	for i := range tiles * BF16Tile {
		sums := (*[BF16Tile]float32)(unsafe.Pointer(pointerAtByteOffset(c, i*4*BF16Tile)))
		if !accumulate {
			*sums = [BF16Tile]float32{}
		}
		for t := range nstep {
			left := unsafe.Slice(uint16AtByteOffset(a, i*aRow+int(list[2*t])), BF16Tile)
			right := unsafe.Slice(uint16AtByteOffset(b, int(list[2*t+1])), BF16Tile*BF16Tile)
			for k, v := range left {
				f, row := fromBF16(v), right[k/2*2*BF16Tile+k%2:]
				for j := range sums {
					sums[j] += f * fromBF16(row[2*j])
				}
			}
		}
	}
}

func goBF16PackRows(dst *uint16, s0, s1, s2, s3, norm *float32, n, step int) {
	for b, s := range []*float32{s0, s1, s2, s3} {
		for i, block := range FloatBlocksAt(s, n) {
			if norm != nil {
				block = goNormalizeBlock(&block, FloatBlocksAt(pointerAtByteOffset(norm, b*4*NormConstantFloats), 3))
			}
			to := unsafe.Slice(uint16AtByteOffset(dst, i*step+2*Lanes*b), Lanes)
			for l, v := range block {
				to[l] = toBF16(v)
			}
		}
	}
}

func goBF16PackPairs(dst *uint16, s0, s1, s2, s3 *float32, n int) {
	for b, s := range []*float32{s0, s1, s2, s3} {
		for i, block := range FloatBlocksAt(s, n) {
			to := unsafe.Slice(uint16AtByteOffset(dst, i/2*4*BF16Tile), 2*BF16Tile)
			for l, v := range block {
				to[2*(b*Lanes+l)+i%2] = toBF16(v)
			}
		}
	}
}

func goBF16PackTransposed(dst *uint16, s0, s1, s2, s3 *float32) {
	for b, s := range []*float32{s0, s1, s2, s3} {
		for i, block := range FloatBlocksAt(s, Lanes) {
			for l, v := range block {
				*uint16AtByteOffset(dst, 4*(l/2*BF16Tile+b*Lanes+i)+2*(l%2)) = toBF16(v)
			}
		}
	}
}

func goBF16PackColumns(dst *uint16, src *float32, n, row int) {
	for l := range Lanes {
		to := unsafe.Slice(uint16AtByteOffset(dst, l*row), n)
		for i, block := range FloatBlocksAt(src, n) {
			to[i] = toBF16(block[l])
		}
	}
}

func goBF16Unpack(dst, src, bias *float32, n, srcRow, dstRow, dstBlock, blocks int) {
	for b := range blocks {
		add := blockAtByteOffset(bias, b*4*Lanes)
		for i := range n {
			from, to := blockAtByteOffset(src, i*srcRow+b*4*Lanes), blockAtByteOffset(dst, i*dstRow+b*dstBlock)
			for l := range to {
				to[l] = from[l] + add[l]
			}
		}
	}
}
