package tensor

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/internal/plan"
)

// Operand is a tensor that an operation reads or writes, with its memory. Its Shape has
// four dimensions or one (see To4D). An absent optional operand has the ID −1.
type Operand struct {
	plan.Tensor
	Logical []int  // the shape as the program has it
	Space   [3]int // depth, height and width; of weights, those of the window
	ID      int
	Layout  Layout
	Data    []float32     // nil if it has no memory of its own
	Pieces  []MemoryPiece // of an activation only
}

// IsPresent reports whether the operation has this operand.
func (o Operand) IsPresent() bool { return o.ID >= 0 }

// HasActivationShape reports whether o is an activation of shape [n,c,h,w].
func (o Operand) HasActivationShape(n, c, h, w int) bool {
	return o.Layout == ActivationLayout && slices.Equal(o.Shape, []int{n, c, h, w})
}

// IsVector reports whether o has shape [n].
func (o Operand) IsVector(n int) bool { return slices.Equal(o.Shape, []int{n}) }

// IsAbsentOrVector reports whether o, an optional vector, is absent or has shape [n].
func (o Operand) IsAbsentOrVector(n int) bool { return !o.IsPresent() || o.IsVector(n) }

// SetElement sets element i of a vector to v. It does nothing if o is absent.
func (o Operand) SetElement(i int, v float32) {
	if o.IsPresent() {
		o.Data[i] = v
	}
}

// MemoryPiece is the memory of successive channel blocks of an activation. Most activations
// consist of one piece. A concatenation may consist of the pieces of its operands, a slice
// may be part of a larger activation, and the output of a batch norm may be its input
// together with the constants to normalize it.
type MemoryPiece struct {
	First, Count int       // channel blocks of the activation
	Data         []float32 // begins with block First of image 0
	Image        int       // distance of images in floats
	Norm         []float32 // constants of kernel.Set.Normalize for each block; nil if there are none
}

// PlaneFloats returns the number of floats of one channel block of one image.
func (o *Operand) PlaneFloats() int { return o.Shape[2] * o.Shape[3] * lanes }

// IsSinglePiece reports whether o is one piece of memory that readers need not normalize.
func (o Operand) IsSinglePiece() bool { return len(o.Pieces) == 1 && o.Pieces[0].Norm == nil }

// ChannelBlock returns the memory of channel block c of image n, beginning with its first pixel. norm
// contains the constants with which the reader must normalize it, or is nil.
func (o *Operand) ChannelBlock(n, c int) (data, norm []float32) {
	for i := range o.Pieces {
		p := &o.Pieces[i]
		if c >= p.First+p.Count {
			continue
		}
		at := c - p.First
		if p.Norm != nil {
			norm = p.Norm[at*kernel.NormConstantFloats:]
		}
		return p.Data[n*p.Image+at*o.PlaneFloats():], norm
	}
	return nil, nil // there is no such block
}
