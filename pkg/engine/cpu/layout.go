package cpu

import "lockstep/pkg/engine/cpu/internal/kernel"

// regionAlign is what the regions of a flat buffer are padded to, in floats.
const regionAlign = kernel.CacheLine / 4

// layout says how a tensor's logical elements lie in memory.
type layout uint8

const (
	vectorLayout     layout = iota // [n], padded to a multiple of eight
	activationLayout               // [n,c,…] as [n][⌈c/8⌉][…][8]
	weightLayout                   // [k,c,…] as [⌈k/8⌉][⌈c/8⌉][…][8 of c][8 of k]
)

// String names l in errors.
func (l layout) String() string {
	return [...]string{"vector", "activation", "weight"}[l]
}

// blocks is the number of blocks that c channels fill.
func blocks(c int) int { return ceilDiv(c, kernel.Lanes) }

// folded is a shape of any number of dimensions as four, as far as memory goes:
// [n,k] is [n,k,1,1], and [n,c,d,h,w] is [n,c,d·h,w]. A vector stays as it is.
func folded(shape []int) []int {
	switch len(shape) {
	case 2:
		return []int{shape[0], shape[1], 1, 1}
	case 5:
		return []int{shape[0], shape[1], shape[2] * shape[3], shape[4]}
	}
	return shape
}

// spatial is the depth, height and width of a shape; what it lacks is 1.
func spatial(shape []int) (s [3]int) {
	s = [3]int{1, 1, 1}
	if n := len(shape) - 2; n > 0 {
		copy(s[3-n:], shape[2:])
	}
	return s
}

// size is the number of floats of a tensor, padding included.
func (l layout) size(shape []int) int {
	shape = folded(shape)
	switch l {
	case activationLayout:
		return shape[0] * blocks(shape[1]) * shape[2] * shape[3] * kernel.Lanes
	case weightLayout:
		return blocks(shape[0]) * blocks(shape[1]) * shape[2] * shape[3] * kernel.Lanes * kernel.Lanes
	default:
		return roundUp(elements(shape), kernel.Lanes)
	}
}

// runs calls f for runs of elements that are adjacent in logical order and
// evenly spaced in memory: element i of a run is logical index first+i and
// memory index at+i·stride.
func (l layout) runs(shape []int, f func(first, at, count, stride int)) {
	shape = folded(shape)
	switch l {
	case activationLayout:
		n, c, hw := shape[0], shape[1], shape[2]*shape[3]
		for i := range n {
			for j := range c {
				f((i*c+j)*hw, (i*blocks(c)+j/kernel.Lanes)*hw*kernel.Lanes+j%kernel.Lanes, hw, kernel.Lanes)
			}
		}
	case weightLayout:
		k, c, rs := shape[0], shape[1], shape[2]*shape[3]
		for i := range k {
			for j := range c {
				at := ((i/kernel.Lanes*blocks(c)+j/kernel.Lanes)*rs*kernel.Lanes+j%kernel.Lanes)*kernel.Lanes + i%kernel.Lanes
				f((i*c+j)*rs, at, rs, kernel.Lanes*kernel.Lanes)
			}
		}
	default:
		f(0, 0, elements(shape), 1)
	}
}

// pack copies src, in logical order, to its places in dst; padding is left as it is.
func pack[T float32 | float64](l layout, shape []int, dst []float32, src []T) {
	l.runs(shape, func(first, at, count, stride int) {
		for _, v := range src[first : first+count] {
			dst[at] = float32(v)
			at += stride
		}
	})
}

// unpack copies the logical elements of src to dst, in logical order.
func unpack[T float32 | float64](l layout, shape []int, dst []T, src []float32) {
	l.runs(shape, func(first, at, count, stride int) {
		out := dst[first : first+count]
		for i := range out {
			out[i] = T(src[at])
			at += stride
		}
	})
}

// elements is the number of logical elements of a shape.
func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// roundUp is the least multiple of m that is not less than n.
func roundUp(n, m int) int { return (n + m - 1) / m * m }

// ceilDiv is n/m rounded up, for n ≥ 0.
func ceilDiv(n, m int) int { return (n + m - 1) / m }
