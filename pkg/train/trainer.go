package train

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
)

// EvalBatchSize affects memory but not the results of an evaluation, because batch norms then use
// running statistics.
const EvalBatchSize = 4

// WorkerOptions are one worker's run folder, outputs, and functions that replace parts of the training.
type WorkerOptions struct {
	Dir       string // run folder; empty: write no files
	LocalRank int    // rank among the workers on this machine
	Resume    bool   // resume from the newest checkpoint in Dir, if there is one
	// AcceptChangedData lets a run be resumed with other data than before.
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

	// rankSource is the launcher that has set the rank, for run.json; empty: lockstep launch, or none.
	rankSource string

	// Open opens the engine; nil: engine.Open. If it is nil, all ranks on CPUs use the same
	// instruction set.
	Open func(o engine.Options, localRank int) (engine.Engine, error)
	// Strategy creates the strategy; nil: strategy.New. Every rank calls it at the same time.
	Strategy func(ctx context.Context, c strategy.Config, gpu *engine.Accelerator, group collective.Group) (strategy.Strategy, error)
	// Sampler chooses the samples of a rank; nil: data.NewSampler.
	Sampler func(c data.SamplerOptions) (*data.Sampler, error)
}

// Trainer is one worker of a data-parallel run.
type Trainer struct {
	cfg      Config
	options  WorkerOptions
	group    collective.Group
	net      model.Network
	lock     *runs.Lock // lock of the run folder, on rank 0 until the writer takes it over
	engine   engine.Engine
	train    engine.Executable
	can      engine.Capabilities // of train
	eval     engine.Executable
	strategy strategy.Strategy
	// strategyState contains the strategy's tensors for the next checkpoint; nil except on rank 0
	// and with a strategy that needs them.
	strategyState map[string][]float64
	// optimizerBytes contains the size of each rank's part of the optimizer's state; nil if every
	// rank has the complete state, of completeOptimizerBytes.
	optimizerBytes         []int64
	completeOptimizerBytes int64
	average                *movingAverage
	samples                Samples
	dataHash               string       // the fingerprint of samples; empty if nothing compares it
	dataRecord             runs.Data    // describes the data that dataHash identifies
	acceptedData           bool         // whether the run is resumed with other data than before
	staged                 *data.Staged // the copy that samples are read from; nil: the data are not staged
	sampler                *data.Sampler
	loader                 *data.Loader
	outputs                []float32 // network outputs for one training batch; nil unless the task is classification
	buckets                int       // number of gradient buckets

	deviceSet  *deviceDataset // the training set in the device's memory; nil: batches are loaded
	hostReason string         // why the GPU does not hold the training set; empty if it does, or if the config does not ask for it

	stepFLOPs int64 // of the training program, for one batch

	peak     float64   // peak FLOP/s of the engine, on rank 0; 0: not measured
	step     int       // completed optimizer steps
	started  time.Time // start of the current optimizer step; zero between steps
	epoch    int       // completed epochs
	progress progress  // progress within the current epoch

	untrained  *Scores            // scores of the untrained network; nil until they are known
	finished   *runs.Run          // the resumed run, if all its epochs are done and its checkpoints are missing; else nil
	resumed    *checkpoint        // the checkpoint from which this run was resumed; nil if none
	notes      []string           // notes about resuming, for the logs
	saved      string             // newest checkpoint, relative to the run folder
	unsaved    *snapshot          // the last complete epoch, if it is not saved yet
	cancelWork context.CancelFunc // cancels the exchange of gradients
	sent       uint64             // value of collective.Sent at the last call of countSent
}

// New creates a worker: it opens the data, builds the network, opens the engine, and makes the parameters
// equal on all ranks. Every rank of group must call it with the same config. The caller must call Close.
func New(ctx context.Context, cfg Config, group collective.Group, options WorkerOptions) (t *Trainer, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := cfg.Strategy.CheckWorkers(group.Size()); err != nil {
		return nil, err
	}
	if cfg.Model, err = cfg.Model.Resolve("."); err != nil {
		return nil, err
	}
	if cfg, err = cfg.ForData(); err != nil {
		return nil, err
	}
	t = &Trainer{cfg: cfg, options: options, group: group}
	t.readAsBefore()
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
			t = nil
		}
	}()
	if err = t.checkSameConfig(ctx); err != nil {
		return t, err
	}
	if options.Samples != nil {
		t.samples = *options.Samples
	} else if err = t.openSamples(ctx); err != nil {
		return t, err
	}
	if err = t.fingerprintData(ctx); err != nil {
		return t, err
	}
	if err = t.checkSameData(ctx); err != nil {
		return t, err
	}
	if err = t.openLoader(); err != nil {
		return t, err
	}
	if err = t.loadPrograms(ctx); err != nil {
		return t, err
	}
	if err = t.copySamplesToDevice(ctx); err != nil {
		return t, err
	}
	// After an interrupt, the current step is completed.
	work, end := withDelayedCancel(ctx, stepGracePeriod)
	t.cancelWork = end
	newStrategy := options.Strategy
	if newStrategy == nil {
		newStrategy = strategy.New
	}
	if t.strategy, err = newStrategy(work, cfg.Strategy, t.can.Accelerator, group); err != nil {
		return t, err
	}
	if err = t.setInitialState(ctx); err != nil {
		return t, err
	}
	if err = t.startProfile(); err != nil {
		return t, err
	}
	if err = t.startStrategy(ctx); err != nil {
		return t, err
	}
	return t, t.startAverage()
}

