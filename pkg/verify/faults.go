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

// A fault breaks data parallelism on purpose: it changes a worker's options so that the check of
// the invariant must fail. nil: no fault.
type fault func(p *train.WorkerOptions)

// namedFault is a fault with the config in which it must be detected.
type namedFault struct {
	name string
	f    fault
	cfg  train.Config
	// everywhere is set if the one worker also has the fault, a computation that depends on how the
	// workers divide a batch.
	everywhere bool
}

func listFaults(cfg train.Config) []namedFault {
	if cfg.Strategy.Staged() {
		adaptToStages(&cfg)
		clipped := cfg
		clipped.Optimizer.ClipNorm = clipNorm
		return []namedFault{
			{"gradients that do not reach the stage before", breakMessages(zeroGradients), cfg, false},
			{"gradients of the micro-batch before", breakMessages(staleGradients), cfg, false},
			{"activations of the micro-batch before", breakMessages(staleActivations), cfg, false},
			{"gradients clipped by the norm of each stage", keepNorms, clipped, false},
		}
	}
	norms := cfg
	addSyncedBatchNorm(&norms)
	missing := namedFault{"a bucket that is not reduced", skipBucket, cfg, false}
	if cfg.Strategy.NeedsSGD() { // the workers exchange parameters instead of buckets
		missing = namedFault{"parameters that are averaged after every second step only", func(*train.WorkerOptions) {}, cfg, false}
		missing.cfg.Strategy.Steps = 2
	}
	list := []namedFault{
		{"a sum in place of the mean", sumGradients, cfg, false},
		missing,
		{"equal shards on all ranks", useEqualShards, cfg, false},
		{"batch norms that do not exchange their statistics", skipStatistics, norms, false},
	}
	if cfg.Engine.Device != "reference" {
		return list
	}
	pixels := cfg
	setPixelClasses(&pixels)
	return append(list,
		namedFault{"a loss divided by the weights of the pixels that count in a shard", breakLoss(reference.MeanOfCounted), pixels, true},
		namedFault{"soft Dice of the batch of a shard", breakLoss(reference.DiceOfBatch), pixels, true})
}

func breakLoss(f reference.LossFault) fault {
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

// sumGradients makes the exchange return the gradients' sum instead of their mean.
func sumGradients(p *train.WorkerOptions) {
	breakExchange(p, func(sync engine.GradSync, workers int) engine.GradSync { return sumSync{faultySync{sync}, workers} })
}

// skipBucket makes the exchange skip bucket 0, whose update then uses a single worker's gradients.
func skipBucket(p *train.WorkerOptions) {
	breakExchange(p, func(sync engine.GradSync, _ int) engine.GradSync { return partialSync{faultySync{sync}} })
}

// skipStatistics makes synchronized batch norms use each worker's own statistics.
func skipStatistics(p *train.WorkerOptions) {
	breakExchange(p, func(sync engine.GradSync, _ int) engine.GradSync { return localStatisticsSync{faultySync{sync}} })
}

// breakExchange makes the strategy pass the result of change for its own GradSync to the
// executable. GPUs then exchange gradients through the host.
func breakExchange(p *train.WorkerOptions, change func(sync engine.GradSync, workers int) engine.GradSync) {
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

// faultySync is a GradSync whose gradients the engine does not add up itself, which would bypass
// the fault.
type faultySync struct{ engine.GradSync }

func (s faultySync) Capabilities() engine.SyncCapabilities {
	c := s.GradSync.Capabilities()
	c.Accumulation = nil
	return c
}

// sumSync replaces the mean of the gradients by their sum.
type sumSync struct {
	faultySync
	workers int
}

func (s sumSync) ReduceBucket(i int, b device.Buffer, stream device.Stream) error {
	for k := range b.F64 {
		b.F64[k] *= float64(s.workers)
	}
	for k := range b.F32 {
		b.F32[k] *= float32(s.workers)
	}
	return s.GradSync.ReduceBucket(i, b, stream)
}

// partialSync skips bucket 0.
type partialSync struct{ faultySync }

func (s partialSync) ReduceBucket(i int, b device.Buffer, stream device.Stream) error {
	if i == 0 {
		return nil
	}
	return s.GradSync.ReduceBucket(i, b, stream)
}

// localStatisticsSync keeps the statistics of batch norms local.
type localStatisticsSync struct{ faultySync }

func (s localStatisticsSync) Capabilities() engine.SyncCapabilities {
	c := s.faultySync.Capabilities()
	c.ShareStatistics = func(own []float64) ([]float64, error) { return own, nil }
	return c
}
