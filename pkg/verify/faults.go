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

// useEqualShards makes every rank train on the samples of rank 0.
func useEqualShards(p *train.WorkerOptions) {
	p.Sampler = func(c data.SamplerOptions) (*data.Sampler, error) {
		c.Rank = 0
		return data.NewSampler(c)
	}
}

// sumGradients makes the exchange return the sum of the gradients instead of their mean.
func sumGradients(p *train.WorkerOptions) {
	p.Exchange = func(ctx context.Context, _ engine.Engine, group collective.Group) (strategy.Exchange, error) {
		return sumExchange{strategy.NewDDP(ctx, group), ctx, group}, nil
	}
}

// skipBucket makes the exchange skip bucket 0, so that each worker uses its own gradients
// there.
func skipBucket(p *train.WorkerOptions) {
	p.Exchange = func(ctx context.Context, _ engine.Engine, group collective.Group) (strategy.Exchange, error) {
		return partialExchange{strategy.NewDDP(ctx, group)}, nil
	}
}

// skipStatistics makes synchronized batch norms use each worker's own statistics.
func skipStatistics(p *train.WorkerOptions) {
	p.Exchange = func(ctx context.Context, _ engine.Engine, group collective.Group) (strategy.Exchange, error) {
		return localStatisticsExchange{strategy.NewDDP(ctx, group)}, nil
	}
}

// sumExchange is an exchange that sums gradients but does not divide the sum.
type sumExchange struct {
	*strategy.DDP
	ctx   context.Context
	group collective.Group
}

// ReduceBucket adds b up over all workers.
func (s sumExchange) ReduceBucket(_ int, b device.Buffer, _ device.Stream) error {
	return s.group.AllReduce(s.ctx, b)
}

// partialExchange is an exchange of gradients that skips bucket 0.
type partialExchange struct{ *strategy.DDP }

// ReduceBucket exchanges every bucket but the first.
func (s partialExchange) ReduceBucket(i int, b device.Buffer, stream device.Stream) error {
	if i == 0 {
		return nil
	}
	return s.DDP.ReduceBucket(i, b, stream)
}

// localStatisticsExchange is an exchange that keeps the statistics of batch norms local.
type localStatisticsExchange struct{ *strategy.DDP }

// ShareStatistics returns the worker's own statistics.
func (localStatisticsExchange) ShareStatistics(own []float64) ([]float64, error) { return own, nil }
