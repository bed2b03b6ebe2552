package cpu

// takeTally asks for the statistics of the output, a part of which is a block of
// tiles: they are taken while it is in the cache.
func (c *winograd) takeTally() *tally {
	c.tally = &tally{channels: c.outC}
	for b := range c.parts() {
		pixels := 0
		c.tiling.runs(b*c.block, min(c.block, c.tiling.count-b*c.block), func(_, _, count int) { pixels += count })
		c.tally.pixels = append(c.tally.pixels, pixels)
	}
	c.x.needTallies(c.tally.floats())
	return c.tally
}

// count takes the statistics of output blocks [k0, k1) of block b, which is
// tiles [first, first+n).
func (c *winograd) count(b, first, n, k0, k1 int) {
	for k := k0; k < k1; k++ {
		image, top, left := c.tiling.at(first)
		y, _ := c.out.block(image, k)
		to := c.tally.begin(c.x.tallies, b, k, y[(top*c.tiling.w+left)*lanes:])
		c.tiling.runs(first, n, func(image, at, pixels int) {
			y, _ := c.out.block(image, k)
			c.x.engine.kernels.deviations(&y[at*lanes], pixels, &to[0])
		})
	}
}

// runs calls f for runs of adjacent pixels that tiles [first, first+n) cover:
// whole rows of tiles are one run, a part of one is a run for each row of pixels.
func (t *tiling) runs(first, n int, f func(image, at, pixels int)) {
	for end := first + n; first < end; {
		image, top, left := t.at(first)
		height := min(tileSide, t.h-top)
		if left == 0 && end-first >= t.cols {
			f(image, top*t.w, height*t.w)
			first += t.cols
			continue
		}
		tiles := min(t.cols-left/tileSide, end-first)
		for r := range height {
			f(image, (top+r)*t.w+left, min(tiles*tileSide, t.w-left))
		}
		first += tiles
	}
}
