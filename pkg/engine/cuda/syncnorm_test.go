package cuda

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/cudatest"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/internal/workload"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
	"lockstep/pkg/strategy"
)

// normAndGradient is a batch norm in training and its gradient for a dy that is an
// input: batches of shape.
func normAndGradient(shape []int, relu, sync bool) *plan.Program {
	p := &plan.Program{Loss: -1, Forward: 1}
	c := []int{shape[1]}
	add := func(role plan.TensorRole, list *[]int, name string, s []int) int {
		p.Tensors = append(p.Tensors, plan.Tensor{Name: name, Shape: s, Role: role})
		id := len(p.Tensors) - 1
		if list != nil {
			*list = append(*list, id)
		}
		return id
	}
	x, dy := add(plan.Input, &p.Inputs, "x", shape), add(plan.Input, &p.Inputs, "dy", shape)
	gamma, beta := add(plan.Input, &p.Inputs, "gamma", c), add(plan.Input, &p.Inputs, "beta", c)
	mean, variance := add(plan.State, &p.States, "mean", c), add(plan.State, &p.States, "variance", c)
	y, saved, inv := add(plan.Output, &p.Outputs, "y", shape), add(plan.Activation, nil, "saved", c), add(plan.Activation, nil, "inv", c)
	dx, dgamma, dbeta := add(plan.Output, &p.Outputs, "dx", shape), add(plan.Output, &p.Outputs, "dgamma", c), add(plan.Output, &p.Outputs, "dbeta", c)
	back := []int{x, gamma, saved, inv, dy}
	if relu {
		back = append(back, y, beta)
	}
	p.Kernels = []plan.Kernel{
		{Op: plan.OpBatchNorm, Name: "norm", In: []int{x, gamma, beta, mean, variance}, Out: []int{y, saved, inv}, Attr: plan.KernelAttr{Training: true, ReLU: relu, Sync: sync, Epsilon: 1e-5, Momentum: 0.1}},
		{Op: plan.OpBatchNormBackward, Name: "norm", In: back, Out: []int{dx, dgamma, dbeta}, Attr: plan.KernelAttr{ReLU: relu, Sync: sync}, Backward: true},
	}
	workload.SetLifetimes(p)
	return p
}

// normed runs some steps of p on the part of all images that starts at lo, and returns the
// outputs and states after the last step, by name.
func normed(t testing.TB, e engine.Engine, p *plan.Program, sync engine.GradSync, lo, all int, precision string) (map[string][]float64, error) {
	x, err := e.Load(p, nil)
	if err != nil {
		return nil, err
	}
	poison(t, x)
	for step := range uint64(3) { // as it is, recorded, and replayed
		for i, id := range p.Inputs {
			in := p.Tensors[id]
			n := in.Elements()
			if len(in.Shape) > 1 {
				n = n / in.Shape[0] * all
			}
			random := rand.New(rand.NewPCG(step, uint64(i)))
			v := make([]float32, n)
			for j := range v {
				v[j] = float32(1 + random.NormFloat64())
			}
			if len(in.Shape) > 1 {
				v = v[lo*in.Elements()/in.Shape[0]:][:in.Elements()]
				typ := number.ActivationType(precision)
				v = number.Decode(typ, number.Encode(typ, v))
			}
			if err := x.SetInput(in.Name, v); err != nil {
				return nil, err
			}
		}
		if _, err := x.Step(context.Background(), sync, nil); err != nil {
			return nil, err
		}
	}
	out := map[string][]float64{}
	for _, id := range p.Outputs {
		v := make([]float32, p.Tensors[id].Elements())
		if err := x.Output(p.Tensors[id].Name, v); err != nil {
			return nil, err
		}
		out[p.Tensors[id].Name] = number.ToFloat64(v)
	}
	for _, id := range p.States {
		if out[p.Tensors[id].Name], err = x.Get(p.Tensors[id].Name); err != nil {
			return nil, err
		}
	}
	return out, errors.Join(checkPadding(x), x.Close())
}

