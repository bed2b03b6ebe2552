package selftest

import (
	"errors"
	"fmt"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/internal/probe"
	"lockstep/pkg/engine/cuda/internal/workload"
	"lockstep/pkg/internal/clib"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/nccl"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// oneRankSync is a GradSync of a single rank. It exchanges the buckets through NCCL, which must
// not change them.
type oneRankSync struct {
	lib  *nccl.Library
	comm nccl.Comm
}

func (r oneRankSync) ReduceBucket(i int, b device.Buffer, s device.Stream) error {
	p := driver.Ptr(b.Pointer)
	if err := r.lib.AllReduce(p, p, int64(b.Len()), nccl.Float32, nccl.Avg, r.comm, driver.Stream(s.Handle)); err != nil {
		return fmt.Errorf("all-reduce bucket %d: %w", i, err)
	}
	return nil
}

func (oneRankSync) Wait() error { return nil }

func (oneRankSync) Capabilities() engine.SyncCapabilities {
	return engine.SyncCapabilities{Enqueues: true}
}

// checkNCCLExchange checks those parts of an NCCL exchange that need only one GPU: creating a
// communicator, exchanging buckets in a stream during the backward pass, and capturing the
// exchange in a graph. With one rank, the mean must not change any bit. The check does not
// cover what needs several ranks: their connections, the order of their calls, and the failure
// of a rank.
func (t *tester) checkNCCLExchange() error {
	const name = "steps that exchange by NCCL, one rank"
	if !t.isSelected(name) {
		return nil
	}
	c := Check{Name: name + " (numbers that differ)", Shape: fmt.Sprintf("U-Net, batch %d, %d updates", workload.BatchSize, networkTrainingSteps)}
	if t.stack.NCCL == nil {
		c.Detail = fmt.Sprintf("left out: %v", t.stack.Missing[clib.NCCL])
		t.addCheck(c)
		return nil
	}
	g, p, err := lowerUNet(workload.BatchSize, false)
	if err != nil {
		return err
	}
	seed := t.random.Uint64()
	var runs [3]trainingResults // without an exchange, with an exchange, with an exchange captured in a graph
	for i := range runs {
		if runs[i], err = t.trainWithExchange(g, p, seed, i > 0, i > 1); err != nil {
			return t.addFailure(c, err)
		}
	}
	c.Kernels = runs[2].kernels
	for _, r := range runs[1:] {
		c.Error += float64(number.CountDifferences(runs[0].after, r.after) + number.CountDifferences(runs[0].losses, r.losses))
	}
	t.addCheck(c)
	return nil
}

// trainWithExchange trains on random data from seed. If exchange is set, it exchanges gradients
// through NCCL. If graph is set, it captures steps in CUDA graphs.
func (t *tester) trainWithExchange(g *nn.Graph, p *plan.Program, seed uint64, exchange, graph bool) (all trainingResults, err error) {
	e, err := t.startEngine(func(o *engine.Options) { o.Graph = graph })
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	var sync engine.GradSync
	if exchange {
		r := oneRankSync{lib: t.stack.NCCL}
		err := e.Do(func() error {
			id, err := r.lib.GetUniqueID()
			if err == nil {
				r.comm, err = r.lib.CommInit(1, 0, id)
			}
			return err
		})
		if err != nil {
			return all, err
		}
		defer func() { err = errors.Join(err, e.Do(func() error { return r.lib.CommDestroy(r.comm) })) }()
		sync = r
	}
	x, err := loadWithNaNMemory(e, g, p, seed)
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	ours := x.(probe.Executable)
	for step := 1; step <= networkTrainingSteps; step++ {
		if err := workload.SetRandomInputs(x, seed+uint64(step)); err != nil {
			return all, err
		}
		u := optim.Update{Rule: optim.RuleAdam, LearningRate: 1e-3, Step: step, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-6}
		if _, err := x.Step(t.ctx, sync, &u); err != nil {
			return all, err
		}
		all.losses = append(all.losses, x.Loss())
	}
	if err := all.readFinalTensors(x); err != nil {
		return all, err
	}
	all.kernels = t.recordKernels(ours.LaunchedKernels())
	return all, nil
}
