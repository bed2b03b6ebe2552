package train

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu"
	"lockstep/pkg/engine/cuda"
	"lockstep/pkg/engine/reference"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
)

// EvalBatch is the batch of evaluation programs: running statistics make the
// result independent of it, so it is only a matter of memory.
const EvalBatch = 4

// WorkerOptions are the options of one worker: where it runs, what it writes, and what
// replaces the usual parts of a run.
type WorkerOptions struct {
	Dir       string // run folder; empty: nothing is written
	LocalRank int
	Resume    bool                         // go on from the newest checkpoint in Dir, if there is one
	Build     model.Builder                // builds the network, in place of the config's model; nil: that one
	Samples   *Samples                     // what is trained on and held out, in place of the config's data; nil: those
	Profile   Profile                      // steps to look into, on a GPU
	Log       func(line string)            // lines for people, of rank 0; nil: none
	Progress  func(epoch, step, steps int) // after each step; nil: none
	Study     string                       // for run.json
	Series    string

	// Open starts the engine; nil: OpenEngine, on the CPU with the instruction set that
	// all ranks share.
	Open func(o engine.Options, localRank int) (engine.Engine, error)
	// Exchange starts the strategy; nil: strategy.New. Every rank calls it at the same
	// time.
	Exchange func(ctx context.Context, e engine.Engine, group collective.Group) (strategy.Exchange, error)
	// Sampler decides which samples a rank trains on; nil: data.NewSampler.
	Sampler func(c data.SamplerOptions) (*data.Sampler, error)
}

// Trainer is one worker of a data-parallel run.
type Trainer struct {
	cfg      Config
	options  WorkerOptions
	group    collective.Group
	net      model.Network
	lock     *runs.Lock // of the run folder, on rank 0 until its writer has it
	engine   engine.Engine
	train    engine.Executable
	eval     engine.Executable
	sync     strategy.Exchange
	gather   *strategy.Accumulator
	average  *average
	samples  Samples
	dataHash string       // the fingerprint of samples
	staged   *data.Staged // what samples are read from; nil: the config's own place
	sampler  *data.Sampler
	loader   *data.Loader
	outputs  []float32 // of a training batch, where they are scored
	buckets  int       // of gradients

	onDevice *onDevice // the training set, where it lies on the engine's device
	atHost   string    // why it does not, where it might

	peak    float64   // FLOP/s of the engine, on rank 0; 0: not measured
	step    int       // steps done
	started time.Time // when the first batch of the step under way came; zero: none is
	epoch   int       // epochs done
	begun   progress  // of the next epoch

	untrained *Scores     // before the first step, once they are known
	resumed   *checkpoint // what this run goes on from
	notes     []string    // of how it was resumed, for the logs
	saved     string      // newest checkpoint, relative to the run folder
	unsaved   *state      // the last epoch that was done, where no checkpoint was due
	endWork   context.CancelFunc
}

// New prepares a worker: data, network, engine, parameters equal on all
// ranks. Every rank of group calls it with the same config.
func New(ctx context.Context, cfg Config, group collective.Group, options WorkerOptions) (t *Trainer, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Model, err = cfg.Model.Resolve("."); err != nil {
		return nil, err
	}
	t = &Trainer{cfg: cfg, options: options, group: group}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
			t = nil
		}
	}()
	if err = t.sameConfig(ctx); err != nil {
		return t, err
	}
	if options.Samples != nil {
		t.samples = *options.Samples
	} else if err = t.openSamples(ctx); err != nil {
		return t, err
	}
	if err = t.sameData(ctx); err != nil {
		return t, err
	}
	if err = t.feed(); err != nil {
		return t, err
	}
	if err = t.load(ctx); err != nil {
		return t, err
	}
	if err = t.hold(ctx); err != nil {
		return t, err
	}
	// A step that is under way at an interrupt is done to its end.
	work, end := lag(ctx, stepPatience)
	t.endWork = end
	exchange := options.Exchange
	if exchange == nil {
		exchange = strategy.New
	}
	if t.sync, err = exchange(work, t.engine, group); err != nil {
		return t, err
	}
	t.gather = strategy.NewAccumulator(t.sync)
	if err = t.start(ctx); err != nil {
		return t, err
	}
	if err = t.profile(); err != nil {
		return t, err
	}
	if err = strategy.BroadcastState(ctx, t.train, group); err != nil {
		return t, fmt.Errorf("broadcast initial state: %w", err)
	}
	return t, t.startAverage()
}

