package selftest

import (
	"errors"
	"fmt"
	"math"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/internal/probe"
	"lockstep/pkg/engine/cuda/internal/workload"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// networkTrainingSteps is the number of training steps that are compared. With graphs, the first
// step runs command by command, the second is captured, and the later ones run the graph.
const networkTrainingSteps = 5

type trainingResults struct {
	losses    []float64
	gradients []float64 // of the first step, one parameter after another
	after     []float64 // all parameters, states and slots after the last step
	kernels   []string
}

// readFinalTensors sets r.after to the values of all tensors of x that outlive a step.
func (r *trainingResults) readFinalTensors(x engine.Executable) error {
	for _, name := range x.Names() {
		v, err := x.Get(name)
		if err != nil {
			return err
		}
		r.after = append(r.after, v...)
	}
	return nil
}

func (t *tester) checkNetworks() error {
	for i, c := range workload.UNetConfigs() {
		for _, fuse := range []bool{true, false} {
			if !fuse && i > 0 {
				continue
			}
			u, err := model.UNet2D(c)
			if err != nil {
				return err
			}
			shape := fmt.Sprintf("U-Net base %d, depth %d, %d×%d×%d, batch %d", c.Base, c.Depth, c.Height, c.Width, c.InChannels, workload.BatchSize)
			if err := t.checkNetwork("U-Net", shape, fuse, func() (*nn.Graph, error) { return u.Graph(workload.BatchSize, nn.Train) }); err != nil {
				return err
			}
		}
	}
	for _, fuse := range []bool{true, false} {
		if err := t.checkNetwork("classifier", "residual blocks, 34×30×3, 10 classes, batch 3", fuse, workload.NewClassifier); err != nil {
			return err
		}
		if err := t.checkNetwork("3-D network", "8×12×10×2, batch 3", fuse, workload.New3DNetwork); err != nil {
			return err
		}
	}
	return t.checkUpdateRules()
}

func (t *tester) checkNetwork(kind, shape string, fuse bool, build func() (*nn.Graph, error)) error {
	name := "steps of a " + kind
	if !fuse {
		name += ", nothing fused"
	}
	if !t.isSelected(name) {
		return nil
	}
	g, err := build()
	if err != nil {
		return err
	}
	p, err := plan.Lower(g, plan.Options{Fuse: fuse, BucketBytes: 4096})
	if err != nil {
		return err
	}
	seed := t.random.Uint64()
	want, err := t.trainNetwork(t.truth, g, p, seed)
	if err != nil {
		return err
	}
	var runs [2]trainingResults // without and with graphs
	for i, graph := range []bool{false, true} {
		if runs[i], err = t.trainOnNewEngine(graph, fuse, g, p, seed); err != nil {
			return t.addFailure(Check{Name: name, Shape: shape}, err)
		}
	}
	// Rounding changes some decisions of ReLUs and pools, in 16 bits many of them. So the
	// check compares the angle between all gradients together and the reference's.
	t.addCheck(Check{
		Name: name + ": gradients (1 − cosine)", Shape: shape, Error: 1 - number.CosineSimilarity(runs[0].gradients, want.gradients),
		Bound: map[string]float64{"fp32": 1e-5, "tf32": 5e-3, "fp16": 1e-2, "bf16": 0.1}[t.precision], Kernels: runs[0].kernels,
	})
	off := 0.0
	for i := range want.losses {
		// The error is relative if the loss is above 1: with ten classes it starts at ln
		// 10.
		off = max(off, math.Abs(runs[0].losses[i]-want.losses[i])/max(1, math.Abs(want.losses[i])))
	}
	t.addCheck(Check{
		Name: name + ": losses (relative difference if above 1)", Shape: shape, Error: off,
		Bound: map[string]float64{"fp32": 1e-3, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2}[t.precision],
	})
	t.addCheck(Check{
		Name: name + ": recorded as a CUDA graph (numbers that differ)", Shape: shape,
		Error: float64(number.CountDifferences(runs[0].after, runs[1].after) + number.CountDifferences(runs[0].losses, runs[1].losses)),
	})
	return nil
}

func (t *tester) trainOnNewEngine(graph, fuse bool, g *nn.Graph, p *plan.Program, seed uint64) (all trainingResults, err error) {
	e, err := t.startEngine(func(o *engine.Options) { o.Graph, o.Fuse = graph, fuse })
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	return t.trainNetwork(e, g, p, seed)
}

// loadWithNaNMemory loads p and sets g's initial values. On a GPU it first fills the memory
// with NaN.
func loadWithNaNMemory(e engine.Engine, g *nn.Graph, p *plan.Program, seed uint64) (engine.Executable, error) {
	x, err := e.Load(p, nil)
	if err != nil {
		return nil, err
	}
	if ours, onGPU := x.(probe.Executable); onGPU {
		err = ours.FillWithNaN()
	}
	for name, v := range g.InitialValues(int64(seed >> 1)) {
		err = errors.Join(err, x.Set(name, v))
	}
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// trainNetwork runs networkTrainingSteps steps on random batches from seed. The last step uses SGD, the others
// Adam.
func (t *tester) trainNetwork(e engine.Engine, g *nn.Graph, p *plan.Program, seed uint64) (all trainingResults, err error) {
	x, err := loadWithNaNMemory(e, g, p, seed)
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	ours, onGPU := x.(probe.Executable)
	for step := 1; step <= networkTrainingSteps; step++ {
		if err := workload.SetRandomInputs(x, seed+uint64(step)); err != nil {
			return all, err
		}
		u := &optim.Update{Rule: optim.RuleAdam, LearningRate: 1e-3, Step: step, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-6}
		if step == networkTrainingSteps {
			u = &optim.Update{Rule: optim.RuleSGD, LearningRate: 1e-2, Momentum: 0.9, Step: step}
		}
		if _, err := x.Step(t.ctx, nil, u); err != nil {
			return all, err
		}
		all.losses = append(all.losses, x.Loss())
		for _, q := range p.Params {
			v, err := x.Gradient(q.Name)
			if err != nil {
				return all, err
			}
			if step == 1 {
				all.gradients = append(all.gradients, v...)
			}
		}
	}
	if err := all.readFinalTensors(x); err != nil {
		return all, err
	}
	if onGPU {
		all.kernels = t.recordKernels(ours.LaunchedKernels())
		// The kernel that rounds the weights ran before the first step.
		t.kernels["cast_from_f32_"+number.KernelType(t.low).String()] = true
	}
	return all, nil
}
