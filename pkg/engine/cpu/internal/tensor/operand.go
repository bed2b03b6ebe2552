package tensor

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/internal/plan"
)

// Operand is a tensor of a kernel with its memory. An absent optional operand
// has id −1. Its Shape is folded.
type Operand struct {
	plan.Tensor
	Logical []int  // shape
	Space   [3]int // depth, height and width, of the window where it is weights
	ID      int
	Layout  Layout
	Data    []float32 // nil where it has no memory of its own
	Pieces  []Piece   // of an activation
}

// Present says whether the operand is there.
func (o Operand) Present() bool { return o.ID >= 0 }

// is says whether o is an activation of shape [n,c,h,w].
func (o Operand) IsActivation(n, c, h, w int) bool {
	return o.Layout == ActivationLayout && slices.Equal(o.Shape, []int{n, c, h, w})
}

// vector says whether o has shape [n].
func (o Operand) IsVector(n int) bool { return slices.Equal(o.Shape, []int{n}) }

// AbsentOr says whether an optional vector is absent or has shape [n].
func (o Operand) AbsentOr(n int) bool { return !o.Present() || o.IsVector(n) }

// Set writes element i of a vector, where there is one.
func (o Operand) Set(i int, v float32) {
	if o.Present() {
		o.Data[i] = v
	}
}

// Piece is where some successive channel blocks of an activation lie. Most
// activations are one piece of memory of their own; a concatenation may be its
// parts where they are, a slice a piece of something larger, and a batch norm's
// output what it normalises, with the constants to do so when it is read.
type Piece struct {
	First, Count int       // channel blocks of the activation
	Data         []float32 // from block first of image 0 on
	Image        int       // floats from image to image
	Norm         []float32 // constants of kernel.Set.Normalize for each block; nil: none
}

// Plane is the number of floats of a channel block of an image.
func (o Operand) Plane() int { return o.Shape[2] * o.Shape[3] * lanes }

// Whole says whether o is one piece that is read as it lies.
func (o Operand) Whole() bool { return len(o.Pieces) == 1 && o.Pieces[0].Norm == nil }

// Block is the memory of channel block c of image n, from its first pixel on,
// and the constants to normalise it with, nil where there are none.
func (o Operand) Block(n, c int) (data, norm []float32) {
	for i := range o.Pieces {
		p := &o.Pieces[i]
		if c >= p.First+p.Count {
			continue
		}
		at := c - p.First
		if p.Norm != nil {
			norm = p.Norm[at*kernel.NormFloats:]
		}
		return p.Data[n*p.Image+at*o.Plane():], norm
	}
	return nil, nil // there is no such block
}
