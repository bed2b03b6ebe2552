package train

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/model"
	"lockstep/pkg/optim"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
	"lockstep/pkg/train/internal/checkpoint"
)

// EvalBatchSize is the batch size of an evaluation. It affects memory but not the results, because
// batch norms use running statistics in an evaluation.
const EvalBatchSize = 4

// WorkerOptions contains one worker's run folder, its outputs, and functions that replace parts of
// the training.
type WorkerOptions struct {
	Dir       string // run folder; empty: write no files
	LocalRank int    // rank among the workers on this machine
	Resume    bool   // resume from the newest checkpoint in Dir, if there is one
	// AcceptChangedData allows a run to be resumed with data that differ from those it was trained
	// on.
	AcceptChangedData bool
	Build             model.Builder                // builds the network; nil: the config's model
	Samples           *Samples                     // training and held-out samples; nil: the config's data
	Profile           Profile                      // steps to profile
	Log               func(line string)            // receives log lines on rank 0; nil: no log
	Progress          func(epoch, step, steps int) // called after each step; nil: not called
	EpochDone         func(runs.Epoch) error       // called on every rank after each epoch and its checkpoint; nil: not called
	Study             string                       // name of the study, for run.json
	Series            string                       // name of the series, for run.json
	binding           *runs.Binding                // for run.json; nil: no launcher has chosen the CPUs

	processes int  // of the run, for run.json; 0: unknown
	usage     bool // record what this process and its machine use, as the usage of this rank

	// rankSource names the launcher that set the rank, for run.json. It is "" for lockstep launch
	// or without a launcher.
	rankSource string

	// Open opens the engine. If it is nil, engine.Open is used, and all ranks on CPUs use the same
	// instruction set.
	Open func(o engine.Options, localRank int) (engine.Engine, error)
	// Strategy creates the strategy; nil means strategy.New. Every rank calls it at the same time.
	Strategy func(ctx context.Context, c strategy.Config, gpu *engine.Accelerator, group collective.Group) (strategy.Strategy, error)
	// Sampler creates the sampler that chooses the samples of a rank; nil means data.NewSampler.
	Sampler func(c data.SamplerOptions) (*data.Sampler, error)
}

// Trainer is one worker of a data-parallel run. New sets it up, Run trains, evaluates and saves.
type Trainer struct {
	cfg     Config
	options WorkerOptions
	group   collective.Group

	trainingData
	networkPrograms
	exchangeState
	runPosition
	checkpointState
}

// trainingData contains the samples that a worker is trained and evaluated on.
type trainingData struct {
	samples      Samples
	dataHash     string       // the fingerprint of samples; empty if nothing compares it
	dataRecord   runs.Data    // describes the data that dataHash identifies
	acceptedData bool         // whether the run is resumed with other data than before
	staged       *data.Staged // the copy that samples are read from; nil: the data are not staged
	sampler      *data.Sampler
	loader       *data.Loader
	deviceSet    *deviceDataset // the training set in the device's memory; nil: batches are loaded
	hostReason   string         // why the GPU does not hold the training set; empty if it does, or if the config does not ask for it
}

// runPosition is the point that a worker has reached in the run.
type runPosition struct {
	step     int           // completed optimizer steps
	started  time.Time     // start of the current optimizer step; zero between steps
	epoch    int           // completed epochs
	progress epochProgress // epochProgress within the current epoch
}

// checkpointState is the state of the run folder and its checkpoints.
type checkpointState struct {
	lock  *runs.Lock // lock of the run folder, on rank 0 until the writer takes it over
	notes []string   // notes about resuming, for the logs
	saved string     // newest checkpoint, relative to the run folder
	// strategyState contains the strategy's tensors for the next checkpoint. It is nil on ranks
	// other than 0, and with strategies that need none.
	strategyState map[string][]float64
	unsaved       *checkpointSnapshot    // the last complete epoch, if it is not saved yet
	untrained     *Scores                // scores of the untrained network; nil until they are known
	resumed       *checkpoint.Checkpoint // the checkpoint from which this run was resumed; nil if none
	finished      *runs.Run              // the resumed run, if all its epochs are done and its checkpoints are missing; else nil
}

// New creates a worker: it opens the data, builds the network, opens the engine, and makes the parameters
// equal on all ranks. Every rank of group must call it with the same config. The caller must call Close.
func New(ctx context.Context, cfg Config, group collective.Group, options WorkerOptions) (t *Trainer, err error) {
	if cfg, err = cfg.resolveForWorkers(group.Size()); err != nil {
		return nil, err
	}
	t = &Trainer{cfg: cfg, options: options, group: group}
	t.restoreDataReadingRules()
	// All ranks take these steps in this order: each may wait for the others.
	for _, step := range []func(context.Context) error{
		t.checkSameConfig, t.setUpData, t.setUpPrograms, t.setUpStrategy, t.setInitialState, t.start,
	} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, t.Close())
		}
	}
	return t, nil
}

// resolveForWorkers returns c with the model and the data that it refers to by name. It returns an
// error if the config is invalid for the given number of workers.
func (c Config) resolveForWorkers(workers int) (Config, error) {
	if err := c.Validate(); err != nil {
		return c, err
	}
	if err := c.Strategy.CheckWorkers(workers); err != nil {
		return c, err
	}
	var err error
	if c.Model, err = c.Model.Resolve("."); err != nil {
		return c, err
	}
	return c.ForData()
}

