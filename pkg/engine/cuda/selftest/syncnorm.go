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

// synchronizedNorms checks complete steps with synchronized batch norms. Two ranks on this GPU
// that synchronize on the host are compared with the reference on both batches together.
// One rank with NCCL, whose steps are captured in a graph, is compared with the reference
// too.
func (t *tester) synchronizedNorms() error {
	const host, alone = "synchronised batch norms of 2 ranks through the host", "synchronised batch norms by NCCL, one rank"
	u, err := model.UNet2D(workload.UNets()[1])
	if err != nil {
		return err
	}
	seed := t.random.Uint64()
	lowered := func(batch int) (g *nn.Graph, p *plan.Program, err error) {
		if g, err = u.Graph(batch, nn.Train); err == nil {
			p, err = plan.Lower(g, plan.Options{Fuse: true, BucketBytes: 4096, SyncBatchNorm: true})
		}
		return g, p, err
	}
	whole := func(ranks int) (trace, error) {
		g, p, err := lowered(ranks * workload.Batch)
		if err != nil {
			return trace{}, err
		}
		all, err := t.trainRank(t.truth, g, p, ranked{ranks: 1}, seed)
		return all, err
	}
	if t.wanted(host) {
		want, err := whole(2)
		if err != nil {
			return err
		}
		g, p, err := lowered(workload.Batch)
		if err != nil {
			return err
		}
		shape := fmt.Sprintf("U-Net, batches of %d", workload.Batch)
		var runs [2][]trace // without and with graphs
		for i, graph := range []bool{false, true} {
			if runs[i], err = t.ranksOnHost(graph, g, p, seed); err != nil {
				return t.failed(Check{Name: host, Shape: shape}, err)
			}
		}
		t.compareRanks(host, shape, runs, want)
	}
	if !t.wanted(alone) {
		return nil
	}
	library, err := t.engine.NCCL()
	if err != nil {
		t.add(Check{Name: alone + ": left out", Detail: err.Error()})
		return nil
	}
	want, err := whole(1)
	if err != nil {
		return err
	}
	g, p, err := lowered(workload.Batch)
	if err != nil {
		return err
	}
	shape := fmt.Sprintf("U-Net, batch %d", workload.Batch)
	var runs [2][]trace
	for i, graph := range []bool{false, true} {
		one, err := t.rankOfNCCL(library, graph, g, p, seed)
		if err != nil {
			return t.failed(Check{Name: alone, Shape: shape}, err)
		}
		runs[i] = []trace{one}
	}
	t.compareRanks(alone, shape, runs, want)
	return nil
}

