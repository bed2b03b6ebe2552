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

// stageMessageChange changes the message b between two stages of a pipeline in place. from and to are the
// ranks of the stages. previous is a copy of the message before b to the same stage; it is empty for
// the first message.
type stageMessageChange func(b, previous device.Buffer, from, to int)

// zeroGradients is a stageMessageChange that sets gradients, which go to earlier stages, to zero.
func zeroGradients(b, _ device.Buffer, from, to int) {
	if to < from {
		clear(b.F32)
		clear(b.F64)
	}
}

// repeatGradients is a stageMessageChange that replaces gradients, which go to earlier stages, by those
// of the previous message.
func repeatGradients(b, previous device.Buffer, from, to int) {
	if to < from {
		copy(b.F32, previous.F32)
		copy(b.F64, previous.F64)
	}
}

// repeatActivations is a stageMessageChange that replaces activations, which go to later stages, by those
// of the previous message.
func repeatActivations(b, previous device.Buffer, from, to int) {
	if to > from {
		copy(b.F32, previous.F32)
		copy(b.F64, previous.F64)
	}
}

// newMessageFault returns a fault that changes each message between two stages.
func newMessageFault(change stageMessageChange) faultInjector {
	return func(p *train.WorkerOptions) {
		replaceCollectiveGroup(p, func(g collective.Group) collective.Group {
			return &messageChangingGroup{Group: g, change: change, previous: make([]device.Buffer, g.Size())}
		})
	}
}

// clipByLocalNorm makes each stage clip its gradients by its own norm, instead of the norm of all stages.
func clipByLocalNorm(p *train.WorkerOptions) {
	replaceCollectiveGroup(p, func(g collective.Group) collective.Group { return localSumGroup{g} })
}

func replaceCollectiveGroup(p *train.WorkerOptions, change func(g collective.Group) collective.Group) {
	p.Strategy = func(ctx context.Context, c strategy.Config, gpu *engine.Accelerator, group collective.Group) (strategy.Strategy, error) {
		return strategy.New(ctx, c, gpu, change(group))
	}
}

type messageChangingGroup struct {
	collective.Group
	change   stageMessageChange
	previous []device.Buffer // by rank. A strategy sends to each rank in one goroutine.
}

func (g *messageChangingGroup) Send(ctx context.Context, b device.Buffer, to int) error {
	sent := device.Buffer{F32: slices.Clone(b.F32), F64: slices.Clone(b.F64)}
	g.change(sent, g.previous[to], g.Rank(), to)
	g.previous[to] = device.Buffer{F32: slices.Clone(b.F32), F64: slices.Clone(b.F64)}
	return g.Group.Send(ctx, sent, to)
}

// localSumGroup is a group whose AllReduce does nothing, so that each rank keeps its own values.
type localSumGroup struct{ collective.Group }

func (localSumGroup) AllReduce(context.Context, device.Buffer) error { return nil }