// Overlaps says whether gradients are exchanged while backward goes on: not
// where there is nobody to exchange with, nor where all of them are final only
// when it ends. Then nothing of a worker runs beside its computing threads but
// the loader.
func (t *Trainer) Overlaps() bool {
	return t.group.Size() > 1 && t.cfg.Engine.Overlap && t.buckets > 1
}

// load builds the network, lowers it for training and for evaluation, and
// loads both on the engine with shared parameters. Held-out images keep their
// size where augmentation crops those that are trained on.
func (t *Trainer) load(ctx context.Context) (err error) {
	if t.engine, err = t.openShared(ctx); err != nil {
		return err
	}
	image, target := t.loader.ImageShape(), t.loader.TargetShape()
	if t.net, t.train, err = t.program(image, target, t.cfg.Batch, nn.Train, nil); err != nil {
		return err
	}
	image, target = t.samples.Test.ImageShape(), t.samples.Test.TargetShape()
	if t.net.Task() == model.Classification {
		batch, outputs, err := outputSize(t.train.Program())
		if err != nil {
			return err
		}
		t.outputs = make([]float32, batch*outputs)
	}
	if _, t.eval, err = t.program(image, target, EvalBatch, nn.Eval, t.train); err != nil {
		return err
	}
	t.recordOwn()
	return nil
}

// OpenEngine starts the engine that o names. localRank is the worker's number on its
// machine, which chooses its GPU.
func OpenEngine(o engine.Options, localRank int) (engine.Engine, error) {
	if o.Device == "reference" {
		return reference.New(o)
	}
	if _, ok := o.CUDA(); ok {
		return cuda.New(o, localRank)
	}
	return cpu.New(o)
}

func (t *Trainer) program(image, target []int, batch int, mode nn.Mode, share engine.Executable) (model.Network, engine.Executable, error) {
	net, err := t.network(image, target)
	if err != nil {
		return nil, nil, err
	}
	g, err := net.Graph(batch, mode)
	if err != nil {
		return nil, nil, fmt.Errorf("build %s: %w", net.Name(), err)
	}
	p, err := plan.Lower(g, t.cfg.Lowering())
	if err != nil {
		return nil, nil, fmt.Errorf("lower %s: %w", net.Name(), err)
	}
	t.buckets = max(t.buckets, len(p.Buckets))
	exe, err := t.engine.Load(p, share)
	return net, exe, err
}

// network is the config's, or that of WorkerOptions.Build.
func (t *Trainer) network(image, target []int) (model.Network, error) {
	if t.options.Build == nil {
		return t.cfg.Model.Network(image, target)
	}
	task := t.cfg.Model.Task
	switch {
	case task != "":
	case slices.Equal(target, []int{1}):
		task = model.Classification
	default:
		task = model.Segmentation
	}
	return model.Own(t.cfg.Name, task, image, target, t.options.Build)
}

// recordOwn puts a network of one's own into the config as a spec, so that what
// reads the run folder can build it again; one that cannot be written down stays
// what it is.
func (t *Trainer) recordOwn() {
	if t.options.Build == nil {
		return
	}
	task := t.net.Task()
	t.cfg.Model = model.Config{Kind: model.KindOwn, Task: task}
	if spec, err := model.SpecOf(t.net); err == nil {
		t.cfg.Model = model.Config{Kind: model.KindSpec, Spec: spec}
	}
}

