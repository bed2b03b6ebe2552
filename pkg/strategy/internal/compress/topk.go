package compress

import (
	"context"
	"math"

	"lockstep/pkg/collective"
	"lockstep/pkg/internal/device"
)

// Largest replaces gradient by the mean over all ranks of the elements of largest magnitude of
// their gradients, each with its rest: every rank sends a part ratio of its elements, at least one,
// as indexes and values. The other elements are its new rest. Largest returns the number of bytes
// that this rank contributes.
//
// The method is deep gradient compression (Y. Lin et al., arXiv:1712.01887) without its momentum
// correction.
func Largest[T number](ctx context.Context, group collective.Group, ratio float64, gradient, rest []T) (int, error) {
	n := len(gradient)
	for i := range gradient {
		rest[i] += gradient[i]
	}
	indexes := largest(rest, KeptElements(ratio, n))
	k := len(indexes)
	all := make([]T, 2*k*group.Size()) // by rank: the indexes, then the values
	own := all[2*k*group.Rank():][:2*k]
	for j, i := range indexes {
		own[j], own[k+j] = encodeIndex[T](i), rest[i]
		rest[i] = 0
	}
	buffer := AsBuffer(all)
	if err := group.AllGather(ctx, buffer); err != nil {
		return 0, err
	}
	clear(gradient)
	for r := range group.Size() {
		part := all[2*k*r:][:2*k]
		for j, v := range part[k:] {
			gradient[decodeIndex(part[j])] += v
		}
	}
	for i := range gradient {
		gradient[i] /= T(group.Size())
	}
	return buffer.Bytes() / group.Size(), nil
}

// KeptElements returns how many of n elements Largest sends.
func KeptElements(ratio float64, n int) int { return min(n, int(math.Ceil(ratio*float64(n)))) }

// largest returns the indexes of the k elements of v with the largest magnitudes, in ascending
// order; of equal magnitudes the first.
func largest[T number](v []T, k int) []int {
	// The bits of positive floats are ordered like the floats. Two passes find the k-th largest
	// magnitude in float32: the first counts the upper 16 bits, the second the lower ones.
	var counts [1 << 16]int
	key := func(x T) uint32 { return math.Float32bits(float32(math.Abs(float64(x)))) }
	for _, x := range v {
		counts[key(x)>>16]++
	}
	upper, above := len(counts)-1, 0 // above: the elements with larger upper bits
	for ; above+counts[upper] < k; upper-- {
		above += counts[upper]
	}
	clear(counts[:])
	for _, x := range v {
		if b := key(x); int(b>>16) == upper {
			counts[b&0xffff]++
		}
	}
	lower := len(counts) - 1
	for ; above+counts[lower] < k; lower-- {
		above += counts[lower]
	}
	limit := uint32(upper)<<16 | uint32(lower)
	ties := k - above // of the elements that equal the limit, so many
	indexes := make([]int, 0, k)
	for i, x := range v {
		switch b := key(x); {
		case b > limit:
			indexes = append(indexes, i)
		case b == limit && ties > 0:
			ties--
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// encodeIndex stores an index in the bits of a float32, or as a float64, so that it travels with
// the values.
func encodeIndex[T number](i int) T {
	var v T
	switch p := any(&v).(type) {
	case *float32:
		*p = math.Float32frombits(uint32(i))
	case *float64:
		*p = float64(i)
	}
	return v
}

// decodeIndex returns the index that encodeIndex has stored.
func decodeIndex[T number](v T) int {
	if f, ok := any(v).(float32); ok {
		return int(math.Float32bits(f))
	}
	return int(v)
}

// AsBuffer returns v as a buffer.
func AsBuffer[T number](v []T) device.Buffer {
	switch v := any(v).(type) {
	case []float32:
		return device.Buffer{F32: v}
	case []float64:
		return device.Buffer{F64: v}
	}
	return device.Buffer{}
}
