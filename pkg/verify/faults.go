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

// A fault breaks data parallelism on purpose: it changes a worker so that a check of
// the invariant must notice. nil is no fault.
type fault func(p *train.WorkerOptions)

// equalShards has every rank train on the samples of rank 0.
func equalShards(p *train.WorkerOptions) {
	p.Sampler = func(c data.SamplerOptions) (*data.Sampler, error) {
		c.Rank = 0
		return data.NewSampler(c)
	}
}

// sumForMean replaces the mean of the gradients by their sum.
func sumForMean(p *train.WorkerOptions) {
	p.Exchange = func(ctx context.Context, _ engine.Engine, group collective.Group) (strategy.Exchange, error) {
		return summing{strategy.NewDDP(ctx, group), ctx, group}, nil
	}
}

// skipBucket leaves bucket 0 of the gradients as each worker computed it.
func skipBucket(p *train.WorkerOptions) {
	p.Exchange = func(ctx context.Context, _ engine.Engine, group collective.Group) (strategy.Exchange, error) {
		return skipping{strategy.NewDDP(ctx, group)}, nil
	}
}

// ownNorms has synchronized batch norms take each worker's own statistics.
func ownNorms(p *train.WorkerOptions) {
	p.Exchange = func(ctx context.Context, _ engine.Engine, group collective.Group) (strategy.Exchange, error) {
		return unshared{strategy.NewDDP(ctx, group)}, nil
	}
}

// summing is data parallelism that adds gradients up and does not divide the sum.
type summing struct {
	*strategy.DDP
	ctx   context.Context
	group collective.Group
}

// Bucket adds b up over all workers.
func (s summing) Bucket(_ int, b device.Buffer, _ device.Stream) error {
	return s.group.AllReduce(s.ctx, b)
}

// skipping is data parallelism that does not exchange bucket 0.
type skipping struct{ *strategy.DDP }

// Bucket exchanges every bucket but the first.
func (s skipping) Bucket(i int, b device.Buffer, stream device.Stream) error {
	if i == 0 {
		return nil
	}
	return s.DDP.Bucket(i, b, stream)
}

// unshared is data parallelism that does not exchange the statistics of batch norms.
type unshared struct{ *strategy.DDP }

// ShareStatistics returns the worker's own statistics.
func (unshared) ShareStatistics(own []float64) ([]float64, error) { return own, nil }