// feed makes the sampler and the loader of this rank.
func (t *Trainer) feed() (err error) {
	if n := t.samples.Train.Len(); n < t.group.Size() {
		return fmt.Errorf("feed %s: there are %s, so that some would train on repeated ones alone: use at most %s, or more data",
			english.Count(t.group.Size(), "worker"), english.Count(n, "training sample"), english.Count(n, "worker"))
	}
	sampler := t.options.Sampler
	if sampler == nil {
		sampler = data.NewSampler
	}
	if t.sampler, err = sampler(t.cfg.Sampler(t.samples.Train.Len(), t.group.Size(), t.group.Rank())); err != nil {
		return err
	}
	t.loader, err = data.NewLoader(t.samples.Train, t.sampler, t.cfg.DataLoader())
	return err
}

// start sets the parameters: from the newest checkpoint with WorkerOptions.Resume,
// else from the seed. Ranks other than 0 get theirs by the broadcast that
// follows.
func (t *Trainer) start(ctx context.Context) error {
	if t.options.Resume {
		if err := t.checkResumed(); err != nil {
			return err
		}
	}
	// Before the checkpoint is read: the run's owner may be about to write the next.
	if err := t.own(ctx); err != nil {
		return err
	}
	if t.options.Resume {
		return t.restore(ctx)
	}
	return t.initialise(ctx)
}

// initialise sets the parameters from the seed, or from the file of weights that
// the config names.
func (t *Trainer) initialise(ctx context.Context) error {
	// What the parameters begin with does not depend on the batch, but of one sample
	// a batch norm may have nothing to train with: the graph for evaluation has them too.
	g, err := t.net.Graph(1, nn.Eval)
	if err != nil {
		return err
	}
	values := g.InitialValues(t.cfg.Seed)
	if path := t.cfg.Model.Weights; path != "" {
		if values, err = model.ReadWeights(ctx, t.net, path); err != nil {
			return fmt.Errorf("begin with model.weights: %w", err)
		}
	}
	for name, v := range values {
		if err := t.train.Set(name, v); err != nil {
			return fmt.Errorf("initialise %s: %w", name, err)
		}
	}
	// The values are of no more use, and the runtime would keep their memory for
	// long: what the engine holds fills up only with the first step.
	debug.FreeOSMemory()
	return nil
}

// Close ends what the trainer started. The group is the caller's.
func (t *Trainer) Close() error {
	var errs []error
	if t.loader != nil {
		t.loader.Close()
	}
	errs = append(errs, t.staged.Close())
	if t.lock != nil {
		errs = append(errs, t.lock.Release())
	}
	if t.eval != nil {
		errs = append(errs, t.eval.Close())
	}
	if t.train != nil {
		errs = append(errs, t.train.Close())
	}
	// After the executables: their graphs keep NCCL's communicator from ending.
	if t.sync != nil {
		errs = append(errs, t.sync.Close())
	}
	if t.endWork != nil {
		t.endWork()
	}
	if t.engine != nil {
		errs = append(errs, t.engine.Close())
	}
	return errors.Join(errs...)
}

// steps is the number of optimiser steps of an epoch.
func (t *Trainer) steps() int {
	return (t.sampler.Steps() + t.cfg.parts() - 1) / t.cfg.parts()
}

// globalBatch is the samples of an optimiser step, over all workers.
func (t *Trainer) globalBatch() int { return t.cfg.Batch * t.group.Size() * t.cfg.parts() }

// rate is the learning rate of an optimiser step of an epoch, both from 0.
func (t *Trainer) rate(epoch, step int) float64 {
	return t.cfg.Schedule.At(t.cfg.Optimizer.LearningRate, optim.Run{
		Workers: t.group.Size(), GlobalBatch: t.globalBatch(), StepsPerEpoch: t.steps(), Epochs: t.cfg.Epochs,
	}, epoch, step)
}
