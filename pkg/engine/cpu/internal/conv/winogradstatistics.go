package conv

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/workspace"
)

// EnableStatistics makes the convolution also compute the statistics of its output, one
// part per chunk, while the output is in the cache.
func (c *Winograd) EnableStatistics() *workspace.ChannelStatistics {
	c.statistics = &workspace.ChannelStatistics{Channels: c.outC}
	for i := range c.tiling.chunkCount() {
		pixels, at := 0, c.tiling.chunkAt(i)
		c.tiling.forEachPixelRun(at.first, at.n, func(_, _, count int) { pixels += at.slices * count })
		c.statistics.Pixels = append(c.statistics.Pixels, pixels)
	}
	c.ws.ReserveStatistics(c.statistics.PartialSumFloats())
	return c.statistics
}

func (c *Winograd) computeOutputStatistics(i int, at tileChunk, k0, k1 int) {
	for k := k0; k < k1; k++ {
		image, top, left := c.tiling.tileOrigin(at.first)
		y, _ := c.out.ChannelBlock(image, k)
		to := c.statistics.BeginPartSums(c.ws.Partial, i, k, y[at.z*c.tiling.sliceFloats()+(top*c.tiling.w+left)*lanes:])
		for z := range at.slices {
			c.tiling.forEachPixelRun(at.first, at.n, func(image, pixel, pixels int) {
				y, _ := c.out.ChannelBlock(image, k)
				c.ws.Set.Deviations(&y[(at.z+z)*c.tiling.sliceFloats()+pixel*lanes], pixels, &to[0])
			})
		}
	}
}

// forEachPixelRun calls f for each run of adjacent pixels that tiles [first, first+n) of a
// slice cover. A complete row of tiles is one run; part of a row is one run for each row of
// pixels. pixel is the index of the run's first pixel in the slice.
func (t *winogradTiling) forEachPixelRun(first, n int, f func(image, pixel, pixels int)) {
	for end := first + n; first < end; {
		image, top, left := t.tileOrigin(first)
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