// TestSynchronisedNorm: three ranks with 3, 1 and 2 images compute what the reference
// does in float64 with all 6, and have the same running statistics, bit for bit: through
// the host and by NCCL, in every precision. Ranks that keep their statistics to
// themselves do not.
func TestSynchronisedNorm(t *testing.T) {
	shards, all := []int{3, 1, 2}, 6
	for _, c := range []struct {
		name, precision string
		channels        int
		relu, alone     bool
	}{
		{"host", "fp32", 10, false, false},
		{"host", "fp32", 40, true, false},
		{"host", "bf16", 10, true, false},
		{"host", "fp16", 10, false, false},
		{"host", "fp32", 10, true, true},
		{"nccl", "fp32", 10, true, false},
		{"nccl", "bf16", 40, false, false},
		{"nccl", "fp32", 10, false, true},
	} {
		t.Run(fmt.Sprintf("%s/%s/%d/relu-%v/alone-%v", c.name, c.precision, c.channels, c.relu, c.alone), func(t *testing.T) {
			shape := []int{all, c.channels, 7, 5}
			want, err := normed(t, truth(t), normAndGradient(shape, c.relu, false), nil, 0, all, c.precision)
			if err != nil {
				t.Fatal(err)
			}
			ranks := ranksBy(t, c.name, len(shards), gpuOptions(c.precision), c.alone)
			got := make([]map[string][]float64, len(shards))
			together(t, len(shards), func(i int) (err error) {
				lo := 0
				for _, n := range shards[:i] {
					lo += n
				}
				got[i], err = normed(t, ranks[i].engine, normAndGradient([]int{shards[i], c.channels, 7, 5}, c.relu, true), ranks[i].sync, lo, all, c.precision)
				return errors.Join(err, ranks[i].sync.Close())
			})
			joined := map[string][]float64{"dgamma": make([]float64, c.channels), "dbeta": make([]float64, c.channels)}
			for rank, m := range got {
				joined["y"], joined["dx"] = append(joined["y"], m["y"]...), append(joined["dx"], m["dx"]...)
				for _, name := range []string{"dgamma", "dbeta"} { // sums over a rank's own
					for i, v := range m[name] {
						joined[name][i] += v
					}
				}
				for _, name := range []string{"mean", "variance"} {
					joined[name] = m[name]
					if !c.alone && !slices.Equal(m[name], got[0][name]) {
						t.Errorf("running %s of rank %d is %v, of rank 0 %v", name, rank, m[name], got[0][name])
					}
				}
			}
			for name, w := range want {
				if !c.alone {
					near(t, name, joined[name], w, 2*tolerance(c.precision))
				} else if d := distance(w, joined[name]); name != "dbeta" && !(d > 1e-3) {
					t.Errorf("%s is off by %.2g only: that statistics are each rank's own is not noticed", name, d)
				}
			}
		})
	}
}

// ranksBy are ranks that exchange through the host or by NCCL; alone with statistics that
// each keeps to itself.
func ranksBy(t *testing.T, kind string, n int, o engine.Options, alone bool) []rank {
	if kind == "nccl" {
		ranks := onTheirOwn(t, n, o, strategy.NCCLOptions{}, cudatest.NewMachine)
		for i, r := range ranks {
			if s, ok := r.sync.(*strategy.NCCL); ok && alone {
				ranks[i].sync = ownNorms{s}
			}
		}
		return ranks
	}
	ranks := onOneGPU(t, n, o)
	for i := range ranks {
		if !alone {
			continue
		}
		if err := ranks[i].sync.Close(); err != nil {
			t.Fatal(err)
		}
		ranks[i].sync = ownNormsOnHost{strategy.NewDDP(context.Background(), ranks[i].group)}
	}
	return ranks
}

// ownNorms is NCCL which leaves statistics as they are.
type ownNorms struct{ *strategy.NCCL }

func (s ownNorms) Capabilities() engine.SyncCapabilities {
	c := s.NCCL.Capabilities()
	c.SumStatistics = func(device.Buffer, device.Stream) error { return nil }
	return c
}

// ownNormsOnHost is DDP which leaves statistics as they are.
type ownNormsOnHost struct{ *strategy.DDP }

func (s ownNormsOnHost) Capabilities() engine.SyncCapabilities {
	c := s.DDP.Capabilities()
	c.ShareStatistics = func(own []float64) ([]float64, error) { return own, nil }
	return c
}

// smoothNet has batch norms and no decisions, which a last bit would turn.
func smoothNet(t testing.TB, batch int, o plan.Options) (*nn.Graph, *plan.Program) {
	t.Helper()
	g := nn.NewGraph(nn.Train)
	x := g.Input(model.ImageInput, batch, 2, 8, 6)
	for i, channels := range []int{6, 12, 10} {
		name := fmt.Sprint("block", i)
		x = g.Tanh(g.BatchNorm(name+".norm", g.Conv2D(name+".conv", x, channels, 3, 1, 1, false)))
	}
	z := g.Conv2D("head", x, 1, 1, 1, 0, true)
	g.Output(model.LogitsOutput, z)
	g.SetLoss(g.BCEWithLogits(z, g.Input(model.TargetInput, batch, 1, 8, 6)))
	if err := g.Err(); err != nil {
		t.Fatal(err)
	}
	p, err := plan.Lower(g, o)
	if err != nil {
		t.Fatal(err)
	}
	return g, p
}

// synced is how the ranks of a test train.
type synced struct {
	kind      string // "host" or "nccl"
	ranks     int
	precision string
	change    func(o *engine.Options)
	recompute bool
	parts     int // batches of an update
	clip      float64
	alone     bool // statistics are not exchanged
}

