package layer

import (
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
)

// planeChunks divides each plane of an activation (one channel block of one image) into chunks
// of workspace.MaxFloat32SumPixels pixels.
type planeChunks struct {
	images   int
	channels int // in blocks
	pixels   int // of a plane
	perPlane int // chunks
}

func newPlaneChunks(o tensor.Operand) planeChunks {
	pixels := o.Shape[2] * o.Shape[3]
	return planeChunks{o.Shape[0], tensor.ChannelBlockCount(o.Shape[1]), pixels, tensor.CeilDiv(pixels, workspace.MaxFloat32SumPixels)}
}

func (c planeChunks) count() int { return c.images * c.channels * c.perPlane }

// chunkAt describes chunk i: its image, its channel block, the index of its first float in the
// plane, and its number of pixels.
func (c planeChunks) chunkAt(i int) (image, channel, first, pixels int) {
	plane, q := i/c.perPlane, i%c.perPlane*workspace.MaxFloat32SumPixels
	return plane / c.channels, plane % c.channels, q * lanes, min(workspace.MaxFloat32SumPixels, c.pixels-q)
}

// forEachChunk calls f with the number of each chunk of channel blocks [lo, hi), in the order of
// memory. Chunks of one channel block come in the order of images and pixels.
func (c planeChunks) forEachChunk(lo, hi int, f func(i int)) {
	for n := range c.images {
		for i := (n*c.channels + lo) * c.perPlane; i < (n*c.channels+hi)*c.perPlane; i++ {
			f(i)
		}
	}
}

// maxChannelGroupFloats limits the groups of channel blocks that newChannelTask passes to one call,
// which have at least one block. A few activations of that size fit into the second-level
// cache.
const maxChannelGroupFloats = 32 * 1024

// newChannelTask returns a task whose items are the channel blocks. It calls f for groups of
// successive channel blocks [lo, hi). For small maps a group has several blocks, because a
// single plane is too little memory to read at once. ok is false if there are too few channel
// blocks to keep all threads about equally busy.
func (c planeChunks) newChannelTask(threadCount int, f func(lo, hi int)) (t threads.Task, ok bool) {
	group := max(1, maxChannelGroupFloats/(c.images*c.pixels*lanes))
	return threads.Task{Items: c.channels, Run: func(_ *threads.Worker, lo, hi int) {
		for ; lo < hi; lo += group {
			f(lo, min(hi, lo+group))
		}
	}}, c.channels%threadCount == 0 || c.channels >= 8*threadCount
}

// imagesPerStatisticsPart returns the number of images whose pixels a part of the statistics contains:
// several if their planes are small, so that there are few parts to merge.
func (c planeChunks) imagesPerStatisticsPart() int {
	return min(c.images, max(1, workspace.MaxFloat32SumPixels/c.pixels))
}

func (c planeChunks) newStatistics() *workspace.ChannelStatistics {
	s := &workspace.ChannelStatistics{Channels: c.channels}
	for n := 0; n < c.images; n += c.imagesPerStatisticsPart() {
		images := min(c.imagesPerStatisticsPart(), c.images-n)
		for q := range c.perPlane {
			s.Pixels = append(s.Pixels, images*min(workspace.MaxFloat32SumPixels, c.pixels-q*workspace.MaxFloat32SumPixels))
		}
	}
	return s
}

func (c planeChunks) newChunkTask(f func(i int)) threads.Task {
	return threads.Task{Items: c.count(), Run: func(_ *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			f(i)
		}
	}}
}

// sumChunkPairs adds up the two sums that parts contains for each chunk of a channel block. It
// returns the totals a and b for each lane.
func sumChunkPairs(cut planeChunks, channel int, parts []float32) (a, b [lanes]float64) {
	cut.forEachChunk(channel, channel+1, func(i int) {
		pair := parts[i*2*lanes:][:2*lanes]
		for l := range lanes {
			a[l] += float64(pair[l])
			b[l] += float64(pair[lanes+l])
		}
	})
	return a, b
}
