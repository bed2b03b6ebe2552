package horovod

import (
	"lockstep/pkg/collective"
	"lockstep/pkg/internal/device"
)

// fusionBuffer contains several tensors that are reduced together.
//
// An all-reduce algorithm may add the numbers in an order that depends on the shard: in a ring,
// each shard begins at another rank. If the tensors were stored one after another, the shard of a
// number would depend on the other tensors in the buffer, and so on the times at which the ranks
// announced them. The results of two runs would then differ in the last bit. Therefore shard r of
// the buffer consists of shard r of each tensor, padded to ⌈elements/ranks⌉ elements. A number is
// then in the same shard as if its tensor were reduced alone.
type fusionBuffer struct {
	ranks int
	f32   []float32
	f64   []float64
}

// pack copies the tensors, which must have the same type, to the buffer. It returns the part of the
// buffer that they occupy.
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

// paddedShardLength returns the number of elements that one shard of a tensor with n elements occupies in
// the buffer.
func paddedShardLength(n, ranks int) int { return (n + ranks - 1) / ranks }

// packShards implements pack. It uses b as the buffer, and enlarges it if necessary.
func packShards[T float32 | float64](b []T, tensors [][]T, ranks int) []T {
	b = b[:0]
	for r := range ranks {
		for _, t := range tensors {
			lo, hi := collective.Shard(len(t), ranks, r)
			b = append(b, t[lo:hi]...)
			for range paddedShardLength(len(t), ranks) - (hi - lo) {
				b = append(b, 0)
			}
		}
	}
	return b
}

// unpackShards is the inverse of packShards.
func unpackShards[T float32 | float64](b []T, tensors [][]T, ranks int) {
	for r := range ranks {
		for _, t := range tensors {
			lo, hi := collective.Shard(len(t), ranks, r)
			copy(t[lo:hi], b)
			b = b[paddedShardLength(len(t), ranks):]
		}
	}
}
