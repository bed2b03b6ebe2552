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

// messageChange changes a message from one stage of a pipeline to another in place. previous
// is a copy of the message before it to the same stage; empty for the first.
type messageChange func(b, previous device.Buffer, from, to int)

// zeroGradients replaces messages to earlier stages by zeros.
func zeroGradients(b, _ device.Buffer, from, to int) {
	if to < from {
		clear(b.F32)
		clear(b.F64)
	}
}

// staleGradients replaces messages to earlier stages by the message before.
func staleGradients(b, previous device.Buffer, from, to int) {
	if to < from {
		copy(b.F32, previous.F32)
		copy(b.F64, previous.F64)
	}
}

// staleActivations replaces messages to later stages by the message before.
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

// breakGroup makes the strategy use a changed group.
func breakGroup(p *train.WorkerOptions, change func(g collective.Group) collective.Group) {
	p.Strategy = func(ctx context.Context, c strategy.Config, e engine.Engine, group collective.Group) (strategy.Strategy, error) {
		return strategy.New(ctx, c, e, change(group))
	}
}

// changedMessages is a group that changes each message.
type changedMessages struct {
	collective.Group
	change   messageChange
	previous []device.Buffer // by rank. A strategy sends to each rank in one goroutine.
}

// Send sends b after a change.
func (g *changedMessages) Send(ctx context.Context, b device.Buffer, to int) error {
	sent := device.Buffer{F32: slices.Clone(b.F32), F64: slices.Clone(b.F64)}
	g.change(sent, g.previous[to], g.Rank(), to)
	g.previous[to] = device.Buffer{F32: slices.Clone(b.F32), F64: slices.Clone(b.F64)}
	return g.Group.Send(ctx, sent, to)
}

// withoutSums is a group whose sums have only the values of this rank.
type withoutSums struct{ collective.Group }

// AllReduce leaves b unchanged.
func (withoutSums) AllReduce(context.Context, device.Buffer) error { return nil }
