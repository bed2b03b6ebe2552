package reference

import "lockstep/pkg/internal/plan"

// convolution describes a convolution or a transposed convolution between a large map (the
// input of a convolution, the output of a transposed one) and a small map. The weights w have
// the shape [channels of small, channels of large, depth, height, width]. The weight at tap (o,
// p, q) connects position (h, i, j) of small with position (h·stride+o−pad, …) of large. Each
// of the six kernels computes one of small, large and w from the other two. An image is a
// volume of depth 1.
type convolution struct {
	n              int    // batch
	smallC, largeC int    // channels
	small, large   [3]int // depth, height and width
	taps           [3]int
	stride, pad    [3]int
}

func newConvolution(attr plan.KernelAttr, small, large, w []int) convolution {
	return convolution{
		n: small[0], smallC: w[0], largeC: w[1],
		small: toDepthHeightWidth(small[2:], 1), large: toDepthHeightWidth(large[2:], 1), taps: toDepthHeightWidth(w[2:], 1),
		stride: toDepthHeightWidth(attr.Stride, 1), pad: toDepthHeightWidth(attr.Pad, 0),
	}
}

// toDepthHeightWidth extends v to three dimensions: missing leading dimensions become depth. If
// v is nil, all three do.
func toDepthHeightWidth(v []int, depth int) [3]int {
	full := [3]int{depth, depth, depth}
	copy(full[3-len(v):], v)
	return full
}

