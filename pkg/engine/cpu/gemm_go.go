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

// goGemmSet is the matrix kernel in plain Go.
func goGemmSet() gemmSet {
	var s gemmSet
	for vectors := 1; vectors <= 2; vectors++ {
		for rows := 1; rows <= maxRows; rows++ {
			s.deep[vectors][rows] = goGemm(rows, vectors, lanes)
			s.flat[vectors][rows] = goGemm(rows, vectors, 1)
		}
	}
	return s
}

// goGemm returns the matrix kernel for tiles of so many rows, vectors of
// outputs and floats a step.
func goGemm(mr, vectors, depth int) gemmFunc {
	return func(x, w, y, bias *float32, rows, steps *int32, wNext, yNext, nstep, tiles int, accumulate bool) {
		const width = 2 * maxRows
		offsets := unsafe.Slice(rows, tiles*width)
		list := unsafe.Slice(steps, nstep*stepWidth(depth))
		for tile := range tiles {
			in := offsets[tile*width:][:mr]
			out := offsets[tile*width+maxRows:][:mr]
			for v := range vectors {
				for i := range mr {
					to := blockAt(y, int(out[i])+v*yNext)
					start := to
					if !accumulate {
						start = blockAt(bias, v*4*lanes)
					}
					gemmRow(to, start, at(x, int(in[i])), at(w, v*wNext), list, depth)
				}
			}
		}
	}
}

// stepWidth is the number of offsets of a step.
func stepWidth(depth int) int {
	if depth == 1 {
		return 1
	}
	return 2
}

// gemmRow computes eight outputs of one row. Its eight sums are variables of
// their own, so that they stay in registers.
func gemmRow(to, start *block, x, w *float32, steps []int32, depth int) {
	a, b, c, d := start[0], start[1], start[2], start[3]
	e, f, g, h := start[4], start[5], start[6], start[7]
	off, width := 0, stepWidth(depth)
	for i := 0; i < len(steps); i += width {
		if width > 1 {
			off = int(steps[i+1])
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
			off += 4 * lanes
		}
	}
	*to = block{a, b, c, d, e, f, g, h}
}
