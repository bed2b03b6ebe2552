package reference

import "lockstep/pkg/internal/plan"

// relation describes a convolution or a transposed convolution. Both relate a large map
// (the input of a convolution, the output of a transposed one), a small map, and weights
// w [channels of small, channels of large, q, r, s]: the product of w at tap (o, p, q)
// relates position (h, i, j) of small to position (h·stride+o−pad, …) of large. Each of
// the six kernels computes one of the three from the other two. An image is a volume of
// depth 1.
type relation struct {
	n              int    // batch
	smallC, largeC int    // channels
	small, large   [3]int // depth, height and width
	taps           [3]int
	stride, pad    [3]int
}

// newRelation returns the relation of the maps and weights with the given shapes.
func newRelation(attr plan.Attr, small, large, w []int) relation {
	return relation{
		n: small[0], smallC: w[0], largeC: w[1],
		small: volume(small[2:], 1), large: volume(large[2:], 1), taps: volume(w[2:], 1),
		stride: volume(attr.Stride, 1), pad: volume(attr.Pad, 0),
	}
}

// volume returns v as three numbers. If v has two (an image), depth is added before them;
// if v is nil, all three are depth.
func volume(v []int, depth int) [3]int {
	full := [3]int{depth, depth, depth}
	copy(full[3-len(v):], v)
	return full
}

// span returns the range [lo, hi) of positions of small along an axis whose related
// position under tap is within large.
func (r relation) span(axis, tap int) (lo, hi int) {
	stride, shift := r.stride[axis], tap-r.pad[axis]
	if shift < 0 {
		lo = (-shift + stride - 1) / stride
	}
	last := r.large[axis] - 1 - shift
	if last < 0 {
		return 0, 0
	}
	return lo, max(lo, min(r.small[axis], last/stride+1))
}

// row is a part of a row of small. small is the index of its first element, large the
// index of the related element of large, where consecutive elements are r.stride[2]
// apart, and weight the index of the weight that relates them.
type row struct{ small, large, length, weight int }

// rows calls visit for every pair of related rows.
func (r relation) rows(visit func(row)) {
	smallMap, largeMap := product(r.small), product(r.large)
	for n := range r.n {
		for k := range r.smallC {
			for c := range r.largeC {
				small, large := (n*r.smallC+k)*smallMap, (n*r.largeC+c)*largeMap
				for tap := range product(r.taps) {
					o, p, q := tap/(r.taps[1]*r.taps[2]), tap/r.taps[2]%r.taps[1], tap%r.taps[2]
					weight := (k*r.largeC+c)*product(r.taps) + tap
					r.visitTapRows([3]int{o, p, q}, row{small: small, large: large, weight: weight}, visit)
				}
			}
		}
	}
}

// visitTapRows calls visit for the rows of one pair of channels that are related by one tap.
func (r relation) visitTapRows(tap [3]int, at row, visit func(row)) {
	front, back := r.span(0, tap[0])
	top, bottom := r.span(1, tap[1])
	left, right := r.span(2, tap[2])
	if left >= right {
		return
	}
	for h := front; h < back; h++ {
		slab := h*r.stride[0] + tap[0] - r.pad[0]
		for i := top; i < bottom; i++ {
			line := i*r.stride[1] + tap[1] - r.pad[1]
			visit(row{
				small:  at.small + (h*r.small[1]+i)*r.small[2] + left,
				large:  at.large + (slab*r.large[1]+line)*r.large[2] + left*r.stride[2] + tap[2] - r.pad[2],
				length: right - left, weight: at.weight,
			})
		}
	}
}

// product returns the product of three numbers.
func product(v [3]int) int { return v[0] * v[1] * v[2] }

// gather adds to each position of small the weighted sum of the related positions of
// large.
func gather[T number](r relation, small, large, w []T) {
	step := r.stride[2]
	r.rows(func(a row) {
		f, dst, src := w[a.weight], small[a.small:a.small+a.length], large[a.large:]
		for i := range dst {
			dst[i] += f * src[i*step]
		}
	})
}

// scatter adds to each position of large the weighted sum of the related positions of
// small.
func scatter[T number](r relation, small, large, w []T) {
	step := r.stride[2]
	r.rows(func(a row) {
		f, src, dst := w[a.weight], small[a.small:a.small+a.length], large[a.large:]
		for i, v := range src {
			dst[i*step] += f * v
		}
	})
}

// correlate sets each weight of w to the sum of products of related positions of small
// and large.
func correlate[T number](r relation, small, large, w []T) {
	step := r.stride[2]
	sum := make([]float64, len(w))
	r.rows(func(a row) {
		var s T
		src := large[a.large:]
		for i, v := range small[a.small : a.small+a.length] {
			s += v * src[i*step]
		}
		sum[a.weight] += float64(s)
	})
	for i, s := range sum {
		w[i] = T(s)
	}
}

// bias sets each channel of y to its bias, or to zero if there is no bias.
func (c *call[T]) bias() {
	y, shape := c.out[0], c.outShape[0]
	area := points(shape)
	for i := range shape[0] * shape[1] {
		var b T
		if len(c.in) == 3 {
			b = c.in[2][i%shape[1]]
		}
		fill(y[i*area:(i+1)*area], b)
	}
}

func (c *call[T]) conv() {
	c.bias()
	gather(newRelation(c.attr, c.outShape[0], c.inShape[0], c.inShape[1]), c.out[0], c.in[0], c.in[1])
}

func (c *call[T]) convBackwardData() {
	fill(c.out[0], 0)
	scatter(newRelation(c.attr, c.inShape[1], c.outShape[0], c.inShape[0]), c.in[1], c.out[0], c.in[0])
}

func (c *call[T]) convBackwardWeights() {
	correlate(newRelation(c.attr, c.inShape[1], c.inShape[0], c.outShape[0]), c.in[1], c.in[0], c.out[0])
}

func (c *call[T]) convTranspose() {
	c.bias()
	scatter(newRelation(c.attr, c.inShape[0], c.outShape[0], c.inShape[1]), c.in[0], c.out[0], c.in[1])
}

func (c *call[T]) convTransposeBackwardData() {
	fill(c.out[0], 0)
	gather(newRelation(c.attr, c.outShape[0], c.inShape[1], c.inShape[0]), c.out[0], c.in[1], c.in[0])
}

func (c *call[T]) convTransposeBackwardWeights() {
	correlate(newRelation(c.attr, c.inShape[0], c.inShape[1], c.outShape[0]), c.in[0], c.in[1], c.out[0])
}

func (c *call[T]) biasBackward() {
	eachChannel(c.inShape[0], func(k int, parts [][2]int) {
		sum := 0.0
		for _, p := range parts {
			for _, v := range c.in[0][p[0]:p[1]] {
				sum += float64(v)
			}
		}
		c.out[0][k] = T(sum)
	})
}

// points returns the number of positions of a feature map; 1 for [n,c].
func points(shape []int) int {
	n := 1
	for _, d := range shape[2:] {
		n *= d
	}
	return n
}

// eachChannel calls visit for each channel of a tensor [n,c,…] with the ranges of its
// elements, one per sample.
func eachChannel(shape []int, visit func(channel int, parts [][2]int)) {
	area := points(shape)
	parts := make([][2]int, shape[0])
	for k := range shape[1] {
		for n := range shape[0] {
			at := (n*shape[1] + k) * area
			parts[n] = [2]int{at, at + area}
		}
		visit(k, parts)
	}
}