// positionsInsideLarge returns the range [lo, hi) of the positions of small along an axis that the
// tap connects with a position inside of large.
func (r convolution) positionsInsideLarge(axis, tap int) (lo, hi int) {
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

// rowPair is a run of elements of the small map and the elements of the large map with which
// one weight connects them. small, large and weight are the indexes of the first elements and
// of the weight. length is the number of elements. Successive elements of the large map are
// r.stride[2] apart.
type rowPair struct{ small, large, length, weight int }

// forEachRowPair calls visit for each image, pair of channels, tap and row of the small
// map.
func (r convolution) forEachRowPair(visit func(rowPair)) {
	smallMap, largeMap := product(r.small), product(r.large)
	for n := range r.n {
		for k := range r.smallC {
			for c := range r.largeC {
				small, large := (n*r.smallC+k)*smallMap, (n*r.largeC+c)*largeMap
				for tap := range product(r.taps) {
					o, p, q := tap/(r.taps[1]*r.taps[2]), tap/r.taps[2]%r.taps[1], tap%r.taps[2]
					weight := (k*r.largeC+c)*product(r.taps) + tap
					r.forEachTapRowPair([3]int{o, p, q}, rowPair{small: small, large: large, weight: weight}, visit)
				}
			}
		}
	}
}

// forEachTapRowPair calls visit for every rowPair of one tap in one pair of channels. first
// contains the indexes of the first elements of both channels, and of the weight.
func (r convolution) forEachTapRowPair(tap [3]int, first rowPair, visit func(rowPair)) {
	front, back := r.positionsInsideLarge(0, tap[0])
	top, bottom := r.positionsInsideLarge(1, tap[1])
	left, right := r.positionsInsideLarge(2, tap[2])
	if left >= right {
		return
	}
	for h := front; h < back; h++ {
		slab := h*r.stride[0] + tap[0] - r.pad[0]
		for i := top; i < bottom; i++ {
			line := i*r.stride[1] + tap[1] - r.pad[1]
			visit(rowPair{
				small:  first.small + (h*r.small[1]+i)*r.small[2] + left,
				large:  first.large + (slab*r.large[1]+line)*r.large[2] + left*r.stride[2] + tap[2] - r.pad[2],
				length: right - left, weight: first.weight,
			})
		}
	}
}

func product(v [3]int) int { return v[0] * v[1] * v[2] }

// addConvolution adds the convolution of large with w to small.
func addConvolution[T number](r convolution, small, large, w []T) {
	step := r.stride[2]
	r.forEachRowPair(func(a rowPair) {
		f, dst, src := w[a.weight], small[a.small:a.small+a.length], large[a.large:]
		for i := range dst {
			dst[i] += f * src[i*step]
		}
	})
}

// addTransposedConvolution adds the transposed convolution of small with w to large.
func addTransposedConvolution[T number](r convolution, small, large, w []T) {
	step := r.stride[2]
	r.forEachRowPair(func(a rowPair) {
		f, src, dst := w[a.weight], small[a.small:a.small+a.length], large[a.large:]
		for i, v := range src {
			dst[i*step] += f * v
		}
	})
}

// computeWeightGradient sets each weight in w to the sum of the products small·large over all
// pairs of positions that the weight connects.
func computeWeightGradient[T number](r convolution, small, large, w []T) {
	step := r.stride[2]
	sum := make([]float64, len(w))
	r.forEachRowPair(func(a rowPair) {
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

// fillBias sets each channel of the output to its bias, or to zero if there is no bias.
func (c *kernelCall[T]) fillBias() {
	y, shape := c.out[0], c.outShape[0]
	area := spatialElementCount(shape)
	for i := range shape[0] * shape[1] {
		var b T
		if len(c.in) == 3 {
			b = c.in[2][i%shape[1]]
		}
		fill(y[i*area:(i+1)*area], b)
	}
}

func (c *kernelCall[T]) conv() {
	c.fillBias()
	addConvolution(newConvolution(c.attr, c.outShape[0], c.inShape[0], c.inShape[1]), c.out[0], c.in[0], c.in[1])
}

func (c *kernelCall[T]) convBackwardData() {
	fill(c.out[0], 0)
	addTransposedConvolution(newConvolution(c.attr, c.inShape[1], c.outShape[0], c.inShape[0]), c.in[1], c.out[0], c.in[0])
}

func (c *kernelCall[T]) convBackwardWeights() {
	computeWeightGradient(newConvolution(c.attr, c.inShape[1], c.inShape[0], c.outShape[0]), c.in[1], c.in[0], c.out[0])
}

func (c *kernelCall[T]) convTranspose() {
	c.fillBias()
	addTransposedConvolution(newConvolution(c.attr, c.inShape[0], c.outShape[0], c.inShape[1]), c.in[0], c.out[0], c.in[1])
}

func (c *kernelCall[T]) convTransposeBackwardData() {
	fill(c.out[0], 0)
	addConvolution(newConvolution(c.attr, c.outShape[0], c.inShape[1], c.inShape[0]), c.out[0], c.in[1], c.in[0])
}

func (c *kernelCall[T]) convTransposeBackwardWeights() {
	computeWeightGradient(newConvolution(c.attr, c.inShape[0], c.inShape[1], c.outShape[0]), c.in[0], c.in[1], c.out[0])
}

func (c *kernelCall[T]) biasBackward() {
	forEachChannel(c.inShape[0], func(k int, parts [][2]int) {
		sum := 0.0
		for _, p := range parts {
			for _, v := range c.in[0][p[0]:p[1]] {
				sum += float64(v)
			}
		}
		c.out[0][k] = T(sum)
	})
}

// spatialElementCount returns the product of the spatial dimensions of shape, which is 1 for [n,c].
func spatialElementCount(shape []int) int {
	n := 1
	for _, d := range shape[2:] {
		n *= d
	}
	return n
}

// forEachChannel calls visit for each channel of a tensor of shape [n,c,…]. parts contains one
// range of indexes per sample: the elements of the channel in that sample.
func forEachChannel(shape []int, visit func(channel int, parts [][2]int)) {
	area := spatialElementCount(shape)
	parts := make([][2]int, shape[0])
	for k := range shape[1] {
		for n := range shape[0] {
			at := (n*shape[1] + k) * area
			parts[n] = [2]int{at, at + area}
		}
		visit(k, parts)
	}
}
