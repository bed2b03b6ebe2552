package tensor

import "lockstep/pkg/engine/cpu/internal/kernel"

// AlignmentFloats is the alignment, in floats, of the tensors in a flat buffer.
const AlignmentFloats = kernel.CacheLineBytes / 4

// Layout is the order of a tensor's elements in memory.
type Layout uint8

// Layouts of tensors; see the documentation of package cpu.
const (
	VectorLayout     Layout = iota // [n], padded to a multiple of eight
	ActivationLayout               // [n,c,…] as [n][⌈c/8⌉][…][8]
	WeightLayout                   // [k,c,…] as [⌈k/8⌉][⌈c/8⌉][…][8 of c][8 of k]
)

// String returns the name of l, for error messages.
func (l Layout) String() string {
	return [...]string{"vector", "activation", "weight"}[l]
}

// ChannelBlockCount returns the number of channel blocks that c channels occupy.
func ChannelBlockCount(c int) int { return CeilDiv(c, lanes) }

// ShapeTo4D returns a shape with four dimensions that has the same layout in memory: [n,k,1,1]
// for [n,k], and [n,c,d·h,w] for [n,c,d,h,w]. It returns other shapes unchanged.
func ShapeTo4D(shape []int) []int {
	switch len(shape) {
	case 2:
		return []int{shape[0], shape[1], 1, 1}
	case 5:
		return []int{shape[0], shape[1], shape[2] * shape[3], shape[4]}
	}
	return shape
}

// SpatialSize returns the depth, height and width of a shape. A dimension that the shape does
// not have is 1.
func SpatialSize(shape []int) (s [3]int) {
	s = [3]int{1, 1, 1}
	if n := len(shape) - 2; n > 0 {
		copy(s[3-n:], shape[2:])
	}
	return s
}

// FloatCount returns the number of floats of a tensor, including padding.
func (l Layout) FloatCount(shape []int) int {
	shape = ShapeTo4D(shape)
	switch l {
	case ActivationLayout:
		return shape[0] * ChannelBlockCount(shape[1]) * shape[2] * shape[3] * lanes
	case WeightLayout:
		return ChannelBlockCount(shape[0]) * ChannelBlockCount(shape[1]) * shape[2] * shape[3] * lanes * lanes
	default:
		return RoundUp(ElementCount(shape), lanes)
	}
}

// ForEachStridedRun calls f for each run of elements that are adjacent in logical order and evenly
// spaced in memory: element i of a run has the logical index first+i and the memory index
// offset+i·stride.
func (l Layout) ForEachStridedRun(shape []int, f func(first, offset, count, stride int)) {
	shape = ShapeTo4D(shape)
	switch l {
	case ActivationLayout:
		n, c, hw := shape[0], shape[1], shape[2]*shape[3]
		for i := range n {
			for j := range c {
				f((i*c+j)*hw, (i*ChannelBlockCount(c)+j/lanes)*hw*lanes+j%lanes, hw, lanes)
			}
		}
	case WeightLayout:
		k, c, rs := shape[0], shape[1], shape[2]*shape[3]
		for i := range k {
			for j := range c {
				offset := ((i/lanes*ChannelBlockCount(c)+j/lanes)*rs*lanes+j%lanes)*lanes + i%lanes
				f((i*c+j)*rs, offset, rs, lanes*lanes)
			}
		}
	default:
		f(0, 0, ElementCount(shape), 1)
	}
}

// Pack copies src, in logical order, to dst in layout l, without changing the padding of
// dst.
func Pack[T float32 | float64](l Layout, shape []int, dst []float32, src []T) {
	l.ForEachStridedRun(shape, func(first, offset, count, stride int) {
		for _, v := range src[first : first+count] {
			dst[offset] = float32(v)
			offset += stride
		}
	})
}

// Unpack copies the elements of src, which has layout l, to dst in logical order.
func Unpack[T float32 | float64](l Layout, shape []int, dst []T, src []float32) {
	l.ForEachStridedRun(shape, func(first, offset, count, stride int) {
		out := dst[first : first+count]
		for i := range out {
			out[i] = T(src[offset])
			offset += stride
		}
	})
}

// ElementCount returns the number of elements of a shape, without padding.
func ElementCount(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// RoundUp returns the least multiple of m that is not less than n.
func RoundUp(n, m int) int { return (n + m - 1) / m * m }

// CeilDiv returns n/m rounded up, for n ≥ 0.
func CeilDiv(n, m int) int { return (n + m - 1) / m }
