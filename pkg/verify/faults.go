package verify

import (
	"context"

	"lockstep/pkg/collective"
	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/engine/reference"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/optim"
	"lockstep/pkg/strategy"
	"lockstep/pkg/train"
)

// A faultInjector breaks data parallelism on purpose: it changes the options of a worker so that the
// check of the invariant must fail. nil means no fault.
type faultInjector func(p *train.WorkerOptions)

// faultCase is a fault, and the config with which the check must detect it.
type faultCase struct {
	name string
	f    faultInjector
	cfg  train.Config
	// everywhere is true if the single worker must have the fault too. Such a fault makes the loss
	// depend on how the workers divide a batch.
	everywhere bool
}

func listFaults(cfg train.Config) []faultCase {
	if cfg.Strategy.Staged() {
		adaptToPipelineStages(&cfg)
		clipped := cfg
		clipped.Optimizer.ClipNorm = gradientClipNorm
		return []faultCase{
			{"gradients that do not reach the stage before", newMessageFault(zeroGradients), cfg, false},
			{"gradients of the micro-batch before", newMessageFault(repeatGradients), cfg, false},
			{"activations of the micro-batch before", newMessageFault(repeatActivations), cfg, false},
			{"gradients clipped by the norm of each stage", clipByLocalNorm, clipped, false},
		}
	}
	norms := cfg
	addSyncedBatchNorm(&norms)
	missing := faultCase{"a bucket that is not reduced", skipBucketReduction, cfg, false}
	if cfg.Strategy.NeedsSGD() { // the workers exchange parameters instead of buckets
		missing = faultCase{"parameters that are averaged after every second step only", func(*train.WorkerOptions) {}, cfg, false}
		missing.cfg.Strategy.Steps = 2
	}
	list := []faultCase{
		{"a sum in place of the mean", skipGradientAveraging, cfg, false},
		missing,
		{"equal shards on all ranks", useEqualShards, cfg, false},
		{"batch norms that do not exchange their statistics", skipStatisticsSync, norms, false},
	}
	if cfg.Engine.Device != "reference" {
		return list
	}
	pixels := cfg
	setPixelClassModel(&pixels)
	return append(list,
		faultCase{"a loss divided by the weights of the pixels that count in a shard", newLossFault(reference.MeanOfCounted), pixels, true},
		faultCase{"soft Dice of the batch of a shard", newLossFault(reference.DiceOfBatch), pixels, true})
}

func newLossFault(f reference.LossFault) faultInjector {
	return func(p *train.WorkerOptions) {
		p.Open = func(o engine.Options, _ int) (engine.Engine, error) { return reference.NewFaulty(o, f) }
	}
}

// useEqualShards makes every rank train on the samples of rank 0.
func useEqualShards(p *train.WorkerOptions) {
	p.Sampler = func(c data.SamplerOptions) (*data.Sampler, error) {
		c.Rank = 0
		return data.NewSampler(c)
	}
}

// skipGradientAveraging makes the exchange return the gradients' sum instead of their mean.
func skipGradientAveraging(p *train.WorkerOptions) {
	replaceGradSync(p, func(sync engine.GradSync, workers int) engine.GradSync {
		return summingGradSync{faultyGradSync{sync}, workers}
	})
}

// skipBucketReduction makes the exchange skip bucket 0, so that each worker updates the parameters
// of that bucket with its own gradients.
func skipBucketReduction(p *train.WorkerOptions) {
	replaceGradSync(p, func(sync engine.GradSync, _ int) engine.GradSync { return bucketSkippingSync{faultyGradSync{sync}} })
}

// skipStatisticsSync makes synchronized batch norms use each worker's own statistics.
func skipStatisticsSync(p *train.WorkerOptions) {
	replaceGradSync(p, func(sync engine.GradSync, _ int) engine.GradSync { return localStatisticsSync{faultyGradSync{sync}} })
}

// replaceGradSync makes the strategy pass change(sync) to the executable instead of its own
// GradSync, sync. GPUs then exchange gradients through the host.
func replaceGradSync(p *train.WorkerOptions, change func(sync engine.GradSync, workers int) engine.GradSync) {
	p.Strategy = func(ctx context.Context, c strategy.Config, _ *engine.Accelerator, group collective.Group) (strategy.Strategy, error) {
		s, err := strategy.New(ctx, c, nil, group)
		if err != nil {
			return nil, err
		}
		return faultyStrategy{s, func(sync engine.GradSync) engine.GradSync { return change(sync, group.Size()) }}, nil
	}
}

// faultyStrategy passes a changed GradSync to the executable in each step.
type faultyStrategy struct {
	strategy.Strategy
	change func(engine.GradSync) engine.GradSync
}

func (f faultyStrategy) Step(ctx context.Context, exe engine.Executable, s strategy.Step) (engine.Timing, error) {
	return f.Strategy.Step(ctx, faultyExecutable{exe, f.change}, s)
}

// faultyExecutable changes the GradSync of each step.
type faultyExecutable struct {
	engine.Executable
	change func(engine.GradSync) engine.GradSync
}

func (x faultyExecutable) Step(ctx context.Context, sync engine.GradSync, update *optim.Update) (engine.Timing, error) {
	return x.Executable.Step(ctx, x.change(sync), update)
}

// faultyGradSync is a GradSync that does not let the engine add up gradients itself, which would
// bypass the fault.
type faultyGradSync struct{ engine.GradSync }

func (s faultyGradSync) Capabilities() engine.SyncCapabilities {
	c := s.GradSync.Capabilities()
	c.Accumulation = nil
	return c
}

// summingGradSync replaces the mean of the gradients by their sum.
type summingGradSync struct {
	faultyGradSync
	workers int
}

func (s summingGradSync) ReduceBucket(i int, b device.Buffer, stream device.Stream) error {
	for k := range b.F64 {
		b.F64[k] *= float64(s.workers)
	}
	for k := range b.F32 {
		b.F32[k] *= float32(s.workers)
	}
	return s.GradSync.ReduceBucket(i, b, stream)
}

// bucketSkippingSync does not reduce bucket 0.
type bucketSkippingSync struct{ faultyGradSync }

func (s bucketSkippingSync) ReduceBucket(i int, b device.Buffer, stream device.Stream) error {
	if i == 0 {
		return nil
	}
	return s.GradSync.ReduceBucket(i, b, stream)
}

// localStatisticsSync keeps the statistics of batch norms local.
type localStatisticsSync struct{ faultyGradSync }

func (s localStatisticsSync) Capabilities() engine.SyncCapabilities {
	c := s.faultyGradSync.Capabilities()
	c.ShareStatistics = func(own []float64) ([]float64, error) { return own, nil }
	return c
}
