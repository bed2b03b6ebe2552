package layer

import (
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
)

// moveChannels copies channels [from, from+count) of one image of src, whose
// planes have so many pixels, to channels [to, to+count) of an image of dst.
// The channels of dst's blocks that are not written are left as they are.
func moveChannels(dst, src []float32, to, from, count, pixels int) {
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

// clearPadding zeroes the last block of an image with so many channels where
// that block is not full.
func clearPadding(dst []float32, channels, pixels int) {
	if channels%lanes != 0 {
		clear(dst[channels/lanes*pixels*lanes:][:pixels*lanes])
	}
}

// concat puts the channels of two activations one after another.
func (x *Builder) concat(c Call) ([]threads.Task, error) {
	a, b, y := c.Inputs[0], c.Inputs[1], c.Outputs[0]
	if a.Layout != tensor.ActivationLayout || b.Layout != tensor.ActivationLayout ||
		!y.IsActivation(a.Shape[0], a.Shape[1]+b.Shape[1], a.Shape[2], a.Shape[3]) ||
		!y.IsActivation(b.Shape[0], a.Shape[1]+b.Shape[1], b.Shape[2], b.Shape[3]) {
		return nil, c.errorf("it takes activations that differ in their channels alone, and writes the sum of these")
	}
	if c.Fused {
		return nil, nil // its readers take the two from where they are
	}
	pixels := y.Shape[2] * y.Shape[3]
	return []threads.Task{{Items: y.Shape[0], Run: func(_ *threads.Worker, lo, hi int) {
		for n := lo; n < hi; n++ {
			out := image(y, n)
			clearPadding(out, y.Shape[1], pixels)
			moveChannels(out, image(a, n), 0, 0, a.Shape[1], pixels)
			moveChannels(out, image(b, n), a.Shape[1], 0, b.Shape[1], pixels)
		}
	}}}, nil
}

// slice takes some channels of an activation.
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
		return nil, nil // its readers take it from where it is
	}
	pixels := y.Shape[2] * y.Shape[3]
	return []threads.Task{{Items: y.Shape[0], Run: func(_ *threads.Worker, lo, hi int) {
		for n := lo; n < hi; n++ {
			out := image(y, n)
			clearPadding(out, y.Shape[1], pixels)
			moveChannels(out, image(in, n), 0, c.Attr.Offset, y.Shape[1], pixels)
		}
	}}}, nil
}

// image is the memory of image n of an activation.
func image(o tensor.Operand, n int) []float32 {
	size := tensor.Blocks(o.Shape[1]) * o.Shape[2] * o.Shape[3] * lanes
	return o.Data[n*size:][:size]
}
