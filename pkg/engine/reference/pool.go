package reference

// forEachPoolWindow calls visit for each window of a pooling. result is the index of the
// window's result. inputs contains the indexes of the inputs that the window covers, in row
// order, −1 for padding.
func (c *kernelCall[T]) forEachPoolWindow(in, out []int, visit func(result int, inputs []int)) {
	kernel, stride, pad := toDepthHeightWidth(c.attr.Kernel, 1), toDepthHeightWidth(c.attr.Stride, 1), toDepthHeightWidth(c.attr.Pad, 0)
	size, result := toDepthHeightWidth(in[2:], 1), toDepthHeightWidth(out[2:], 1)
	from := make([]int, product(kernel))
	for to := range out[0] * out[1] * product(result) {
		plane := to / product(result)
		at := [3]int{to / (result[1] * result[2]) % result[0], to / result[2] % result[1], to % result[2]}
		for i := range from {
			tap := [3]int{i / (kernel[1] * kernel[2]), i / kernel[2] % kernel[1], i % kernel[2]}
			from[i] = plane
			for axis := range 3 {
				p := at[axis]*stride[axis] + tap[axis] - pad[axis]
				if from[i] < 0 || p < 0 || p >= size[axis] {
					from[i] = -1
					continue
				}
				from[i] = from[i]*size[axis] + p
			}
		}
		visit(to, from)
	}
}

// forEachMaximum calls visit for each window of a pooling. result is the index of the window's
// result. v is the maximum of the window, and input is the index of the first element with that
// value, in row order. NaN counts as the maximum. Padding is ignored, or counts as zeros if
// Attr.PadZeros is set. input is −1 if the first maximum is padding.
func (c *kernelCall[T]) forEachMaximum(x []T, in, out []int, visit func(result, input int, v T)) {
	c.forEachPoolWindow(in, out, func(to int, from []int) {
		best, top, found := -1, T(0), false
		for _, at := range from {
			var v T
			switch {
			case at >= 0:
				v = x[at]
			case !c.attr.PadZeros:
				continue
			}
			if !found || v > top || v != v && top == top {
				best, top, found = at, v, true
			}
		}
		visit(to, best, top)
	})
}

func (c *kernelCall[T]) maxPool() {
	c.forEachMaximum(c.in[0], c.inShape[0], c.outShape[0], func(to, _ int, v T) { c.out[0][to] = v })
}

func (c *kernelCall[T]) maxPoolBackward() {
	dy, dx := c.in[2], c.out[0]
	fill(dx, 0)
	c.forEachMaximum(c.in[0], c.inShape[0], c.inShape[1], func(to, from int, _ T) {
		if from >= 0 {
			dx[from] += dy[to]
		}
	})
}

func (c *kernelCall[T]) avgPool() {
	x := c.in[0]
	c.forEachPoolWindow(c.inShape[0], c.outShape[0], func(to int, from []int) {
		sum := 0.0
		for _, at := range from {
			sum += float64(x[at])
		}
		c.out[0][to] = T(sum / float64(len(from)))
	})
}

func (c *kernelCall[T]) avgPoolBackward() {
	dy, dx := c.in[0], c.out[0]
	fill(dx, 0)
	c.forEachPoolWindow(c.outShape[0], c.inShape[0], func(to int, from []int) {
		for _, at := range from {
			dx[at] += dy[to] / T(len(from))
		}
	})
}

func (c *kernelCall[T]) globalAvgPool() {
	x := c.in[0]
	area := spatialElementCount(c.inShape[0])
	for i := range c.out[0] {
		sum := 0.0
		for _, v := range x[i*area : (i+1)*area] {
			sum += float64(v)
		}
		c.out[0][i] = T(sum / float64(area))
	}
}

func (c *kernelCall[T]) globalAvgPoolBackward() {
	area := spatialElementCount(c.outShape[0])
	for i, d := range c.in[0] {
		fill(c.out[0][i*area:(i+1)*area], d/T(area))
	}
}
