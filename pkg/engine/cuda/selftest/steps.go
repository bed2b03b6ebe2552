package selftest

import (
	"errors"
	"fmt"
	"math"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/internal/probe"
	"lockstep/pkg/engine/cuda/internal/workload"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// localAccumulator is a GradSync of one rank that accumulates gradients. For the reference
// engine, it adds them up on the host.
type localAccumulator struct {
	part, parts int
	sums        [][]float64
}

func (a *localAccumulator) Capabilities() engine.SyncCapabilities {
	return engine.SyncCapabilities{Accumulation: &engine.Accumulation{Step: a.part, Steps: a.parts, Done: func() { a.part++ }}}
}

// ReduceBucket adds b, bucket i of the reference engine's float64 gradients, to the sums. In
// the last step of an update, it replaces b by the mean over the update's steps.
func (a *localAccumulator) ReduceBucket(i int, b device.Buffer, _ device.Stream) error {
	if a.part == 1 {
		if i == len(a.sums) {
			a.sums = append(a.sums, nil)
		}
		a.sums[i] = append(a.sums[i][:0], b.F64...)
		return nil
	}
	for k := range b.F64 {
		a.sums[i][k] += b.F64[k]
		b.F64[k] = a.sums[i][k] / float64(a.parts)
	}
	return nil
}

func (a *localAccumulator) Wait() error {
	a.part++
	return nil
}

// lowerUNet returns the graph and the program of a U-Net, with buckets of 4096 bytes.
func lowerUNet(batch int, syncBatchNorm bool) (*nn.Graph, *plan.Program, error) {
	u, err := model.UNet2D(workload.UNetConfigs()[1])
	if err != nil {
		return nil, nil, err
	}
	g, err := u.Graph(batch, nn.Train)
	if err != nil {
		return nil, nil, err
	}
	p, err := plan.Lower(g, plan.Options{Fuse: true, BucketBytes: 4096, SyncBatchNorm: syncBatchNorm})
	return g, p, err
}

// checkUpdateRules checks updates of two batches with each rule of the optimizers, with and
// without graphs.
func (t *tester) checkUpdateRules() error {
	list := []optim.Update{
		{Rule: optim.RuleSGD, Momentum: 0.9, Nesterov: true, ClipNorm: 0.05},
		{Rule: optim.RuleAdamW, WeightDecay: 0.1, ClipNorm: 0.05},
		{Rule: optim.RuleLARS, Momentum: 0.9, Trust: 0.02, WeightDecay: 0.01},
		{Rule: optim.RuleLAMB, WeightDecay: 0.01, ClipNorm: 0.05},
	}
	g, p, err := lowerUNet(workload.BatchSize, false)
	if err != nil {
		return err
	}
	for _, r := range list {
		r.LearningRate, r.Beta1, r.Beta2, r.Epsilon = 1e-2, 0.9, 0.99, 1e-3
		name := "updates of 2 batches by " + r.Rule
		if r.ClipNorm > 0 {
			name += ", clipped"
		}
		if !t.isSelected(name) {
			continue
		}
		if err := t.checkUpdateRule(name, r, g, p); err != nil {
			return err
		}
	}
	return nil
}

// checkUpdateRule checks updates of two batches with the rule of u.
func (t *tester) checkUpdateRule(name string, u optim.Update, g *nn.Graph, p *plan.Program) error {
	shape := fmt.Sprintf("U-Net, batch %d, %d updates", workload.BatchSize, networkTrainingSteps)
	seed := t.random.Uint64()
	want, err := t.trainUpdates(t.truth, u, g, p, seed)
	if err != nil {
		return err
	}
	var runs [2]trainingResults // without and with graphs
	for i, graph := range []bool{false, true} {
		e, err := t.startEngine(func(o *engine.Options) { o.Graph = graph })
		if err == nil {
			runs[i], err = t.trainUpdates(e, u, g, p, seed)
			err = errors.Join(err, e.Close())
		}
		if err != nil {
			return t.addFailure(Check{Name: name, Shape: shape}, err)
		}
	}
	off := 0.0
	for i := range want.losses {
		off = max(off, math.Abs(runs[0].losses[i]-want.losses[i]))
	}
	t.addCheck(Check{
		Name: name + ": losses", Shape: shape, Error: off,
		Bound: map[string]float64{"fp32": 1e-3, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2}[t.precision], Kernels: runs[0].kernels,
	})
	t.addCheck(Check{
		Name: name + ": recorded as a CUDA graph (numbers that differ)", Shape: shape,
		Error: float64(number.CountDifferences(runs[0].after, runs[1].after) + number.CountDifferences(runs[0].losses, runs[1].losses)),
	})
	return nil
}

// trainUpdates runs networkTrainingSteps updates by the rule of u. Each accumulates the gradients of two
// random batches, which depend on seed.
func (t *tester) trainUpdates(e engine.Engine, u optim.Update, g *nn.Graph, p *plan.Program, seed uint64) (all trainingResults, err error) {
	x, err := loadWithNaNMemory(e, g, p, seed)
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	ours, onGPU := x.(probe.Executable)
	sum := &localAccumulator{parts: 2}
	for u.Step = 1; u.Step <= networkTrainingSteps; u.Step++ {
		for sum.part = 1; sum.part <= sum.parts; {
			if err := workload.SetRandomInputs(x, seed+uint64(2*u.Step+sum.part)); err != nil {
				return all, err
			}
			var update *optim.Update
			if sum.part == sum.parts {
				update = &u
			}
			if _, err := x.Step(t.ctx, sum, update); err != nil {
				return all, err
			}
			all.losses = append(all.losses, x.Loss())
		}
	}
	if err := all.readFinalTensors(x); err != nil {
		return all, err
	}
	if onGPU {
		all.kernels = t.recordKernels(ours.LaunchedKernels())
	}
	return all, nil
}
