package selftest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/internal/workload"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/nccl"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// checkSyncNorms checks complete steps with synchronized batch norms against the reference
// engine. It trains two ranks on this GPU, which synchronize through the host, and one rank
// that synchronizes through NCCL, with and without captured graphs.
func (t *tester) checkSyncNorms() error {
	const host, alone = "synchronised batch norms of 2 ranks through the host", "synchronised batch norms by NCCL, one rank"
	seed := t.random.Uint64()
	whole := func(ranks int) (trainingResults, error) {
		g, p, err := lowerUNet(ranks*workload.BatchSize, true)
		if err != nil {
			return trainingResults{}, err
		}
		all, err := t.trainRank(t.truth, g, p, rankSetup{ranks: 1}, seed)
		return all, err
	}
	if t.isSelected(host) {
		want, err := whole(2)
		if err != nil {
			return err
		}
		g, p, err := lowerUNet(workload.BatchSize, true)
		if err != nil {
			return err
		}
		shape := fmt.Sprintf("U-Net, batches of %d", workload.BatchSize)
		var runs [2][]trainingResults // without and with graphs
		for i, graph := range []bool{false, true} {
			if runs[i], err = t.trainTwoRanks(graph, g, p, seed); err != nil {
				return t.addFailure(Check{Name: host, Shape: shape}, err)
			}
		}
		t.compareRanks(host, shape, runs, want)
	}
	if !t.isSelected(alone) {
		return nil
	}
	library, err := t.engine.NCCL()
	if err != nil {
		t.addCheck(Check{Name: alone + ": left out", Detail: err.Error()})
		return nil
	}
	want, err := whole(1)
	if err != nil {
		return err
	}
	g, p, err := lowerUNet(workload.BatchSize, true)
	if err != nil {
		return err
	}
	shape := fmt.Sprintf("U-Net, batch %d", workload.BatchSize)
	var runs [2][]trainingResults
	for i, graph := range []bool{false, true} {
		one, err := t.trainNCCLRank(library, graph, g, p, seed)
		if err != nil {
			return t.addFailure(Check{Name: alone, Shape: shape}, err)
		}
		runs[i] = []trainingResults{one}
	}
	t.compareRanks(alone, shape, runs, want)
	return nil
}

// compareRanks compares the results of the ranks with want, the results of the reference
// engine, and with each other. runs[0] are the ranks' results without CUDA graphs, runs[1] with
// them.
func (t *tester) compareRanks(name, shape string, runs [2][]trainingResults, want trainingResults) {
	plain, n := runs[0], float64(len(runs[0]))
	t.addCheck(Check{
		Name: name + ": gradients (1 − cosine)", Shape: shape, Error: 1 - number.CosineSimilarity(plain[0].gradients, want.gradients),
		Bound: map[string]float64{"fp32": 1e-5, "tf32": 5e-3, "fp16": 1e-2, "bf16": 0.1}[t.precision], Kernels: plain[0].kernels,
	})
	off, differ := 0.0, 0
	for i, w := range want.losses {
		loss := 0.0
		for _, r := range plain {
			loss += r.losses[i] / n
		}
		off = max(off, math.Abs(loss-w))
	}
	t.addCheck(Check{
		Name: name + ": losses", Shape: shape, Error: off,
		Bound: map[string]float64{"fp32": 1e-3, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2}[t.precision],
	})
	for i, r := range plain {
		differ += number.CountDifferences(r.after, plain[0].after) + number.CountDifferences(r.after, runs[1][i].after) + number.CountDifferences(r.losses, runs[1][i].losses)
	}
	t.addCheck(Check{Name: name + ": every rank, with and without a CUDA graph (numbers that differ)", Shape: shape, Error: float64(differ)})
}

// rankSetup identifies one of several ranks, and contains the functions with which it
// synchronizes with the others.
type rankSetup struct {
	rank, ranks int
	sync        engine.GradSync
	barrier     func() error // waits for the other ranks between steps; nil if there are none
}

// trainRank runs networkTrainingSteps steps with Adam on random batches from seed, of which rank r gets
// its part.
func (t *tester) trainRank(e engine.Engine, g *nn.Graph, p *plan.Program, r rankSetup, seed uint64) (all trainingResults, err error) {
	x, err := loadWithNaNMemory(e, g, p, seed)
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	// Calls that wait for the whole GPU must not run while another rank captures a graph.
	barrier := func() error {
		if r.barrier == nil {
			return nil
		}
		return r.barrier()
	}
	for step := 1; step <= networkTrainingSteps; step++ {
		if err := setRankInputs(x, seed+uint64(step), r); err != nil {
			return all, err
		}
		if err := barrier(); err != nil {
			return all, err
		}
		u := &optim.Update{Rule: optim.RuleAdam, LearningRate: 1e-3, Step: step, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-6}
		if _, err := x.Step(t.ctx, r.sync, u); err != nil {
			return all, err
		}
		if err := barrier(); err != nil {
			return all, err
		}
		all.losses = append(all.losses, x.Loss())
		for _, q := range p.Params {
			if step > 1 {
				break
			}
			v, err := x.Gradient(q.Name)
			if err != nil {
				return all, err
			}
			all.gradients = append(all.gradients, v...)
		}
	}
	return all, all.readFinalTensors(x)
}

