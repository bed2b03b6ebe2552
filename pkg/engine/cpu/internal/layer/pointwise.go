package layer

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
	"lockstep/pkg/internal/plan"
)

// buildPointwise builds an elementwise operation. All of them map zero operands to zero, so
// that padding remains zero.
func (x *Builder) buildPointwise(c Operation) ([]threads.Task, error) {
	y := c.Outputs[0]
	if c.Fused {
		return nil, nil // the gradient of a max pooling has computed the sum
	}
	for _, o := range c.Inputs[:len(c.In)] {
		if !slices.Equal(o.Shape, y.Shape) || o.Layout != y.Layout {
			return nil, c.errorf("want tensors of the same shape, either all weights or all activations")
		}
	}
	if c.Op == plan.OpAdd && (c.Inputs[0].Data == nil || c.Inputs[1].Data == nil) {
		return x.buildPlanewiseAdd(c), nil
	}
	n := y.Layout.FloatCount(y.Shape)
	a, b := c.Inputs[0].Data, c.Inputs[len(c.In)-1].Data
	kernels := x.Set
	run := func(at, n int) { kernels.Add(&a[at], &b[at], &y.Data[at], n) }
	slope := float32(c.Attr.Slope)
	switch c.Op {
	case plan.OpReLU:
		run = func(at, n int) { kernels.ReLU(&a[at], &y.Data[at], n) }
	case plan.OpReLUBackward:
		run = func(at, n int) { kernels.ReLUGrad(&a[at], &b[at], &y.Data[at], n) }
	case plan.OpLeakyReLU:
		run = func(at, n int) { kernels.Leaky(&a[at], &a[at], &y.Data[at], &slope, n) }
	case plan.OpLeakyReLUBackward:
		run = func(at, n int) { kernels.Leaky(&a[at], &b[at], &y.Data[at], &slope, n) }
	case plan.OpTanhBackward:
		run = func(at, n int) { kernels.TanhGrad(&a[at], &b[at], &y.Data[at], n) }
	case plan.OpTanh:
		x.ReserveScratch(workspace.TaskItemFloats)
		return x.buildTanh(a, y.Data, n), nil
	}
	return []threads.Task{{Items: tensor.CeilDiv(n, workspace.TaskItemFloats), Run: func(_ *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			run(i*workspace.TaskItemFloats, min(workspace.TaskItemFloats, n-i*workspace.TaskItemFloats))
		}
	}}}, nil
}

// buildPlanewiseAdd returns a task that adds two activations plane by plane. It is needed if
// one of them is a slice of a larger activation and has no memory of its own.
func (x *Builder) buildPlanewiseAdd(c Operation) []threads.Task {
	a, b, y := c.Inputs[0], c.Inputs[1], c.Outputs[0]
	channels := tensor.ChannelBlockCount(y.Shape[1])
	return []threads.Task{{Items: y.Shape[0] * channels, Run: func(_ *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			from, _ := a.ChannelBlock(i/channels, i%channels)
			other, _ := b.ChannelBlock(i/channels, i%channels)
			to, _ := y.ChannelBlock(i/channels, i%channels)
			x.Set.Add(&from[0], &other[0], &to[0], y.PlaneFloats())
		}
	}}}
}

// buildTanh computes tanh(x) = 2·(σ(2x) − 1/2), where σ is the logistic function.
// kernel.Set.BCEGrad computes σ.
func (x *Builder) buildTanh(a, y []float32, n int) []threads.Task {
	halves, two := kernel.NewAlignedFloats(workspace.TaskItemFloats), float32(2)
	for i := range halves {
		halves[i] = 0.5
	}
	kernels := x.Set
	return []threads.Task{{Items: tensor.CeilDiv(n, workspace.TaskItemFloats), Run: func(w *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			at, n := i*workspace.TaskItemFloats, min(workspace.TaskItemFloats, n-i*workspace.TaskItemFloats)
			kernels.Add(&a[at], &a[at], &w.Scratch[0], n)
			kernels.BCEGrad(&w.Scratch[0], &halves[0], &y[at], &two, n)
		}
	}}}
}