// OverlapsExchange reports whether gradients are exchanged during the backward pass. This needs
// several workers, engine.overlap, and several buckets: a single one is complete only at the end of
// the backward pass.
func (t *Trainer) OverlapsExchange() bool {
	return t.group.Size() > 1 && t.cfg.Engine.Overlap && t.buckets > 1
}

// loadPrograms opens the engine, builds the network, and loads its training and evaluation programs, which
// share their parameters. Their input sizes may differ, because augmentation may crop training images.
func (t *Trainer) loadPrograms(ctx context.Context) (err error) {
	if t.engine, err = t.openCommonEngine(ctx); err != nil {
		return err
	}
	if t.cfg.Strategy.Staged() {
		// The stages share the parameters of the evaluation program.
		if err = t.loadEvaluation(nil); err != nil {
			return err
		}
	}
	image, target := t.loader.ImageShape(), t.loader.TargetShape()
	if t.net, t.train, err = t.loadProgram(image, target, t.cfg.Batch, nn.Train, t.eval); err != nil {
		return err
	}
	t.can = t.train.Capabilities()
	t.stepFLOPs = t.train.Program().StepFLOPs()
	if t.net.Task() == model.Classification {
		batch, outputs, err := batchAndOutputSize(t.train.Program())
		if err != nil {
			return err
		}
		t.outputs = make([]float32, batch*outputs)
	}
	if t.eval == nil {
		if err = t.loadEvaluation(t.train); err != nil {
			return err
		}
	}
	t.recordBuiltNetwork()
	return nil
}

// loadEvaluation loads the evaluation program with the parameters of share, or with its own if
// share is nil.
func (t *Trainer) loadEvaluation(share engine.Executable) (err error) {
	_, t.eval, err = t.loadProgram(t.samples.Test.ImageShape(), t.samples.Test.TargetShape(), EvalBatchSize, nn.Eval, share)
	return err
}

// loadProgram builds the network for samples of the given shapes, and loads its program with the
// parameters of share, or with its own if share is nil. With a staged strategy, the training
// program is the stage of this rank.
func (t *Trainer) loadProgram(image, target []int, batch int, mode nn.Mode, share engine.Executable) (model.Network, engine.Executable, error) {
	net, err := t.buildNetwork(image, target)
	if err != nil {
		return nil, nil, err
	}
	p, err := t.lowerNetwork(net, batch, mode)
	if err != nil {
		return nil, nil, err
	}
	if mode == nn.Eval {
		exe, err := t.engine.Load(p, share)
		return net, exe, err
	}
	if !t.cfg.Strategy.Staged() {
		t.buckets = len(p.Buckets)
	}
	exe, err := strategy.Load(t.cfg.Strategy, t.engine, p, share, t.group.Size(), t.group.Rank())
	return net, exe, err
}

func (t *Trainer) lowerNetwork(net model.Network, batch int, mode nn.Mode) (*plan.Program, error) {
	g, err := net.Graph(batch, mode)
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", net.Name(), err)
	}
	p, err := plan.Lower(g, t.cfg.LoweringOptions())
	if err != nil {
		return nil, fmt.Errorf("lower %s: %w", net.Name(), err)
	}
	return p, nil
}

// buildNetwork returns the network of WorkerOptions.Build, or the config's if Build is nil. image
// and target are the shapes of one sample.
func (t *Trainer) buildNetwork(image, target []int) (model.Network, error) {
	net, err := t.buildAnyNetwork(image, target)
	if err == nil {
		err = t.checkClasses(net)
	}
	return net, err
}

// checkClasses returns an error if the number of the network's outputs does not fit the classes of
// the masks.
func (t *Trainer) checkClasses(net model.Network) error {
	classes := max(1, t.cfg.Data.NetworkClasses())
	if len(t.cfg.Data.MaskValues) == 0 || t.options.Samples != nil {
		return nil
	}
	g, err := net.Graph(1, nn.Eval)
	if err != nil {
		return err
	}
	if n := g.Outputs()[0].Shape[1]; n != classes {
		return fmt.Errorf("network %s has %s for each pixel, but data.mask_values (%s) needs %d: change the last layer, or data.mask_values",
			net.Name(), english.Count(n, "output"), strings.Join(t.cfg.Data.MaskClasses(), ", "), classes)
	}
	return nil
}