// setRankInputs sets the rank's part of a batch that does not depend on the number of
// ranks.
func setRankInputs(x engine.Executable, seed uint64, r rankSetup) error {
	p := x.Program()
	for i, name := range []string{model.ImageInput, model.TargetInput} {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		n := p.Tensors[p.FindTensor(plan.Input, name)].Elements()
		v := make([]float32, n*r.ranks)
		for k := range v {
			v[k] = random.Float32()
			if name == model.TargetInput {
				v[k] = float32(math.Round(float64(v[k])))
			}
		}
		if err := x.SetInput(name, v[r.rank*n:][:n]); err != nil {
			return err
		}
	}
	return nil
}

// trainTwoRanks trains two ranks on one GPU. Each has its own engine, and they exchange on the
// host.
func (t *tester) trainTwoRanks(graph bool, g *nn.Graph, p *plan.Program, seed uint64) ([]trainingResults, error) {
	groups := collective.InProcess(2)
	all, errs := make([]trainingResults, len(groups)), make([]error, len(groups))
	engines := make([]*cuda.Engine, len(groups))
	for i := range engines {
		var err error
		if engines[i], err = t.startEngine(func(o *engine.Options) { o.Graph = graph }); err != nil {
			return nil, err
		}
		defer func() { _ = engines[i].Close() }()
	}
	var ranks sync.WaitGroup
	for i, group := range groups {
		ranks.Go(func() {
			r := rankSetup{rank: i, ranks: len(groups), sync: &hostGradSync{ctx: t.ctx, group: group}, barrier: func() error { return group.Barrier(t.ctx) }}
			all[i], errs[i] = t.trainRank(engines[i], g, p, r, seed)
			errs[i] = errors.Join(errs[i], group.Close()) // if a rank fails, the other one stops waiting
		})
	}
	ranks.Wait()
	return all, errors.Join(errs...)
}

// hostGradSync exchanges gradients and statistics through a group on the host.
type hostGradSync struct {
	ctx   context.Context
	group collective.Group
}

func (h *hostGradSync) ReduceBucket(_ int, b device.Buffer, _ device.Stream) error {
	if err := h.group.AllReduce(h.ctx, b); err != nil {
		return err
	}
	for i := range b.F32 {
		b.F32[i] /= float32(h.group.Size())
	}
	return nil
}

func (h *hostGradSync) shareStatistics(own []float64) ([]float64, error) {
	all := make([]float64, len(own)*h.group.Size())
	copy(all[len(own)*h.group.Rank():], own)
	return all, h.group.AllGather(h.ctx, device.Buffer{F64: all})
}

func (h *hostGradSync) Wait() error { return nil }

func (h *hostGradSync) Capabilities() engine.SyncCapabilities {
	return engine.SyncCapabilities{ShareStatistics: h.shareStatistics}
}

func (t *tester) trainNCCLRank(l *nccl.Library, graph bool, g *nn.Graph, p *plan.Program, seed uint64) (all trainingResults, err error) {
	e, err := t.startEngine(func(o *engine.Options) { o.Graph = graph })
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	s := &oneRankNormSync{oneRankSync{lib: l}}
	err = e.Do(func() error {
		id, err := l.GetUniqueID()
		if err != nil {
			return err
		}
		s.comm, err = l.CommInit(1, 0, id)
		return err
	})
	if err != nil {
		return all, err
	}
	all, err = t.trainRank(e, g, p, rankSetup{ranks: 1, sync: s}, seed)
	return all, errors.Join(err, e.Do(func() error { return l.CommDestroy(s.comm) }))
}

// oneRankNormSync is a oneRankSync that also exchanges statistics, which must not change.
type oneRankNormSync struct{ oneRankSync }

func (r *oneRankNormSync) Capabilities() engine.SyncCapabilities {
	return engine.SyncCapabilities{Enqueues: true, SumStatistics: r.sumStatistics}
}

func (r *oneRankNormSync) sumStatistics(v device.Buffer, s device.Stream) error {
	p := driver.Ptr(v.Pointer)
	return r.lib.AllReduce(p, p, int64(v.Len()), nccl.Float64, nccl.Sum, r.comm, driver.Stream(s.Handle))
}
