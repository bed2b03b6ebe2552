package cpu

import "unsafe"

// block is eight channels of a pixel, or eight weights.
type block = [lanes]float32

// at is the address off bytes after p.
func at(p *float32, off int) *float32 {
	return (*float32)(unsafe.Add(unsafe.Pointer(p), off))
}

// blockAt is the block off bytes after p.
func blockAt(p *float32, off int) *block {
	return (*block)(unsafe.Add(unsafe.Pointer(p), off))
}

// goGemmSet returns the matrix kernel in plain Go, for full tiles of so many rows
// and at most so many blocks of outputs.
func goGemmSet(rows, blocks int, joined bool) gemmSet {
	s := gemmSet{rows: rows, blocks: blocks, joined: joined}
	for b := 1; b <= blocks; b *= 2 {
		for m := 1; m <= rows; m++ {
			s.deep[b][m] = goGemm(m, b, lanes, rows, joined)
			s.flat[b][m] = goGemm(m, b, 1, rows, joined)
		}
	}
	return s
}

// goGemm returns the matrix kernel for tiles of mr rows, so many blocks of
// outputs and floats per step. full is the number of rows of a full tile.
func goGemm(mr, blocks, depth, full int, joined bool) gemmFunc {
	return func(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool) {
		width := 2 * full
		offsets := unsafe.Slice(rows, tiles*width)
		list := unsafe.Slice(steps, nstep*stepWidth(depth))
		lay := weightLay{block: wNext, next: 4 * lanes, scale: 1}
		if joined {
			lay = weightLay{block: 4 * lanes, next: 4 * lanes * blocks, scale: blocks}
			if depth == 1 {
				lay.next = wNext
			}
		}
		for tile := range tiles {
			in := offsets[tile*width:][:mr]
			out := offsets[tile*width+full:][:mr]
			for b := range blocks {
				from := w
				if nstep > 0 { // else there are no weights, and w is nil
					from = at(w, b*lay.block)
				}
				for i := range mr {
					to := blockAt(y, int(out[i])+b*yNext)
					start := to
					if !accumulate {
						start = blockAt(bias, b*4*lanes)
					}
					gemmRow(to, start, at(x, int(in[i])), from, list, depth, lay)
				}
			}
		}
	}
}

// weightLay is the layout of the matrix kernel's weights: the bytes from block to
// block and from one vector of a block to the next, and the factor of the steps'
// offsets.
type weightLay struct{ block, next, scale int }

// stepWidth is the number of offsets of a step.
func stepWidth(depth int) int {
	if depth == 1 {
		return 1
	}
	return 2
}

// gemmRow computes eight outputs of one row. Its eight sums are variables of
// their own, so that they stay in registers.
func gemmRow(to, start *block, x, w *float32, steps []int32, depth int, lay weightLay) {
	a, b, c, d := start[0], start[1], start[2], start[3]
	e, f, g, h := start[4], start[5], start[6], start[7]
	off, width := 0, stepWidth(depth)
	for i := 0; i < len(steps); i += width {
		if width > 1 {
			off = int(steps[i+1]) * lay.scale
		}
		for k := range depth {
			v := *at(x, int(steps[i])+4*k)
			u := blockAt(w, off)
			a += v * u[0]
			b += v * u[1]
			c += v * u[2]
			d += v * u[3]
			e += v * u[4]
			f += v * u[5]
			g += v * u[6]
			h += v * u[7]
			off += lay.next
		}
	}
	*to = block{a, b, c, d, e, f, g, h}
}
