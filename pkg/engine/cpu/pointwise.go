package cpu

import (
	"slices"

	"lockstep/pkg/internal/plan"
)

// pieceFloats is the number of floats of an item of elementwise work.
const pieceFloats = 8 * 1024

// pointwise prepares operations that treat every float alike: padding stays
// zero, for they take zeros to zero.
func (x *executable) pointwise(c call) ([]task, error) {
	y := c.out[0]
	for _, o := range c.in[:len(c.In)] {
		if !slices.Equal(o.Shape, y.Shape) || o.layout != y.layout {
			return nil, c.errorf("all tensors must have one shape, and none may be weights where another is an activation")
		}
	}
	n := y.layout.size(y.Shape)
	a, b := c.in[0].data, c.in[len(c.In)-1].data
	kernels := x.engine.kernels
	run := func(at, n int) { kernels.add(&a[at], &b[at], &y.data[at], n) }
	switch c.Op {
	case plan.OpReLU:
		run = func(at, n int) { kernels.relu(&a[at], &y.data[at], n) }
	case plan.OpReLUBackward:
		run = func(at, n int) { kernels.reluGrad(&a[at], &b[at], &y.data[at], n) }
	}
	return []task{{ceilDiv(n, pieceFloats), func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			run(i*pieceFloats, min(pieceFloats, n-i*pieceFloats))
		}
	}}}, nil
}