// lowering is the program's.
func (s synced) lowering() plan.Options {
	return plan.Options{Fuse: true, BucketBytes: 2048, FirstBucketBytes: 512, SyncBatchNorm: true, Recompute: s.recompute}
}

func (s synced) options() engine.Options {
	o := gpuOptions(s.precision)
	if s.change != nil {
		s.change(&o)
	}
	return o
}

// steps trains rank r of n. The batches of the ranks are parts of batches that do not depend on n.
func (s synced) steps(x engine.Executable, sync engine.GradSync, rank, n, steps int) error {
	gather := strategy.NewAccumulator(sync)
	parts := max(1, s.parts)
	for step := 1; step <= steps; step++ {
		gather.Begin(parts)
		for part := range parts {
			for _, id := range x.Program().Inputs {
				in := x.Program().Tensors[id]
				all := make([]float32, n*in.Elements())
				for i := range all {
					v := float32(math.Sin(float64(i*(parts*step+part+1)) + float64(id)))
					if in.Name == model.TargetInput {
						v = float32(math.Round(float64(v * v)))
					}
					all[i] = v
				}
				if err := x.SetInput(in.Name, all[rank*in.Elements():(rank+1)*in.Elements()]); err != nil {
					return err
				}
			}
			by := sync
			if parts > 1 {
				by = gather
			}
			var u *optim.Update
			if part == parts-1 {
				u = &optim.Update{Rule: "sgd", LearningRate: 0.05, Momentum: 0.9, ClipNorm: s.clip, Step: step}
			}
			if _, err := x.Step(context.Background(), by, u); err != nil {
				return fmt.Errorf("rank %d: %w", rank, err)
			}
		}
	}
	return nil
}

const syncedBatch = 12 // of all ranks