// setUpData opens the samples, checks that they are the same on all ranks, and opens their loader.
func (t *Trainer) setUpData(ctx context.Context) error {
	if t.options.Samples != nil {
		t.samples = *t.options.Samples
	} else if err := t.openSamples(ctx); err != nil {
		return err
	}
	if err := t.fingerprintData(ctx); err != nil {
		return err
	}
	if err := t.checkSameData(ctx); err != nil {
		return err
	}
	return t.openLoader()
}

// setUpPrograms loads the programs, and copies the training set to the device if the device can
// hold it.
func (t *Trainer) setUpPrograms(ctx context.Context) error {
	if err := t.loadPrograms(ctx); err != nil {
		return err
	}
	return t.copySamplesToDevice(ctx)
}

// setUpStrategy creates the strategy. After an interrupt, the strategy still completes the current
// step.
func (t *Trainer) setUpStrategy(ctx context.Context) (err error) {
	work, end := withDelayedCancel(ctx, stepGracePeriod)
	t.cancelWork = end
	newStrategy := t.options.Strategy
	if newStrategy == nil {
		newStrategy = strategy.New
	}
	t.strategy, err = newStrategy(work, t.cfg.Strategy, t.can.Accelerator, t.group)
	return err
}

// start starts the profile, the strategy and the moving average, from the initial state.
func (t *Trainer) start(ctx context.Context) error {
	if err := t.startProfile(); err != nil {
		return err
	}
	if err := t.startStrategy(ctx); err != nil {
		return err
	}
	return t.startMovingAverage()
}

// OverlapsExchange reports whether gradients are exchanged during the backward pass. This requires
// several workers, engine.overlap, and several buckets: a single bucket is complete only at the end
// of the backward pass.
func (t *Trainer) OverlapsExchange() bool {
	return t.group.Size() > 1 && t.cfg.Engine.Overlap && t.buckets > 1
}

func (t *Trainer) openLoader() (err error) {
	replicas := t.replicaCount()
	if n := t.samples.Train.Len(); n < replicas {
		return fmt.Errorf("load batches: got only %s for %s, so that some workers would train on repeated samples only: use at most %s, or more data",
			english.FormatCount(n, "training sample"), english.FormatCount(replicas, "worker"), english.FormatCount(n, "worker"))
	}
	sampler := t.options.Sampler
	if sampler == nil {
		sampler = data.NewSampler
	}
	if t.sampler, err = sampler(t.cfg.SamplerOptions(t.samples.Train.Len(), replicas, t.group.Rank()%replicas)); err != nil {
		return err
	}
	t.loader, err = data.NewLoader(t.samples.Train, t.sampler, t.cfg.LoaderOptions())
	return err
}

// setInitialState locks the run folder and sets the initial parameters. They come from the newest
// checkpoint if WorkerOptions.Resume is set, else from the seed or from model.weights. New then
// broadcasts the parameters of rank 0.
func (t *Trainer) setInitialState(ctx context.Context) error {
	var before *runs.Run
	if t.options.Resume {
		var err error
		if before, err = t.readResumableRun(); err != nil {
			return err
		}
	}
	// Lock the folder before reading the checkpoint: another process may be writing one.
	if err := t.lockRunFolder(ctx, before == nil); err != nil {
		return err
	}
	if t.options.Resume {
		return t.restoreCheckpoint(ctx, before)
	}
	return t.initParameters(ctx)
}

// Close closes everything that New has opened, but not the group.
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
	// Close the strategy after the executables: NCCL's communicator cannot be destroyed while
	// their CUDA graphs use it.
	if t.strategy != nil {
		errs = append(errs, t.strategy.Close())
	}
	if t.cancelWork != nil {
		t.cancelWork()
	}
	if t.engine != nil {
		errs = append(errs, t.engine.Close())
	}
	return errors.Join(errs...)
}

func (t *Trainer) stepsPerEpoch() int {
	return (t.sampler.Steps() + t.cfg.batchesPerStep() - 1) / t.cfg.batchesPerStep()
}

// globalBatch returns the number of samples per optimizer step, over all workers.
func (t *Trainer) globalBatch() int { return t.cfg.Batch * t.replicaCount() * t.cfg.batchesPerStep() }

// replicaCount returns the number of replicas of the network. Replicas train on different samples.
func (t *Trainer) replicaCount() int { return t.cfg.Strategy.ReplicaCount(t.group.Size()) }

// learningRate returns the learning rate of an optimizer step, scaled to the number of samples per
// update. epoch and step count from 0; step is the index within the epoch.
func (t *Trainer) learningRate(epoch, step int) float64 {
	updates := t.cfg.Strategy.UpdatesPerStep(t.group.Size())
	return t.cfg.Schedule.At(t.cfg.Optimizer.LearningRate, optim.TrainingRun{
		Workers: t.replicaCount() / updates, GlobalBatch: t.globalBatch() / updates, StepsPerEpoch: t.stepsPerEpoch(), Epochs: t.cfg.Epochs,
	}, epoch, step)
}