// buildAnyNetwork is buildNetwork without checks.
func (t *Trainer) buildAnyNetwork(image, target []int) (model.Network, error) {
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

// recordBuiltNetwork stores the network of WorkerOptions.Build in the config as a spec, so that
// readers of the run folder can build it, or only the task if no spec can describe it.
func (t *Trainer) recordBuiltNetwork() {
	if t.options.Build == nil {
		return
	}
	task := t.net.Task()
	t.cfg.Model = model.Config{Kind: model.KindOwn, Task: task}
	if spec, err := model.SpecOf(t.net); err == nil {
		t.cfg.Model = model.Config{Kind: model.KindSpec, Spec: spec}
	}
}

func (t *Trainer) openLoader() (err error) {
	replicas := t.replicas()
	if n := t.samples.Train.Len(); n < replicas {
		return fmt.Errorf("load batches: got only %s for %s, so that some workers would train on repeated samples only: use at most %s, or more data",
			english.Count(n, "training sample"), english.Count(replicas, "worker"), english.Count(n, "worker"))
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

// setInitialState locks the run folder and sets the initial parameters: from the newest checkpoint
// if WorkerOptions.Resume is set, else from the seed or from model.weights. Then New broadcasts
// those of rank 0.
func (t *Trainer) setInitialState(ctx context.Context) error {
	var before *runs.Run
	if t.options.Resume {
		var err error
		if before, err = t.readResumable(); err != nil {
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

// startStrategy restores the checkpoint's tensors, if the run is resumed, makes the state of the
// workers consistent, and starts the timeline, if the config asks for one.
func (t *Trainer) startStrategy(ctx context.Context) error {
	if w, ok := t.strategy.(strategy.TimelineWriter); ok && t.cfg.Strategy.Timeline && t.options.Dir != "" {
		if err := w.StartTimeline(filepath.Join(t.options.Dir, "trace-horovod.json")); err != nil {
			return err
		}
	}
	if t.resumed != nil {
		if err := t.strategy.Start(ctx, t.train, t.resumed.tensors); err != nil {
			return fmt.Errorf("checkpoint %s: %w", t.resumed.path, err)
		}
	} else if err := t.strategy.Start(ctx, t.train, nil); err != nil {
		return fmt.Errorf("broadcast initial state: %w", err)
	}
	return t.measureOptimizer(ctx)
}

// measureOptimizer sets t.optimizerBytes if the strategy divides the optimizer's state.
func (t *Trainer) measureOptimizer(ctx context.Context) error {
	s, ok := t.strategy.(strategy.OptimizerSharder)
	if !ok {
		return nil
	}
	own, complete := s.OptimizerBytes(t.cfg.Optimizer.Update(0, 1))
	all := make([]float64, t.group.Size())
	all[t.group.Rank()] = float64(own)
	if err := t.allReduce(ctx, all); err != nil {
		return fmt.Errorf("compare the memory of the ranks: %w", err)
	}
	for _, v := range all {
		t.optimizerBytes = append(t.optimizerBytes, int64(v))
	}
	t.completeOptimizerBytes = complete
	return nil
}

// initParameters sets the parameters from the seed, or from the file in model.weights.
func (t *Trainer) initParameters(ctx context.Context) error {
	// The initial parameters do not depend on the batch size. The evaluation graph, unlike the
	// training graph, allows a batch of 1 with batch norm.
	g, err := t.net.Graph(1, nn.Eval)
	if err != nil {
		return err
	}
	values := g.InitialValues(t.cfg.Seed)
	if path := t.cfg.Model.Weights; path != "" {
		if values, err = model.ReadWeights(ctx, t.net, path); err != nil {
			return fmt.Errorf("load model.weights: %w", err)
		}
	}
	for name, v := range values {
		if err := t.train.Set(name, v); err != nil {
			return fmt.Errorf("initialize %s: %w", name, err)
		}
	}
	// Without this call the Go runtime would keep the values' memory for a long time, while the
	// engine allocates more in the first step.
	debug.FreeOSMemory()
	return nil
}

// Close closes what New has opened, but not the group.
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
func (t *Trainer) globalBatch() int { return t.cfg.Batch * t.replicas() * t.cfg.batchesPerStep() }

// replicas returns the number of replicas of the network, which train on different samples.
func (t *Trainer) replicas() int { return t.cfg.Strategy.ReplicaCount(t.group.Size()) }

// learningRate returns the learning rate of an optimizer step, scaled for the samples of one
// update. epoch counts from 0, and step from 0 within the epoch.
func (t *Trainer) learningRate(epoch, step int) float64 {
	updates := t.cfg.Strategy.UpdatesPerStep(t.group.Size())
	return t.cfg.Schedule.At(t.cfg.Optimizer.LearningRate, optim.TrainingRun{
		Workers: t.replicas() / updates, GlobalBatch: t.globalBatch() / updates, StepsPerEpoch: t.stepsPerEpoch(), Epochs: t.cfg.Epochs,
	}, epoch, step)
}
