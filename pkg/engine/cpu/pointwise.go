package cpu

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/internal/plan"
)

// pointwise prepares operations that treat every float alike: padding stays
// zero, for they take zeros to zero.
func (x *builder) pointwise(c call) ([]task, error) {
	y := c.out[0]
	if c.fused {
		return nil, nil // the gradient of a pooling has added it up
	}
	for _, o := range c.in[:len(c.In)] {
		if !slices.Equal(o.Shape, y.Shape) || o.layout != y.layout {
			return nil, c.errorf("all tensors must have one shape, and none may be weights where another is an activation")
		}
	}
	if c.Op == plan.OpAdd && (c.in[0].data == nil || c.in[1].data == nil) {
		return x.addPieces(c), nil
	}
	n := y.layout.size(y.Shape)
	a, b := c.in[0].data, c.in[len(c.In)-1].data
	kernels := x.set
	run := func(at, n int) { kernels.Add(&a[at], &b[at], &y.data[at], n) }
	slope := float32(c.Attr.Slope)
	switch c.Op {
	case plan.OpReLU:
		run = func(at, n int) { kernels.ReLU(&a[at], &y.data[at], n) }
	case plan.OpReLUBackward:
		run = func(at, n int) { kernels.ReLUGrad(&a[at], &b[at], &y.data[at], n) }
	case plan.OpLeakyReLU:
		run = func(at, n int) { kernels.Leaky(&a[at], &a[at], &y.data[at], &slope, n) }
	case plan.OpLeakyReLUBackward:
		run = func(at, n int) { kernels.Leaky(&a[at], &b[at], &y.data[at], &slope, n) }
	case plan.OpTanhBackward:
		run = func(at, n int) { kernels.TanhGrad(&a[at], &b[at], &y.data[at], n) }
	case plan.OpTanh:
		x.needScratch(pieceFloats)
		return x.tanh(a, y.data, n), nil
	}
	return []task{{ceilDiv(n, pieceFloats), func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			run(i*pieceFloats, min(pieceFloats, n-i*pieceFloats))
		}
	}}}, nil
}

// addPieces adds activations plane by plane, of which one lies in a larger one.
func (x *builder) addPieces(c call) []task {
	a, b, y := c.in[0], c.in[1], c.out[0]
	channels := blocks(y.Shape[1])
	return []task{{y.Shape[0] * channels, func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			from, _ := a.block(i/channels, i%channels)
			other, _ := b.block(i/channels, i%channels)
			to, _ := y.block(i/channels, i%channels)
			x.set.Add(&from[0], &other[0], &to[0], y.plane())
		}
	}}}
}

// tanh is 2·(σ(2x) − 1/2), with the kernel that computes a logistic function.
func (x *builder) tanh(a, y []float32, n int) []task {
	halves, two := kernel.AlignedFloats(pieceFloats), float32(2)
	for i := range halves {
		halves[i] = 0.5
	}
	kernels := x.set
	return []task{{ceilDiv(n, pieceFloats), func(w *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			at, n := i*pieceFloats, min(pieceFloats, n-i*pieceFloats)
			kernels.Add(&a[at], &a[at], &w.scratch[0], n)
			kernels.BCEGrad(&w.scratch[0], &halves[0], &y[at], &two, n)
		}
	}}}
}
