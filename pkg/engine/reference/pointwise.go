package reference

import "math"

// relu keeps NaN, so that a network that went astray shows it in its loss.
func (c *call[T]) relu() {
	for i, v := range c.in[0] {
		if v < 0 {
			v = 0
		}
		c.out[0][i] = v
	}
}

func (c *call[T]) reluBackward() {
	y, dy := c.in[0], c.in[1]
	for i, v := range y {
		if v > 0 {
			c.out[0][i] = dy[i]
		} else {
			c.out[0][i] = 0
		}
	}
}

// windows visits each window of a pooling with the position of its output and
// of its maximum, the first in row order; a NaN counts as the maximum.
func (c *call[T]) windows(x []T, in, out []int, visit func(to, from int)) {
	kernel, stride := c.attr.Kernel, c.attr.Stride
	for plane := range in[0] * in[1] {
		for i := range out[2] {
			for j := range out[3] {
				corner := (plane*in[2]+i*stride[0])*in[3] + j*stride[1]
				best := corner
				for p := range kernel[0] {
					for q := range kernel[1] {
						at := corner + p*in[3] + q
						if x[at] > x[best] || x[at] != x[at] && x[best] == x[best] {
							best = at
						}
					}
				}
				visit((plane*out[2]+i)*out[3]+j, best)
			}
		}
	}
}

func (c *call[T]) maxPool() {
	x := c.in[0]
	c.windows(x, c.inShape[0], c.outShape[0], func(to, from int) { c.out[0][to] = x[from] })
}

func (c *call[T]) maxPoolBackward() {
	dy, dx := c.in[2], c.out[0]
	fill(dx, 0)
	c.windows(c.in[0], c.inShape[0], c.inShape[1], func(to, from int) { dx[from] += dy[to] })
}

func (c *call[T]) concat() {
	y, n := c.out[0], c.outShape[0][0]
	a, b := len(c.in[0])/n, len(c.in[1])/n // elements a sample
	for i := range n {
		copy(y[i*(a+b):], c.in[0][i*a:(i+1)*a])
		copy(y[i*(a+b)+a:], c.in[1][i*b:(i+1)*b])
	}
}

func (c *call[T]) slice() {
	n := c.outShape[0][0]
	offset := c.attr.Offset * c.outShape[0][2] * c.outShape[0][3]
	from, to := len(c.in[0])/n, len(c.out[0])/n // elements a sample
	for i := range n {
		copy(c.out[0][i*to:(i+1)*to], c.in[0][i*from+offset:])
	}
}

func (c *call[T]) add() {
	for i, v := range c.in[0] {
		c.out[0][i] = v + c.in[1][i]
	}
}

// bceWithLogits: mean of max(z,0) − z·t + log(1+e^−|z|), which no z overflows.
func (c *call[T]) bceWithLogits() {
	sum := 0.0
	for i, v := range c.in[0] {
		z, t := float64(v), float64(c.in[1][i])
		sum += math.Max(z, 0) - z*t + math.Log1p(math.Exp(-math.Abs(z)))
	}
	c.out[0][0] = T(sum / float64(len(c.in[0])))
}

func (c *call[T]) bceWithLogitsBackward() {
	scale := float64(c.in[2][0]) / float64(len(c.in[0]))
	for i, z := range c.in[0] {
		c.out[0][i] = T(scale * (1/(1+math.Exp(-float64(z))) - float64(c.in[1][i])))
	}
}
