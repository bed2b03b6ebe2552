package verify

import (
	"context"
	"slices"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/strategy"
	"lockstep/pkg/train"
)

// messageChange changes a message between stages of a pipeline in place. previous is a copy of the
// message before it to the same stage; empty for the first.
type messageChange func(b, previous device.Buffer, from, to int)

// zeroGradients zeroes messages to earlier stages.
func zeroGradients(b, _ device.Buffer, from, to int) {
	if to < from {
		clear(b.F32)
		clear(b.F64)
	}
}

// repeatGradients repeats the previous message to earlier stages.
func repeatGradients(b, previous device.Buffer, from, to int) {
	if to < from {
		copy(b.F32, previous.F32)
		copy(b.F64, previous.F64)
	}
}

// repeatActivations repeats the previous message to later stages.
func repeatActivations(b, previous device.Buffer, from, to int) {
	if to > from {
		copy(b.F32, previous.F32)
		copy(b.F64, previous.F64)
	}
}

// newMessageFault returns a fault that changes each message between two stages.
func newMessageFault(change messageChange) faultInjector {
	return func(p *train.WorkerOptions) {
		replaceGroup(p, func(g collective.Group) collective.Group {
			return &messageChangingGroup{Group: g, change: change, previous: make([]device.Buffer, g.Size())}
		})
	}
}

// clipByLocalNorm makes each stage clip its gradients by its own norm.
func clipByLocalNorm(p *train.WorkerOptions) {
	replaceGroup(p, func(g collective.Group) collective.Group { return localSumGroup{g} })
}

func replaceGroup(p *train.WorkerOptions, change func(g collective.Group) collective.Group) {
	p.Strategy = func(ctx context.Context, c strategy.Config, gpu *engine.Accelerator, group collective.Group) (strategy.Strategy, error) {
		return strategy.New(ctx, c, gpu, change(group))
	}
}

type messageChangingGroup struct {
	collective.Group
	change   messageChange
	previous []device.Buffer // by rank. A strategy sends to each rank in one goroutine.
}

func (g *messageChangingGroup) Send(ctx context.Context, b device.Buffer, to int) error {
	sent := device.Buffer{F32: slices.Clone(b.F32), F64: slices.Clone(b.F64)}
	g.change(sent, g.previous[to], g.Rank(), to)
	g.previous[to] = device.Buffer{F32: slices.Clone(b.F32), F64: slices.Clone(b.F64)}
	return g.Group.Send(ctx, sent, to)
}

// localSumGroup is a group whose sums have only this rank's values.
type localSumGroup struct{ collective.Group }

func (localSumGroup) AllReduce(context.Context, device.Buffer) error { return nil }