// compareRanks compares the ranks' results, without and with graphs, with the reference,
// and the ranks with one another.
func (t *tester) compareRanks(name, shape string, runs [2][]trace, want trace) {
	plain, n := runs[0], float64(len(runs[0]))
	t.add(Check{
		Name: name + ": gradients (1 − cosine)", Shape: shape, Error: 1 - number.Cosine(plain[0].gradients, want.gradients),
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
	t.add(Check{
		Name: name + ": losses", Shape: shape, Error: off,
		Bound: map[string]float64{"fp32": 1e-3, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2}[t.precision],
	})
	for i, r := range plain {
		differ += number.Differing(r.after, plain[0].after) + number.Differing(r.after, runs[1][i].after) + number.Differing(r.losses, runs[1][i].losses)
	}
	t.add(Check{Name: name + ": every rank, recorded or not (numbers that differ)", Shape: shape, Error: float64(differ)})
}

// ranked is one of several ranks, with its exchange.
type ranked struct {
	rank, ranks int
	sync        engine.GradSync
	meet        func() error // waits for the other ranks outside of a step; nil: there are no others
}

// trainRank runs some steps with Adam on a rank's part of batches from seed.
func (t *tester) trainRank(e engine.Engine, g *nn.Graph, p *plan.Program, r ranked, seed uint64) (all trace, err error) {
	x, err := fresh(e, g, p, seed)
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	// Calls that wait for the complete GPU must not run while another rank captures a
	// graph.
	meet := func() error {
		if r.meet == nil {
			return nil
		}
		return r.meet()
	}
	for step := 1; step <= networkSteps; step++ {
		if err := feedPart(x, seed+uint64(step), r); err != nil {
			return all, err
		}
		if err := meet(); err != nil {
			return all, err
		}
		u := &optim.Update{Rule: optim.RuleAdam, LearningRate: 1e-3, Step: step, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-6}
		if _, err := x.Step(t.ctx, r.sync, u); err != nil {
			return all, err
		}
		if err := meet(); err != nil {
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
	for _, name := range x.Names() {
		v, err := x.Get(name)
		if err != nil {
			return all, err
		}
		all.after = append(all.after, v...)
	}
	return all, nil
}

// feedPart sets x's inputs to its part of a batch of noise and masks. The batch does not
// depend on the number of ranks.
func feedPart(x engine.Executable, seed uint64, r ranked) error {
	p := x.Program()
	for i, name := range []string{model.ImageInput, model.TargetInput} {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		n := p.Tensors[p.Lookup(plan.Input, name)].Elements()
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

// ranksOnHost trains two ranks, each with a separate engine on the same GPU.
func (t *tester) ranksOnHost(graph bool, g *nn.Graph, p *plan.Program, seed uint64) ([]trace, error) {
	groups := collective.InProcess(2)
	all, errs := make([]trace, len(groups)), make([]error, len(groups))
	engines := make([]*cuda.Engine, len(groups))
	for i := range engines {
		var err error
		if engines[i], err = t.start(func(o *engine.Options) { o.Graph = graph }); err != nil {
			return nil, err
		}
		defer func() { _ = engines[i].Close() }()
	}
	var ranks sync.WaitGroup
	for i, group := range groups {
		ranks.Go(func() {
			r := ranked{rank: i, ranks: len(groups), sync: &throughHost{ctx: t.ctx, group: group}, meet: func() error { return group.Barrier(t.ctx) }}
			all[i], errs[i] = t.trainRank(engines[i], g, p, r, seed)
			errs[i] = errors.Join(errs[i], group.Close()) // if a rank fails, the other one stops waiting
		})
	}
	ranks.Wait()
	return all, errors.Join(errs...)
}

// throughHost exchanges through a group on the host.
type throughHost struct {
	ctx   context.Context
	group collective.Group
}

var _ engine.NormSync = (*throughHost)(nil)

func (h *throughHost) Bucket(_ int, b device.Buffer, _ device.Stream) error {
	if err := h.group.AllReduce(h.ctx, b); err != nil {
		return err
	}
	for i := range b.F32 {
		b.F32[i] /= float32(h.group.Size())
	}
	return nil
}

func (h *throughHost) ShareStatistics(own []float64) ([]float64, error) {
	all := make([]float64, len(own)*h.group.Size())
	copy(all[len(own)*h.group.Rank():], own)
	return all, h.group.AllGather(h.ctx, device.Buffer{F64: all})
}

func (h *throughHost) Wait() error      { return nil }
func (h *throughHost) Capturable() bool { return false }

// rankOfNCCL trains the only rank of a communicator.
func (t *tester) rankOfNCCL(l *nccl.Library, graph bool, g *nn.Graph, p *plan.Program, seed uint64) (all trace, err error) {
	e, err := t.start(func(o *engine.Options) { o.Graph = graph })
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	s := &normedRank{oneRank{lib: l}}
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
	all, err = t.trainRank(e, g, p, ranked{ranks: 1, sync: s}, seed)
	return all, errors.Join(err, e.Do(func() error { return l.CommDestroy(s.comm) }))
}

// normedRank is a oneRank that also exchanges statistics, which must not change.
type normedRank struct{ oneRank }

var _ engine.DeviceNormSync = (*normedRank)(nil)

func (r *normedRank) SumStatistics(v device.Buffer, s device.Stream) error {
	p := driver.Ptr(v.Pointer)
	return r.lib.AllReduce(p, p, int64(v.Len()), nccl.Float64, nccl.Sum, r.comm, driver.Stream(s.Handle))
}
