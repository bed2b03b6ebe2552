package conv

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/workspace"
)

// TakeTally asks for the statistics of the output, a part of which is a chunk:
// they are taken while it is in the cache.
func (c *Winograd) TakeTally() *workspace.Tally {
	c.tally = &workspace.Tally{Channels: c.outC}
	for i := range c.tiling.chunks() {
		pixels, at := 0, c.tiling.chunk(i)
		c.tiling.runs(at.first, at.n, func(_, _, count int) { pixels += at.slices * count })
		c.tally.Pixels = append(c.tally.Pixels, pixels)
	}
	c.ws.NeedTallies(c.tally.Size())
	return c.tally
}

// count takes the statistics of output blocks [k0, k1) of chunk i.
func (c *Winograd) count(i int, at chunk, k0, k1 int) {
	for k := k0; k < k1; k++ {
		image, top, left := c.tiling.at(at.first)
		y, _ := c.out.Block(image, k)
		to := c.tally.Begin(c.ws.Tallies, i, k, y[at.z*c.tiling.slice()+(top*c.tiling.w+left)*lanes:])
		for z := range at.slices {
			c.tiling.runs(at.first, at.n, func(image, pixel, pixels int) {
				y, _ := c.out.Block(image, k)
				c.ws.Set.Deviations(&y[(at.z+z)*c.tiling.slice()+pixel*lanes], pixels, &to[0])
			})
		}
	}
}

// runs calls f for runs of adjacent pixels of a slice that tiles [first, first+n) cover:
// whole rows of tiles are one run, a part of one is a run for each row of pixels.
func (t *tiling) runs(first, n int, f func(image, at, pixels int)) {
	for end := first + n; first < end; {
		image, top, left := t.at(first)
		height := min(kernel.TileSide, t.h-top)
		if left == 0 && end-first >= t.cols {
			f(image, top*t.w, height*t.w)
			first += t.cols
			continue
		}
		tiles := min(t.cols-left/kernel.TileSide, end-first)
		for r := range height {
			f(image, (top+r)*t.w+left, min(tiles*kernel.TileSide, t.w-left))
		}
		first += tiles
	}
}
