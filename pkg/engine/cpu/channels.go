package cpu

import "lockstep/pkg/engine/cpu/internal/kernel"

// moveChannels copies channels [from, from+count) of one image of src, whose
// planes have so many pixels, to channels [to, to+count) of an image of dst.
// The channels of dst's blocks that are not written are left as they are.
func moveChannels(dst, src []float32, to, from, count, pixels int) {
	for done := 0; done < count; {
		d, s := (to+done)%kernel.Lanes, (from+done)%kernel.Lanes
		n := min(count-done, kernel.Lanes-d, kernel.Lanes-s)
		out := dst[(to+done)/kernel.Lanes*pixels*kernel.Lanes:][:pixels*kernel.Lanes]
		in := src[(from+done)/kernel.Lanes*pixels*kernel.Lanes:][:pixels*kernel.Lanes]
		if n == kernel.Lanes {
			copy(out, in)
		} else {
			for i := 0; i < len(out); i += kernel.Lanes {
				copy(out[i+d:i+d+n], in[i+s:i+s+n])
			}
		}
		done += n
	}
}

// clearPadding zeroes the last block of an image with so many channels where
// that block is not full.
func clearPadding(dst []float32, channels, pixels int) {
	if channels%kernel.Lanes != 0 {
		clear(dst[channels/kernel.Lanes*pixels*kernel.Lanes:][:pixels*kernel.Lanes])
	}
}

// concat puts the channels of two activations one after another.
func (x *builder) concat(c call) ([]task, error) {
	a, b, y := c.in[0], c.in[1], c.out[0]
	if a.layout != activationLayout || b.layout != activationLayout ||
		!y.is(a.Shape[0], a.Shape[1]+b.Shape[1], a.Shape[2], a.Shape[3]) ||
		!y.is(b.Shape[0], a.Shape[1]+b.Shape[1], b.Shape[2], b.Shape[3]) {
		return nil, c.errorf("it takes activations that differ in their channels alone, and writes the sum of these")
	}
	if c.fused {
		return nil, nil // its readers take the two from where they are
	}
	pixels := y.Shape[2] * y.Shape[3]
	return []task{{y.Shape[0], func(_ *worker, lo, hi int) {
		for n := lo; n < hi; n++ {
			out := image(y, n)
			clearPadding(out, y.Shape[1], pixels)
			moveChannels(out, image(a, n), 0, 0, a.Shape[1], pixels)
			moveChannels(out, image(b, n), a.Shape[1], 0, b.Shape[1], pixels)
		}
	}}}, nil
}

// slice takes some channels of an activation.
func (x *builder) slice(c call) ([]task, error) {
	in, y := c.in[0], c.out[0]
	if in.layout == weightLayout && c.Attr.Offset == 0 {
		return x.reshape(c)
	}
	if in.layout != activationLayout || y.layout != activationLayout ||
		!y.is(in.Shape[0], y.Shape[1], in.Shape[2], in.Shape[3]) ||
		c.Attr.Offset < 0 || c.Attr.Offset+y.Shape[1] > in.Shape[1] {
		return nil, c.errorf("it takes channels %d to %d of an activation", c.Attr.Offset, c.Attr.Offset+y.Shape[min(1, len(y.Shape)-1)]-1)
	}
	if c.fused {
		return nil, nil // its readers take it from where it is
	}
	pixels := y.Shape[2] * y.Shape[3]
	return []task{{y.Shape[0], func(_ *worker, lo, hi int) {
		for n := lo; n < hi; n++ {
			out := image(y, n)
			clearPadding(out, y.Shape[1], pixels)
			moveChannels(out, image(in, n), 0, c.Attr.Offset, y.Shape[1], pixels)
		}
	}}}, nil
}

// image is the memory of image n of an activation.
func image(o operand, n int) []float32 {
	size := blocks(o.Shape[1]) * o.Shape[2] * o.Shape[3] * kernel.Lanes
	return o.data[n*size:][:size]
}
