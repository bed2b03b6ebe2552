package cpu

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/internal/plan"
)

// operand is a tensor of a kernel with its memory. An absent optional operand
// has id −1. Its Shape is folded.
type operand struct {
	plan.Tensor
	logical []int  // shape
	space   [3]int // depth, height and width, of the window where it is weights
	id      int
	layout  layout
	data    []float32 // nil where it has no memory of its own
	pieces  []piece   // of an activation
}

// present says whether the operand is there.
func (o operand) present() bool { return o.id >= 0 }

// is says whether o is an activation of shape [n,c,h,w].
func (o operand) is(n, c, h, w int) bool {
	return o.layout == activationLayout && slices.Equal(o.Shape, []int{n, c, h, w})
}

// vector says whether o has shape [n].
func (o operand) vector(n int) bool { return slices.Equal(o.Shape, []int{n}) }

// absentOr says whether an optional vector is absent or has shape [n].
func (o operand) absentOr(n int) bool { return !o.present() || o.vector(n) }

// set writes element i of a vector, where there is one.
func (o operand) set(i int, v float32) {
	if o.present() {
		o.data[i] = v
	}
}

// piece is where some successive channel blocks of an activation lie. Most
// activations are one piece of memory of their own; a concatenation may be its
// parts where they are, a slice a piece of something larger, and a batch norm's
// output what it normalises, with the constants to do so when it is read.
type piece struct {
	first, count int       // channel blocks of the activation
	data         []float32 // from block first of image 0 on
	image        int       // floats from image to image
	norm         []float32 // constants of kernel.Set.Normalize for each block; nil: none
}

// plane is the number of floats of a channel block of an image.
func (o operand) plane() int { return o.Shape[2] * o.Shape[3] * kernel.Lanes }

// whole says whether o is one piece that is read as it lies.
func (o operand) whole() bool { return len(o.pieces) == 1 && o.pieces[0].norm == nil }

// block is the memory of channel block c of image n, from its first pixel on,
// and the constants to normalise it with, nil where there are none.
func (o operand) block(n, c int) (data, norm []float32) {
	for i := range o.pieces {
		p := &o.pieces[i]
		if c >= p.first+p.count {
			continue
		}
		at := c - p.first
		if p.norm != nil {
			norm = p.norm[at*kernel.NormFloats:]
		}
		return p.data[n*p.image+at*o.plane():], norm
	}
	return nil, nil // there is no such block
}
