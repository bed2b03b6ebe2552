package train

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/strategy"
)

// networkPrograms contains the network, and its programs for training and evaluation on the engine.
type networkPrograms struct {
	net       model.Network
	engine    engine.Engine
	train     engine.Executable
	can       engine.Capabilities // of train
	eval      engine.Executable
	outputs   []float32      // network outputs for one training batch; nil unless the task is classification
	buckets   int            // number of gradient buckets
	stepFLOPs int64          // of the training program, for one batch
	peak      float64        // peak FLOP/s of the engine, on rank 0; 0: not measured
	average   *movingAverage // of the parameters; nil: none
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

// loadEvaluation loads the evaluation program. It uses the parameters of share, or its own
// parameters if share is nil.
func (t *Trainer) loadEvaluation(share engine.Executable) (err error) {
	_, t.eval, err = t.loadProgram(t.samples.Test.ImageShape(), t.samples.Test.TargetShape(), EvalBatchSize, nn.Eval, share)
	return err
}

// loadProgram builds the network for samples of the given shapes and loads its program. The program
// uses the parameters of share, or its own parameters if share is nil. With a staged strategy, the
// training program is this rank's stage of the network.
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

// buildNetwork returns the network that WorkerOptions.Build builds, or the config's network if
// Build is nil. image and target are the shapes of one sample.
func (t *Trainer) buildNetwork(image, target []int) (model.Network, error) {
	net, err := t.buildUncheckedNetwork(image, target)
	if err == nil {
		err = t.checkClassCount(net)
	}
	return net, err
}

// checkClassCount returns an error if the number of outputs of the network does not match the
// classes of the masks.
func (t *Trainer) checkClassCount(net model.Network) error {
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
			net.Name(), english.FormatCount(n, "output"), strings.Join(t.cfg.Data.MaskClasses(), ", "), classes)
	}
	return nil
}

// buildUncheckedNetwork is buildNetwork without checks.
func (t *Trainer) buildUncheckedNetwork(image, target []int) (model.Network, error) {
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

// recordBuiltNetwork stores the network of WorkerOptions.Build in the config as a spec, so that the
// network can be built from the run folder. If no spec can describe it, only the task is stored.
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

// initParameters initializes the parameters randomly from the seed, or from the file in
// model.weights.
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
