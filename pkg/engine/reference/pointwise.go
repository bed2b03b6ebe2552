package reference

import "math"

// relu computes max(x, 0). It keeps NaN, so that a NaN in the network reaches the loss.
func (c *kernelCall[T]) relu() {
	for i, v := range c.in[0] {
		if v < 0 {
			v = 0
		}
		c.out[0][i] = v
	}
}

func (c *kernelCall[T]) reluBackward() {
	y, dy := c.in[0], c.in[1]
	for i, v := range y {
		if v > 0 {
			c.out[0][i] = dy[i]
		} else {
			c.out[0][i] = 0
		}
	}
}

// leakyReLU multiplies negative values by Attr.Slope.
func (c *kernelCall[T]) leakyReLU() {
	slope := T(c.attr.Slope)
	for i, v := range c.in[0] {
		if v < 0 {
			v *= slope
		}
		c.out[0][i] = v
	}
}

func (c *kernelCall[T]) leakyReLUBackward() {
	y, dy, slope := c.in[0], c.in[1], T(c.attr.Slope)
	for i, v := range y {
		if v > 0 {
			c.out[0][i] = dy[i]
		} else {
			c.out[0][i] = slope * dy[i]
		}
	}
}

func (c *kernelCall[T]) tanh() {
	for i, v := range c.in[0] {
		c.out[0][i] = T(math.Tanh(float64(v)))
	}
}

func (c *kernelCall[T]) tanhBackward() {
	y, dy := c.in[0], c.in[1]
	for i, v := range y {
		c.out[0][i] = dy[i] * (1 - v*v)
	}
}

func (c *kernelCall[T]) concatChannels() {
	y, n := c.out[0], c.outShape[0][0]
	a, b := len(c.in[0])/n, len(c.in[1])/n // elements per sample
	for i := range n {
		copy(y[i*(a+b):], c.in[0][i*a:(i+1)*a])
		copy(y[i*(a+b)+a:], c.in[1][i*b:(i+1)*b])
	}
}

func (c *kernelCall[T]) sliceChannels() {
	n := c.outShape[0][0]
	offset := c.attr.Offset * spatialElementCount(c.outShape[0])
	from, to := len(c.in[0])/n, len(c.out[0])/n // elements per sample
	for i := range n {
		copy(c.out[0][i*to:(i+1)*to], c.in[0][i*from+offset:])
	}
}

// reshape copies the input to the output. In row-major order, the order of elements does not
// depend on the shape.
func (c *kernelCall[T]) reshape() { copy(c.out[0], c.in[0]) }

// forEachPaddedRow calls visit for each row of a feature map of shape inner, which is padded to
// shape outer. The arguments of visit are the index of the row's first element in the map, its
// index in the padded map, and the length of the row.
func (c *kernelCall[T]) forEachPaddedRow(inner, outer []int, visit func(inner, outer, length int)) {
	size, full, front := toDepthHeightWidth(inner[2:], 1), toDepthHeightWidth(outer[2:], 1), toDepthHeightWidth(c.attr.Pad, 0)
	for i := range inner[0] * inner[1] * size[0] * size[1] {
		plane, d, h := i/(size[0]*size[1]), i/size[1]%size[0], i%size[1]
		at := ((plane*full[0]+d+front[0])*full[1]+h+front[1])*full[2] + front[2]
		visit(i*size[2], at, size[2])
	}
}

func (c *kernelCall[T]) padFeatureMap() {
	x, y := c.in[0], c.out[0]
	fill(y, 0)
	c.forEachPaddedRow(c.inShape[0], c.outShape[0], func(inner, outer, n int) { copy(y[outer:outer+n], x[inner:]) })
}

func (c *kernelCall[T]) padBackward() {
	dy, dx := c.in[0], c.out[0]
	c.forEachPaddedRow(c.outShape[0], c.inShape[0], func(inner, outer, n int) { copy(dx[inner:inner+n], dy[outer:]) })
}

func (c *kernelCall[T]) addTensors() {
	for i, v := range c.in[0] {
		c.out[0][i] = v + c.in[1][i]
	}
}
