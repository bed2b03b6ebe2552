package verify

import (
	"context"

	"lockstep/pkg/collective"
	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/strategy"
	"lockstep/pkg/train"
)

// A fault breaks data parallelism on purpose: it changes a worker's options so that the
// check of the invariant must fail. nil means no fault.
type fault func(p *train.WorkerOptions)

// equalShards makes every rank train on the samples of rank 0.
func equalShards(p *train.WorkerOptions) {
	p.Sampler = func(c data.SamplerOptions) (*data.Sampler, error) {
		c.Rank = 0
		return data.NewSampler(c)
	}
}

// sumGradients makes the exchange return the sum of the gradients instead of their mean.
func sumGradients(p *train.WorkerOptions) {
	p.Exchange = func(ctx context.Context, _ engine.Engine, group collective.Group) (strategy.Exchange, error) {
		return summing{strategy.NewDDP(ctx, group), ctx, group}, nil
	}
}

// skipBucket makes the exchange skip bucket 0, so that each worker uses its own gradients
// there.
func skipBucket(p *train.WorkerOptions) {
	p.Exchange = func(ctx context.Context, _ engine.Engine, group collective.Group) (strategy.Exchange, error) {
		return skipping{strategy.NewDDP(ctx, group)}, nil
	}
}

// skipStatistics makes synchronized batch norms use each worker's own statistics.
func skipStatistics(p *train.WorkerOptions) {
	p.Exchange = func(ctx context.Context, _ engine.Engine, group collective.Group) (strategy.Exchange, error) {
		return withoutStatistics{strategy.NewDDP(ctx, group)}, nil
	}
}

// summing is an exchange that adds gradients up but does not divide the sum.
type summing struct {
	*strategy.DDP
	ctx   context.Context
	group collective.Group
}

// Bucket adds b up over all workers.
func (s summing) Bucket(_ int, b device.Buffer, _ device.Stream) error {
	return s.group.AllReduce(s.ctx, b)
}

// skipping is an exchange that leaves out bucket 0.
type skipping struct{ *strategy.DDP }

// Bucket exchanges every bucket but the first.
func (s skipping) Bucket(i int, b device.Buffer, stream device.Stream) error {
	if i == 0 {
		return nil
	}
	return s.DDP.Bucket(i, b, stream)
}

// withoutStatistics is an exchange that leaves out the statistics of batch norms.
type withoutStatistics struct{ *strategy.DDP }

// ShareStatistics returns the worker's own statistics.
func (withoutStatistics) ShareStatistics(own []float64) ([]float64, error) { return own, nil }
