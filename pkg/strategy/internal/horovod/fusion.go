package horovod

import (
	"lockstep/pkg/collective"
	"lockstep/pkg/internal/device"
)

// fusionBuffer contains several tensors that are reduced together.
//
// An algorithm of all-reduce may add the numbers of each shard of a buffer in another order: a
// ring begins with another rank. If the tensors were stored one after another, a number's shard
// would depend on the other tensors of the buffer, and so on the times at which the ranks
// announced them. The results of two runs would differ in the last bit. Therefore shard r of the
// buffer consists of shard r of each tensor, padded to ⌈elements/ranks⌉ elements. A number is
// then in the same shard as if its tensor were reduced alone.
type fusionBuffer struct {
	ranks int
	f32   []float32
	f64   []float64
}

// pack copies the tensors, of one type, to the buffer and returns the part that they take.
func (f *fusionBuffer) pack(tensors []device.Buffer) device.Buffer {
	if tensors[0].F64 != nil {
		f.f64 = packShards(f.f64, float64Slices(tensors), f.ranks)
		return device.Buffer{F64: f.f64}
	}
	f.f32 = packShards(f.f32, float32Slices(tensors), f.ranks)
	return device.Buffer{F32: f.f32}
}

func (f *fusionBuffer) unpack(tensors []device.Buffer) {
	if tensors[0].F64 != nil {
		unpackShards(f.f64, float64Slices(tensors), f.ranks)
		return
	}
	unpackShards(f.f32, float32Slices(tensors), f.ranks)
}

func float64Slices(tensors []device.Buffer) [][]float64 {
	var all [][]float64
	for _, t := range tensors {
		all = append(all, t.F64)
	}
	return all
}

func float32Slices(tensors []device.Buffer) [][]float32 {
	var all [][]float32
	for _, t := range tensors {
		all = append(all, t.F32)
	}
	return all
}

// shardWidth returns the number of elements that a shard of n elements takes in the buffer.
func shardWidth(n, ranks int) int { return (n + ranks - 1) / ranks }

// packShards is pack into b, which it enlarges if necessary.
func packShards[T float32 | float64](b []T, tensors [][]T, ranks int) []T {
	b = b[:0]
	for r := range ranks {
		for _, t := range tensors {
			lo, hi := collective.Shard(len(t), ranks, r)
			b = append(b, t[lo:hi]...)
			for range shardWidth(len(t), ranks) - (hi - lo) {
				b = append(b, 0)
			}
		}
	}
	return b
}

// unpackShards is the inverse of packInto.
func unpackShards[T float32 | float64](b []T, tensors [][]T, ranks int) {
	for r := range ranks {
		for _, t := range tensors {
			lo, hi := collective.Shard(len(t), ranks, r)
			copy(t[lo:hi], b)
			b = b[shardWidth(len(t), ranks):]
		}
	}
}
