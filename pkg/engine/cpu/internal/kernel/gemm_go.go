package kernel

import "unsafe"

func newGoGEMM(rows, blocks int, interleaved bool) GEMM {
	s := GEMM{Rows: rows, Blocks: blocks, Interleaved: interleaved}
	for b := 1; b <= blocks; b *= 2 {
		for m := 1; m <= rows; m++ {
			s.Deep[b][m] = newGoGEMMFunc(m, b, Lanes, rows, interleaved)
			s.Flat[b][m] = newGoGEMMFunc(m, b, 1, rows, interleaved)
		}
	}
	return s
}

// newGoGEMMFunc returns the plain Go matrix kernel for tiles of tileRows rows. The kernel reads
// depth floats per step. fullRows is the number of rows of a full tile.
func newGoGEMMFunc(tileRows, blocks, depth, fullRows int, interleaved bool) GEMMFunc {
	return func(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool) {
		width := 2 * fullRows
		offsets := unsafe.Slice(rows, tiles*width)
		list := unsafe.Slice(steps, nstep*offsetsPerStep(depth))
		lay := weightLayout{block: wNext, next: 4 * Lanes, scale: 1}
		if interleaved {
			lay = weightLayout{block: 4 * Lanes, next: 4 * Lanes * blocks, scale: blocks}
			if depth == 1 {
				lay.next = wNext
			}
		}
		for tile := range tiles {
			in := offsets[tile*width:][:tileRows]
			out := offsets[tile*width+fullRows:][:tileRows]
			for b := range blocks {
				from := w
				if nstep > 0 { // else there are no weights, and w is nil
					from = pointerAtByteOffset(w, b*lay.block)
				}
				for i := range tileRows {
					to := blockAtByteOffset(y, int(out[i])+b*yNext)
					start := to
					if !accumulate {
						start = blockAtByteOffset(bias, b*4*Lanes)
					}
					computeOutputBlock(to, start, pointerAtByteOffset(x, int(in[i])), from, list, depth, lay)
				}
			}
		}
	}
}

type weightLayout struct {
	block int // bytes from one block to the next
	next  int // bytes from one vector of a block to the next
	scale int // factor of the offsets of weights in the parameter steps
}

func offsetsPerStep(depth int) int {
	if depth == 1 {
		return 1
	}
	return 2
}

// computeOutputBlock computes one block of eight outputs of one row. It uses separate variables so
// that the compiler keeps the sums in registers.
func computeOutputBlock(to, start *FloatBlock, x, w *float32, steps []int32, depth int, lay weightLayout) {
	a, b, c, d := start[0], start[1], start[2], start[3]
	e, f, g, h := start[4], start[5], start[6], start[7]
	off, width := 0, offsetsPerStep(depth)
	for i := 0; i < len(steps); i += width {
		if width > 1 {
			off = int(steps[i+1]) * lay.scale
		}
		for k := range depth {
			v := *pointerAtByteOffset(x, int(steps[i])+4*k)
			u := blockAtByteOffset(w, off)
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
	*to = FloatBlock{a, b, c, d, e, f, g, h}
}
