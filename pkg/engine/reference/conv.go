package reference

import "lockstep/pkg/internal/plan"

// Convolution and transposed convolution are one relation between a large map
// (the input of a convolution, the output of a transposed one), a small map,
// and weights w [channels of small, channels of large, r, s]: position (i, j)
// of small and tap (p, q) meet position (i·stride+p−pad, j·stride+q−pad) of
// large. Each of the six kernels computes one of the three from the other two.
type relation struct {
	n              int    // batch
	smallC, largeC int    // channels
	small, large   [2]int // height and width
	taps           [2]int
	stride, pad    [2]int
}

func relate(attr plan.Attr, small, large, w []int) relation {
	return relation{
		n: small[0], smallC: w[0], largeC: w[1],
		small: [2]int{small[2], small[3]}, large: [2]int{large[2], large[3]}, taps: [2]int{w[2], w[3]},
		stride: [2]int{attr.Stride[0], attr.Stride[1]}, pad: [2]int{attr.Pad[0], attr.Pad[1]},
	}
}

// span is the range [lo, hi) of positions of small along an axis whose partner
// under tap lies inside large.
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

// row is a part of a row of small, its length, and where its partner in large
// begins; one lies r.stride[1] from the next there.
type row struct{ small, large, length, weight int }

// rows visits every pair of rows that meet, with the index of the weight
// between them.
func (r relation) rows(visit func(row)) {
	smallMap, largeMap := r.small[0]*r.small[1], r.large[0]*r.large[1]
	for n := range r.n {
		for k := range r.smallC {
			for c := range r.largeC {
				small, large := (n*r.smallC+k)*smallMap, (n*r.largeC+c)*largeMap
				for p := range r.taps[0] {
					top, bottom := r.span(0, p)
					for q := range r.taps[1] {
						left, right := r.span(1, q)
						if left >= right {
							continue
						}
						weight := ((k*r.largeC+c)*r.taps[0]+p)*r.taps[1] + q
						for i := top; i < bottom; i++ {
							visit(row{
								small:  small + i*r.small[1] + left,
								large:  large + (i*r.stride[0]+p-r.pad[0])*r.large[1] + left*r.stride[1] + q - r.pad[1],
								length: right - left, weight: weight,
							})
						}
					}
				}
			}
		}
	}
}

// gather adds to small what large gives it through w.
func gather[T number](r relation, small, large, w []T) {
	step := r.stride[1]
	r.rows(func(a row) {
		f, dst, src := w[a.weight], small[a.small:a.small+a.length], large[a.large:]
		for i := range dst {
			dst[i] += f * src[i*step]
		}
	})
}

// scatter adds to large what small gives it through w.
func scatter[T number](r relation, small, large, w []T) {
	step := r.stride[1]
	r.rows(func(a row) {
		f, src, dst := w[a.weight], small[a.small:a.small+a.length], large[a.large:]
		for i, v := range src {
			dst[i*step] += f * v
		}
	})
}

// correlate sets w to the sums of products of small and large.
func correlate[T number](r relation, small, large, w []T) {
	step := r.stride[1]
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

// bias sets each channel of y to its bias, or to zero without one.
func (c *call[T]) bias() {
	y, shape := c.out[0], c.outShape[0]
	area := shape[2] * shape[3]
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
	gather(relate(c.attr, c.outShape[0], c.inShape[0], c.inShape[1]), c.out[0], c.in[0], c.in[1])
}

func (c *call[T]) convBackwardData() {
	fill(c.out[0], 0)
	scatter(relate(c.attr, c.inShape[1], c.outShape[0], c.inShape[0]), c.in[1], c.out[0], c.in[0])
}

func (c *call[T]) convBackwardWeights() {
	correlate(relate(c.attr, c.inShape[1], c.inShape[0], c.outShape[0]), c.in[1], c.in[0], c.out[0])
}

func (c *call[T]) convTranspose() {
	c.bias()
	scatter(relate(c.attr, c.inShape[0], c.outShape[0], c.inShape[1]), c.in[0], c.out[0], c.in[1])
}

func (c *call[T]) convTransposeBackwardData() {
	fill(c.out[0], 0)
	gather(relate(c.attr, c.outShape[0], c.inShape[1], c.inShape[0]), c.out[0], c.in[1], c.in[0])
}

func (c *call[T]) convTransposeBackwardWeights() {
	correlate(relate(c.attr, c.inShape[0], c.inShape[1], c.outShape[0]), c.in[0], c.in[1], c.out[0])
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

// eachChannel visits the channels of a tensor [n,c,h,w], each with the ranges
// of elements that belong to it.
func eachChannel(shape []int, visit func(channel int, parts [][2]int)) {
	area := shape[2] * shape[3]
	parts := make([][2]int, shape[0])
	for k := range shape[1] {
		for n := range shape[0] {
			at := (n*shape[1] + k) * area
			parts[n] = [2]int{at, at + area}
		}
		visit(k, parts)
	}
}