// train is what the ranks have after some steps; with 1 rank, which is alone, what the
// whole batch leads to.
func (s synced) train(t *testing.T, steps int) (before map[string][]float64, after []map[string][]float64) {
	t.Helper()
	var ranks []rank
	if s.ranks == 1 {
		ranks = []rank{{engine: open(t, s.options())}}
	} else {
		ranks = ranksBy(t, s.kind, s.ranks, s.options(), s.alone)
	}
	exes := make([]engine.Executable, s.ranks)
	for i := range exes {
		g, p := smoothNet(t, syncedBatch/s.ranks, s.lowering())
		if len(p.Buckets) < 3 {
			t.Fatalf("the test needs several buckets, not %d", len(p.Buckets))
		}
		if again := slices.ContainsFunc(p.Kernels, func(k plan.Kernel) bool { return k.Op == plan.OpBatchNorm && k.Attr.Saved }); again != s.recompute {
			t.Fatalf("a batch norm runs again: %v", again)
		}
		x, err := ranks[i].engine.Load(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		poison(t, x)
		initialise(t, x, g)
		exes[i] = x
	}
	before = snapshot(t, exes[0])
	together(t, s.ranks, func(i int) error {
		var sync engine.GradSync
		if ranks[i].sync != nil {
			sync = ranks[i].sync
		}
		return s.steps(exes[i], sync, i, s.ranks, steps)
	})
	for i, x := range exes {
		after = append(after, snapshot(t, x))
		if err := errors.Join(checkPadding(x), x.Close()); err != nil {
			t.Error(err)
		}
		if ranks[i].sync != nil {
			if err := ranks[i].sync.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	return before, after
}

// TestSynchronisedTraining: N ranks with synchronised batch norms lead to what one does
// with an N-fold batch, parameters and running statistics, and to the same bits on all
// ranks: through the host and by NCCL, with and without overlap, with activations computed
// again, with several batches an update, clipped, in every precision. With statistics
// that are not exchanged they do not.
func TestSynchronisedTraining(t *testing.T) {
	apart := func(o *engine.Options) { o.Overlap = false }
	type outcome struct {
		before map[string][]float64
		after  []map[string][]float64
	}
	alone := map[string]outcome{} // what one leads to
	for _, c := range []struct {
		synced
		steps     int
		tolerance float64
	}{
		{synced{kind: "host", ranks: 2, precision: "fp32"}, 8, 1e-5},
		{synced{kind: "host", ranks: 3, precision: "fp32", change: apart}, 8, 1e-5},
		{synced{kind: "host", ranks: 2, precision: "fp32", recompute: true}, 8, 1e-5},
		{synced{kind: "host", ranks: 2, precision: "fp32", parts: 2, clip: 0.5}, 8, 1e-5},
		{synced{kind: "host", ranks: 2, precision: "fp16", parts: 2}, 8, 5e-3},
		{synced{kind: "host", ranks: 3, precision: "bf16", recompute: true}, 8, 3e-2},
		{synced{kind: "nccl", ranks: 2, precision: "fp32"}, 8, 1e-5},
		{synced{kind: "nccl", ranks: 3, precision: "fp32", parts: 2, clip: 0.5, recompute: true}, 8, 1e-5},
		{synced{kind: "nccl", ranks: 3, precision: "fp32", change: apart}, 8, 1e-5},
		{synced{kind: "nccl", ranks: 2, precision: "fp16"}, 8, 5e-3},
		{synced{kind: "nccl", ranks: 2, precision: "bf16"}, 8, 3e-2},
		{synced{kind: "host", ranks: 2, precision: "fp32", alone: true}, 8, 1e-5},
		{synced{kind: "nccl", ranks: 2, precision: "fp32", alone: true}, 8, 1e-5},
	} {
		name := fmt.Sprintf("%s/%d-ranks/%s/overlap-%v/recompute-%v/parts-%d/clip-%v/alone-%v", c.kind, c.ranks, c.precision, c.change == nil, c.recompute, c.parts, c.clip, c.alone)
		t.Run(name, func(t *testing.T) {
			key := fmt.Sprint(c.precision, c.parts, c.clip, c.steps)
			if alone[key].after == nil {
				one := c.synced
				one.ranks, one.alone, one.change, one.recompute = 1, false, nil, false
				before, after := one.train(t, c.steps)
				alone[key] = outcome{before, after}
			}
			before, want := alone[key].before, alone[key].after
			_, got := c.train(t, c.steps)
			worst := 0.0
			for name, w := range want[0] {
				if strings.HasPrefix(name, optimizerSlotPrefix) {
					continue
				}
				d := distance(w, got[0][name])
				worst = max(worst, d)
				if !c.alone && !(d <= c.tolerance) {
					t.Errorf("%s is off by %v of its norm", name, d)
				}
				if moved := distance(before[name], w); !(moved > 3e-4) && largest(before[name]) > 0 {
					t.Errorf("%s moved by %v only: the comparison means nothing", name, moved)
				}
			}
			if c.alone {
				if !(worst > 100*c.tolerance) {
					t.Errorf("statistics that are not exchanged make a difference of %v only", worst)
				}
				return
			}
			for i := range got {
				for name, v := range got[0] {
					near(t, fmt.Sprintf("rank %d's %s", i, name), got[i][name], v, 0)
				}
			}
		})
	}
}

// TestSynchronisedTheSameBits: neither recording, nor overlap, nor activations that are
// computed again change a bit.
func TestSynchronisedTheSameBits(t *testing.T) {
	for _, kind := range []string{"host", "nccl"} {
		base := synced{kind: kind, ranks: 2, precision: "fp32"}
		_, want := base.train(t, 4)
		for name, change := range map[string]func(s *synced){
			"not recorded":       func(s *synced) { s.change = func(o *engine.Options) { o.Graph = false } },
			"without overlap":    func(s *synced) { s.change = func(o *engine.Options) { o.Overlap = false } },
			"computed again":     func(s *synced) { s.recompute = true },
			"the other exchange": func(s *synced) { s.kind = map[string]string{"host": "nccl", "nccl": "host"}[kind] },
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				s := base
				change(&s)
				_, got := s.train(t, 4)
				for what, v := range want[0] {
					near(t, what, got[0][what], v, 0)
				}
			})
		}
	}
}

// TestSynchronisedAlone: a worker that is alone has the bits of batch norms that are not
// synchronised, and nothing is cut: a step is one launch.
func TestSynchronisedAlone(t *testing.T) {
	for _, precision := range []string{"fp32", "fp16"} {
		var after [2]map[string][]float64
		for i, sync := range []bool{false, true} {
			o := synced{}.lowering()
			o.SyncBatchNorm = sync
			g, p := smoothNet(t, 4, o)
			m := cudatest.NewMachine(t, clibtest.Options{})
			x := loaded(t, openOn(t, m, gpuOptions(precision)), p, g)
			initialise(t, x, g)
			by := strategy.NewDDP(context.Background(), collective.Single())
			for step := 1; step <= 4; step++ {
				feed(t, x, uint64(step))
				m.ResetCalls()
				if _, err := x.Step(context.Background(), by, adam(step)); err != nil {
					t.Fatal(err)
				}
			}
			if n := strings.Count(strings.Join(m.Calls(), "\n"), "cuGraphLaunch"); n != 1 {
				t.Errorf("a step takes %d launches", n)
			}
			after[i] = snapshot(t, x)
			if err := by.Close(); err != nil {
				t.Error(err)
			}
		}
		for name, v := range after[0] {
			near(t, precision+": "+name, after[1][name], v, 0)
		}
	}
}
