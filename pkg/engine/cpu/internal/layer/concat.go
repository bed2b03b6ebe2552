package layer

import (
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
)

// copyChannels copies channels [from, from+count) of the image src to channels
// [to, to+count) of the image dst. Both have planes of the given number of pixels.
// Other channels of dst keep their values.
func copyChannels(dst, src []float32, to, from, count, pixels int) {
	for done := 0; done < count; {
		d, s := (to+done)%lanes, (from+done)%lanes
		n := min(count-done, lanes-d, lanes-s)
		out := dst[(to+done)/lanes*pixels*lanes:][:pixels*lanes]
		in := src[(from+done)/lanes*pixels*lanes:][:pixels*lanes]
		if n == lanes {
			copy(out, in)
		} else {
			for i := 0; i < len(out); i += lanes {
				copy(out[i+d:i+d+n], in[i+s:i+s+n])
			}
		}
		done += n
	}
}

// clearPadding zeroes the last channel block of the image dst if its channels do not
// fill that block.
func clearPadding(dst []float32, channels, pixels int) {
	if channels%lanes != 0 {
		clear(dst[channels/lanes*pixels*lanes:][:pixels*lanes])
	}
}

// concat prepares the concatenation of the channels of two activations.
func (x *Builder) concat(c Call) ([]threads.Task, error) {
	a, b, y := c.Inputs[0], c.Inputs[1], c.Outputs[0]
	if a.Layout != tensor.ActivationLayout || b.Layout != tensor.ActivationLayout ||
		!y.IsActivation(a.Shape[0], a.Shape[1]+b.Shape[1], a.Shape[2], a.Shape[3]) ||
		!y.IsActivation(b.Shape[0], a.Shape[1]+b.Shape[1], b.Shape[2], b.Shape[3]) {
		return nil, c.errorf("it takes activations that differ in their channels alone, and writes the sum of these")
	}
	if c.Fused {
		return nil, nil // its readers read the two operands
	}
	pixels := y.Shape[2] * y.Shape[3]
	return []threads.Task{{Items: y.Shape[0], Run: func(_ *threads.Worker, lo, hi int) {
		for n := lo; n < hi; n++ {
			out := image(y, n)
			clearPadding(out, y.Shape[1], pixels)
			copyChannels(out, image(a, n), 0, 0, a.Shape[1], pixels)
			copyChannels(out, image(b, n), a.Shape[1], 0, b.Shape[1], pixels)
		}
	}}}, nil
}

// slice prepares the copy of some channels of an activation.
func (x *Builder) slice(c Call) ([]threads.Task, error) {
	in, y := c.Inputs[0], c.Outputs[0]
	if in.Layout == tensor.WeightLayout && c.Attr.Offset == 0 {
		return x.reshape(c)
	}
	if in.Layout != tensor.ActivationLayout || y.Layout != tensor.ActivationLayout ||
		!y.IsActivation(in.Shape[0], y.Shape[1], in.Shape[2], in.Shape[3]) ||
		c.Attr.Offset < 0 || c.Attr.Offset+y.Shape[1] > in.Shape[1] {
		return nil, c.errorf("it takes channels %d to %d of an activation", c.Attr.Offset, c.Attr.Offset+y.Shape[min(1, len(y.Shape)-1)]-1)
	}
	if c.Fused {
		return nil, nil // its readers read the operand
	}
	pixels := y.Shape[2] * y.Shape[3]
	return []threads.Task{{Items: y.Shape[0], Run: func(_ *threads.Worker, lo, hi int) {
		for n := lo; n < hi; n++ {
			out := image(y, n)
			clearPadding(out, y.Shape[1], pixels)
			copyChannels(out, image(in, n), 0, c.Attr.Offset, y.Shape[1], pixels)
		}
	}}}, nil
}

// image returns the memory of image n of an activation.
func image(o tensor.Operand, n int) []float32 {
	size := tensor.Blocks(o.Shape[1]) * o.Shape[2] * o.Shape[3] * lanes
	return o.Data[n*size:][:size]
}
