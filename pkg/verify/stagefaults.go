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

// staleGradients repeats the previous message to earlier stages.
func staleGradients(b, previous device.Buffer, from, to int) {
	if to < from {
		copy(b.F32, previous.F32)
		copy(b.F64, previous.F64)
	}
}

// staleActivations repeats the previous message to later stages.
func staleActivations(b, previous device.Buffer, from, to int) {
	if to > from {
		copy(b.F32, previous.F32)
		copy(b.F64, previous.F64)
	}
}

// breakMessages returns a fault that changes each message between two stages.
func breakMessages(change messageChange) fault {
	return func(p *train.WorkerOptions) {
		breakGroup(p, func(g collective.Group) collective.Group {
			return &changedMessages{Group: g, change: change, previous: make([]device.Buffer, g.Size())}
		})
	}
}

// keepNorms makes each stage clip its gradients by its own norm.
func keepNorms(p *train.WorkerOptions) {
	breakGroup(p, func(g collective.Group) collective.Group { return withoutSums{g} })
}

func breakGroup(p *train.WorkerOptions, change func(g collective.Group) collective.Group) {
	p.Strategy = func(ctx context.Context, c strategy.Config, gpu *engine.Accelerator, group collective.Group) (strategy.Strategy, error) {
		return strategy.New(ctx, c, gpu, change(group))
	}
}

type changedMessages struct {
	collective.Group
	change   messageChange
	previous []device.Buffer // by rank. A strategy sends to each rank in one goroutine.
}

func (g *changedMessages) Send(ctx context.Context, b device.Buffer, to int) error {
	sent := device.Buffer{F32: slices.Clone(b.F32), F64: slices.Clone(b.F64)}
	g.change(sent, g.previous[to], g.Rank(), to)
	g.previous[to] = device.Buffer{F32: slices.Clone(b.F32), F64: slices.Clone(b.F64)}
	return g.Group.Send(ctx, sent, to)
}

// withoutSums is a group whose sums have only this rank's values.
type withoutSums struct{ collective.Group }

func (withoutSums) AllReduce(context.Context, device.Buffer) error { return nil }
