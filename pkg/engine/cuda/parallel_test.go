package cuda

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/cudatest"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
	"lockstep/pkg/strategy"
)

// rank is a worker of a test, with what it exchanges gradients by.
type rank struct {
	group collective.Group
	sync  interface {
		engine.GradSync
		Close() error
	}
	engine *Engine
}

// together runs f for every rank at once.
func together(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// onOneGPU are ranks that share a GPU and exchange through the host. Each has a
// machine of its own, as each is a process with a context of its own: in one
// context a rank must not copy while another records.
func onOneGPU(t *testing.T, n int, o engine.Options) []rank {
	var ranks []rank
	for _, g := range collective.InProcess(n) {
		e := openOn(t, cudatest.NewMachine(t, clibtest.Options{}), o) // first, because it may skip the test
		ranks = append(ranks, rank{g, strategy.NewDDP(context.Background(), g), e})
	}
	return ranks
}

// onTheirOwn are ranks with a GPU each, which exchange by NCCL.
func onTheirOwn(t *testing.T, n int, o engine.Options, options strategy.NCCLOptions, machine func(testing.TB, clibtest.Options) *clibtest.Machine) []rank {
	net := clibtest.NewNCCLNetwork()
	ranks := make([]rank, n)
	for i, g := range collective.InProcess(n) {
		ranks[i] = rank{group: g, engine: openRank(t, machine(t, clibtest.Options{Network: net, Devices: n}), o, i)}
	}
	together(t, n, func(i int) (err error) {
		ranks[i].sync, err = strategy.NewNCCL(context.Background(), ranks[i].engine.Accelerator(), ranks[i].group, options)
		return err
	})
	return ranks
}

// plainUNet returns a U-Net without batch norms, whose statistics would depend on the shard.
func plainUNet() model.UNet2DConfig {
	return model.UNet2DConfig{Base: 8, Depth: 1, InChannels: 1, OutChannels: 1, Height: 8, Width: 8, Norm: "none", Bias: true}
}

// shardedSteps trains: in every step rank r of n gets its part of a batch that
// does not depend on n.
func shardedSteps(x engine.Executable, sync engine.GradSync, rank, n, steps int) error {
	for step := 1; step <= steps; step++ {
		for _, id := range x.Program().Inputs {
			in := x.Program().Tensors[id]
			all := make([]float32, n*in.Elements())
			for i := range all {
				v := float32(math.Sin(float64(i*(step+1)) + float64(id)))
				if in.Name == model.TargetInput {
					v = float32(math.Round(float64(v * v)))
				}
				all[i] = v
			}
			if err := x.SetInput(in.Name, all[rank*in.Elements():(rank+1)*in.Elements()]); err != nil {
				return err
			}
		}
		u := optim.Update{Rule: "sgd", LearningRate: 0.05, Momentum: 0.9, Step: step}
		if _, err := x.Step(context.Background(), sync, &u); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	return nil
}

// TestDataParallel is the invariant: N workers compute what one does with an
// N-fold batch, to 1e-5 of each parameter's norm after 20 steps of SGD in fp32,
// whether N ranks share a GPU and exchange through the host or have one each and
// exchange by NCCL; and replicas are equal bit for bit, in every precision.
func TestDataParallel(t *testing.T) {
	const steps, whole = 20, 4
	start := func(t *testing.T, e engine.Engine, batch int) engine.Executable {
		g, p := programOf(t, plainUNet(), batch, nn.Train, plan.Options{Fuse: true, BucketBytes: 4096, FirstBucketBytes: 1024})
		if len(p.Buckets) < 3 {
			t.Fatalf("the test needs several buckets, not %d", len(p.Buckets))
		}
		x, err := e.Load(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		// PyTorch's initial weights, whose signal fades from layer to layer without
		// batch norm, scaled to He's variance of 2/fan-in (He et al. 2015, eq. 10).
		for name, v := range g.InitialValues(3) {
			for i := range v {
				v[i] *= math.Sqrt(6)
			}
			if err := x.Set(name, v); err != nil {
				t.Fatal(err)
			}
		}
		return x
	}
	for _, c := range []struct {
		name      string
		precision string
		ranks     int
		overlap   bool
		tolerance float64
		make      func(t *testing.T, n int, o engine.Options) []rank
	}{
		{"host", "fp32", 2, true, 1e-5, onOneGPU},
		{"host", "fp32", 4, true, 1e-5, onOneGPU},
		{"host", "fp32", 2, false, 1e-5, onOneGPU},
		{"host", "fp16", 2, true, 5e-3, onOneGPU},
		{"nccl", "fp32", 4, true, 1e-5, nil},
		{"nccl", "bf16", 2, true, 3e-2, nil},
	} {
		t.Run(fmt.Sprintf("%s/%s/%d-ranks/overlap-%v", c.name, c.precision, c.ranks, c.overlap), func(t *testing.T) {
			o := gpuOptions(c.precision)
			o.Overlap = c.overlap
			one := start(t, open(t, o), whole)
			before := snapshot(t, one)
			if err := shardedSteps(one, nil, 0, 1, steps); err != nil {
				t.Fatal(err)
			}
			want := snapshot(t, one)

			var ranks []rank
			if c.make != nil {
				ranks = c.make(t, c.ranks, o)
			} else {
				ranks = onTheirOwn(t, c.ranks, o, strategy.NCCLOptions{}, cudatest.NewMachine)
			}
			replicas := make([]engine.Executable, c.ranks)
			for i, r := range ranks {
				replicas[i] = start(t, r.engine, whole/c.ranks)
			}
			together(t, c.ranks, func(i int) error { return shardedSteps(replicas[i], ranks[i].sync, i, c.ranks, steps) })
			got := snapshot(t, replicas[0])
			for _, q := range one.Program().Params {
				if d := distance(want[q.Name], got[q.Name]); !(d <= c.tolerance) {
					t.Errorf("%s is off by %v of its norm", q.Name, d)
				}
				if d := distance(before[q.Name], want[q.Name]); d < 1e-3 {
					t.Errorf("%s moved by %v only: the comparison means nothing", q.Name, d)
				}
			}
			for i, x := range replicas[1:] {
				for name, v := range snapshot(t, x) {
					near(t, fmt.Sprintf("rank %d's %s", i+1, name), v, got[name], 0)
				}
			}
			for i, x := range replicas {
				if err := errors.Join(x.Close(), ranks[i].sync.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// distance is ‖a−b‖₂/‖a‖₂.
func distance(a, b []float64) float64 {
	var d, n float64
	for i := range a {
		d += (a[i] - b[i]) * (a[i] - b[i])
		n += a[i] * a[i]
	}
	return math.Sqrt(d / n)
}

// TestNCCLRefusesASharedGPU: two ranks of one GPU are told so, at the start.
func TestNCCLRefusesASharedGPU(t *testing.T) {
	m := cudatest.NewMachine(t, clibtest.Options{})
	groups := collective.InProcess(2)
	engines := []*Engine{openOn(t, m, gpuOptions("fp32")), openOn(t, m, gpuOptions("fp32"))}
	together(t, 2, func(i int) error {
		_, err := strategy.NewNCCL(context.Background(), engines[i].Accelerator(), groups[i], strategy.NCCLOptions{})
		if !errors.Is(err, strategy.ErrSharedGPU) || !strings.Contains(err.Error(), "ranks 0 and 1") {
			return fmt.Errorf("NewNCCL says %w", err)
		}
		return nil
	})
}

// TestMissingRank: a rank that does not come is named, and the others' step ends.
func TestMissingRank(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	// Kernels that do nothing: a step takes no time, so that the time-out is long
	// beside it on a busy machine too.
	idle := func(_ testing.TB, o clibtest.Options) *clibtest.Machine { return clibtest.New(o) }
	ranks := onTheirOwn(t, 3, gpuOptions("fp32"), strategy.NCCLOptions{
		Timeout: 3 * time.Second, Poll: 10 * time.Millisecond, SearchTimeout: 2 * time.Second,
	}, idle)
	g, p := programOf(t, plainUNet(), 1, nn.Train, plan.Options{Fuse: true})
	exes := make([]engine.Executable, 3)
	for i, r := range ranks {
		x, err := r.engine.Load(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		initialise(t, x, g)
		exes[i] = x
	}
	together(t, 3, func(i int) error { return shardedSteps(exes[i], ranks[i].sync, i, 3, 2) })
	together(t, 3, func(i int) error {
		if i == 1 {
			return nil // it stays away
		}
		err := shardedSteps(exes[i], ranks[i].sync, i, 3, 1)
		if err == nil || !strings.Contains(err.Error(), "a step took longer than the time-out of 3s") || !strings.Contains(err.Error(), "rank 1") {
			return fmt.Errorf("rank %d says %w", i, err)
		}
		return nil
	})
	for i, r := range ranks {
		if err := errors.Join(exes[i].Close(), r.sync.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestAloneIsOneLaunch: a worker that is alone has no exchange, so that its gradients
// stay on the GPU and a step is one launch, which leaves loss and control block alone.
func TestAloneIsOneLaunch(t *testing.T) {
	m := clibtest.New(clibtest.Options{}) // kernels that do nothing: the calls count
	g, p := programOf(t, plainUNet(), 1, nn.Train, plan.Options{Fuse: true, BucketBytes: 4096, FirstBucketBytes: 1024})
	x, err := openOn(t, m, gpuOptions("bf16")).Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	initialise(t, x, g)
	sync := strategy.NewDDP(context.Background(), collective.Single())
	for step := 1; step <= 3; step++ {
		m.ResetCalls()
		if _, err := x.Step(context.Background(), sync, adam(step)); err != nil {
			t.Fatal(err)
		}
	}
	calls := strings.Join(m.Calls(), "\n")
	if launches, copies := strings.Count(calls, "cuGraphLaunch"), strings.Count(calls, "cuMemcpy"); launches != 1 || copies != 0 {
		t.Errorf("a step takes %d launches and %d copies beside them:\n%s", launches, copies, calls)
	}
	if err := sync.Close(); err != nil {
		t.Error(err)
	}
}
