package layer

import (
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
)

// copyChannels copies count channels between the images src and dst, from channel srcFirst of
// src to channel dstFirst of dst. pixels is the number of pixels of a plane. The other channels
// of dst keep their values.
func copyChannels(dst, src []float32, dstFirst, srcFirst, count, pixels int) {
	for done := 0; done < count; {
		d, s := (dstFirst+done)%lanes, (srcFirst+done)%lanes
		n := min(count-done, lanes-d, lanes-s)
		out := dst[(dstFirst+done)/lanes*pixels*lanes:][:pixels*lanes]
		in := src[(srcFirst+done)/lanes*pixels*lanes:][:pixels*lanes]
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

// clearPadding zeroes the last channel block of image dst if the channels do not fill it.
func clearPadding(dst []float32, channels, pixels int) {
	if channels%lanes != 0 {
		clear(dst[channels/lanes*pixels*lanes:][:pixels*lanes])
	}
}

func (x *Builder) buildConcat(c Operation) ([]threads.Task, error) {
	a, b, y := c.Inputs[0], c.Inputs[1], c.Outputs[0]
	if a.Layout != tensor.ActivationLayout || b.Layout != tensor.ActivationLayout ||
		!y.HasActivationShape(a.Shape[0], a.Shape[1]+b.Shape[1], a.Shape[2], a.Shape[3]) ||
		!y.HasActivationShape(b.Shape[0], a.Shape[1]+b.Shape[1], b.Shape[2], b.Shape[3]) {
		return nil, c.errorf("want activations that differ only in their numbers of channels, and a result with the sum of these numbers")
	}
	if c.Fused {
		return nil, nil // its readers read the two operands
	}
	pixels := y.Shape[2] * y.Shape[3]
	return []threads.Task{{Items: y.Shape[0], Run: func(_ *threads.Worker, lo, hi int) {
		for n := lo; n < hi; n++ {
			out := imageData(y, n)
			clearPadding(out, y.Shape[1], pixels)
			copyChannels(out, imageData(a, n), 0, 0, a.Shape[1], pixels)
			copyChannels(out, imageData(b, n), a.Shape[1], 0, b.Shape[1], pixels)
		}
	}}}, nil
}

func (x *Builder) buildChannelSlice(c Operation) ([]threads.Task, error) {
	in, y := c.Inputs[0], c.Outputs[0]
	if in.Layout == tensor.WeightLayout && c.Attr.Offset == 0 {
		return x.buildReshape(c)
	}
	if in.Layout != tensor.ActivationLayout || y.Layout != tensor.ActivationLayout ||
		!y.HasActivationShape(in.Shape[0], y.Shape[1], in.Shape[2], in.Shape[3]) ||
		c.Attr.Offset < 0 || c.Attr.Offset+y.Shape[1] > in.Shape[1] {
		return nil, c.errorf("channels %d to %d are not all in the activation, or the shapes differ otherwise", c.Attr.Offset, c.Attr.Offset+y.Shape[min(1, len(y.Shape)-1)]-1)
	}
	if c.Fused {
		return nil, nil // its readers read the operand
	}
	pixels := y.Shape[2] * y.Shape[3]
	return []threads.Task{{Items: y.Shape[0], Run: func(_ *threads.Worker, lo, hi int) {
		for n := lo; n < hi; n++ {
			out := imageData(y, n)
			clearPadding(out, y.Shape[1], pixels)
			copyChannels(out, imageData(in, n), 0, c.Attr.Offset, y.Shape[1], pixels)
		}
	}}}, nil
}

func imageData(o tensor.Operand, n int) []float32 {
	size := tensor.ChannelBlockCount(o.Shape[1]) * o.Shape[2] * o.Shape[3] * lanes
	return o.Data[n*size:][:size]
}
