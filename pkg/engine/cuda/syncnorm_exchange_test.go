package cuda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/optim"
	"lockstep/pkg/strategy"
)

// dying is NCCL on a rank that ends in the midst of a step.
type dying struct {
	*strategy.NCCL
	after int // statistics
}

var errKilled = errors.New("killed")

func (d *dying) Capabilities() engine.SyncCapabilities {
	c := d.NCCL.Capabilities()
	c.SumStatistics = d.sumStatistics
	return c
}

func (d *dying) sumStatistics(v device.Buffer, s device.Stream) error {
	if d.after--; d.after < 0 {
		return errKilled
	}
	return d.NCCL.SumStatistics(v, s)
}

// TestSynchronisedRankKilled checks that the steps of the other ranks fail with an error that
// names the killed rank, for each kind of exchange, if a rank ends between two batch norms,
// before a replayed step, or before the first of two accumulated batches.
func TestSynchronisedRankKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	// Kernels that do nothing: a step takes no time, so that the time-out is long
	// beside it on a busy machine too.
	idle := func(_ testing.TB, o clibtest.Options) *clibtest.Machine { return clibtest.New(o) }
	options := strategy.NCCLOptions{Timeout: 3 * time.Second, Poll: 10 * time.Millisecond, SearchTimeout: 2 * time.Second}
	for _, c := range []struct {
		kind   string
		before int // steps that all do
		after  int // statistics that the rank exchanges in the next step
		parts  int // batches of a step
		want   []string
	}{
		{"nccl", 0, 4, 1, []string{"a step took longer than the time-out of 3s", "rank 1"}},
		{"nccl", 3, 0, 2, []string{"a step took longer than the time-out of 3s", "rank 1"}},
		{"host", 0, 1, 1, []string{"batch norm block1.norm: exchange statistics", "rank 1 has left the group"}},
		{"host", 3, 4, 1, []string{"batch norm block1.norm: exchange statistics", "rank 1 has left the group"}},
	} {
		t.Run(fmt.Sprint(c.kind, "/", c.before, "/", c.after), func(t *testing.T) {
			const n = 3
			var ranks []rank
			if c.kind == "nccl" {
				ranks = onTheirOwn(t, n, gpuOptions("fp32"), options, idle)
			} else {
				for _, g := range collective.InProcess(n) {
					ranks = append(ranks, rank{g, strategy.NewDDP(context.Background(), g), openOn(t, clibtest.New(clibtest.Options{}), gpuOptions("fp32"))})
				}
			}
			s := synced{precision: "fp32", parts: c.parts}
			exes := make([]engine.Executable, n)
			for i, r := range ranks {
				g, p := smoothNet(t, 1, s.lowering())
				x, err := r.engine.Load(p, nil)
				if err != nil {
					t.Fatal(err)
				}
				initialise(t, x, g)
				exes[i] = x
			}
			together(t, n, func(i int) error { return s.steps(exes[i], ranks[i].sync, i, n, c.before) })
			together(t, n, func(i int) error {
				var by engine.GradSync = ranks[i].sync
				if i == 1 {
					if c.kind == "nccl" {
						if c.before > 0 {
							return nil // what is recorded asks nobody: it stays away
						}
						by = &dying{ranks[i].sync.(*strategy.NCCL), c.after}
					} else {
						by = &leaving{ranks[i].sync.(*strategy.DDP), ranks[i].group, c.after}
					}
				}
				err := s.steps(exes[i], by, i, n, 1)
				if i == 1 {
					if !errors.Is(err, errKilled) {
						return fmt.Errorf("rank 1 says %w", err)
					}
					return nil
				}
				for _, w := range c.want {
					if err == nil || !strings.Contains(err.Error(), w) || strings.Count(err.Error(), w) > 1 {
						return fmt.Errorf("rank %d does not say %q once: %w", i, w, err)
					}
				}
				return nil
			})
			for i, r := range ranks {
				if err := errors.Join(exes[i].Close(), r.sync.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// leaving is DDP on a rank that ends in the midst of a step.
type leaving struct {
	*strategy.DDP
	group collective.Group
	after int // statistics
}

func (l *leaving) Capabilities() engine.SyncCapabilities {
	c := l.DDP.Capabilities()
	c.ShareStatistics = l.shareStatistics
	return c
}

func (l *leaving) shareStatistics(own []float64) ([]float64, error) {
	if l.after--; l.after < 0 {
		// Close refuses while DDP finishes the exchange of a bucket.
		err := l.group.Close()
		for begin := time.Now(); err != nil && time.Since(begin) < 10*time.Second; err = l.group.Close() {
			time.Sleep(time.Millisecond)
		}
		return nil, errors.Join(errKilled, err)
	}
	return l.DDP.ShareStatistics(own)
}

// TestSynchronisedErrors: a strategy without statistics is refused, and a step that
// fails leaves everything as it was.
func TestSynchronisedErrors(t *testing.T) {
	g, p := smoothNet(t, 2, synced{}.lowering())
	x := loaded(t, open(t, gpuOptions("fp32")), p, g)
	before := snapshot(t, x)
	u := &optim.Update{Rule: "sgd", LearningRate: 1}
	for _, sync := range []engine.GradSync{quietSync{}, strategy.NewAccumulator(quietSync{})} {
		if _, err := x.Step(context.Background(), sync, u); err == nil || !strings.Contains(err.Error(), "synchronize batch norms: ") || !strings.Contains(err.Error(), "use sync_batchnorm=false") {
			t.Errorf("%T: %v", sync, err)
		}
		unchanged(t, x, before)
	}
	group := collective.InProcess(2)
	if err := group[1].Close(); err != nil {
		t.Fatal(err)
	}
	d := strategy.NewDDP(context.Background(), group[0])
	for range 2 {
		if _, err := x.Step(context.Background(), d, u); err == nil || !strings.Contains(err.Error(), "batch norm block0.norm: exchange statistics: ") {
			t.Errorf("a peer that is gone: %v", err)
		}
		unchanged(t, x, before)
	}
	if err := errors.Join(d.Close(), x.Close()); err != nil {
		t.Error(err)
	}
}

// sharing is a strategy on the host whose ranks all have the same numbers, and which
// remembers the order in which it is asked.
type sharing struct {
	quietSync
	ranks int
	order []string
}

func (s *sharing) ReduceBucket(i int, b device.Buffer, _ device.Stream) error {
	s.order = append(s.order, fmt.Sprint("bucket ", i))
	return nil
}

func (s *sharing) Capabilities() engine.SyncCapabilities {
	return engine.SyncCapabilities{ShareStatistics: s.shareStatistics}
}

func (s *sharing) shareStatistics(own []float64) ([]float64, error) {
	s.order = append(s.order, "statistics")
	return slices.Repeat(own, s.ranks), nil
}

// TestSynchronisedOrder: buckets and statistics come in the order of the program, the
// same whether gradients overlap with the backward pass or not but for the buckets,
// which then come last; and ranks with equal batches compute what one does alone.
func TestSynchronisedOrder(t *testing.T) {
	var outcome [3]map[string][]float64
	for i, want := range []string{
		"statistics statistics statistics statistics bucket 0 statistics bucket 1 statistics bucket 2",
		"statistics statistics statistics statistics statistics statistics bucket 0 bucket 1 bucket 2",
	} {
		o := gpuOptions("fp32")
		o.Overlap = i == 0
		g, p := smoothNet(t, 2, synced{}.lowering())
		x := loaded(t, open(t, o), p, g)
		initialise(t, x, g)
		for step := 1; step <= 3; step++ {
			feed(t, x, uint64(step))
			s := &sharing{ranks: 4}
			if _, err := x.Step(context.Background(), s, &optim.Update{Rule: "sgd", LearningRate: 0.1}); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(s.order, " "); got != want {
				t.Errorf("overlap %v: %s", o.Overlap, got)
			}
		}
		outcome[i] = snapshot(t, x)
	}
	g, p := smoothNet(t, 2, synced{}.lowering())
	x := loaded(t, open(t, gpuOptions("fp32")), p, g)
	initialise(t, x, g)
	for step := 1; step <= 3; step++ {
		feed(t, x, uint64(step))
		if _, err := x.Step(context.Background(), nil, &optim.Update{Rule: "sgd", LearningRate: 0.1}); err != nil {
			t.Fatal(err)
		}
	}
	outcome[2] = snapshot(t, x)
	for name, v := range outcome[2] {
		if strings.HasPrefix(name, optimizerSlotPrefix) || strings.Contains(name, "running_var") { // unbiased by the rows of all
			continue
		}
		near(t, name, outcome[0][name], v, 1e-5)
		near(t, name, outcome[1][name], outcome[0][name], 0)
	}
}

// TestSynchronisedNotFinite: a loss that is not a number ends the step before any bucket
// is handed over, and nothing has changed.
func TestSynchronisedNotFinite(t *testing.T) {
	g, p := smoothNet(t, 2, synced{}.lowering())
	x := loaded(t, open(t, gpuOptions("fp32")), p, g)
	before := snapshot(t, x)
	v := make([]float32, p.Tensors[p.FindTensor(plan.Input, model.ImageInput)].Elements())
	v[5] = float32(math.Inf(1))
	if err := x.SetInput(model.ImageInput, v); err != nil {
		t.Fatal(err)
	}
	s := &sharing{ranks: 2}
	_, err := x.Step(context.Background(), s, &optim.Update{Rule: "sgd", LearningRate: 0.1})
	if !errors.Is(err, engine.ErrNonFinite) || strings.Join(s.order, " ") != "statistics statistics statistics" {
		t.Errorf("%v after %v", err, s.order)
	}
	unchanged(t, x, before)
}

// TestSynchronisedSumsOfConvolutions: what cuDNN sums beside a convolution's result is a
// rank's part of the statistics; where tuning found another algorithm faster on another
// rank, the two still meet.
func TestSynchronisedSumsOfConvolutions(t *testing.T) {
	tuned := func(o *engine.Options) { o.Convolution = "auto" }
	one := synced{ranks: 1, precision: "fp16"}
	_, want := one.train(t, 6)
	for _, kind := range []string{"host", "nccl"} {
		for _, both := range []bool{true, false} {
			s := synced{kind: kind, ranks: 2, precision: "fp16", change: tuned}
			ranks := ranksBy(t, kind, 2, s.options(), false)
			exes := make([]engine.Executable, 2)
			for i, r := range ranks {
				if i == 1 && !both {
					r.engine.options.Convolution = "heuristic"
				}
				g, p := smoothNet(t, syncedBatch/2, s.lowering())
				x, err := r.engine.Load(p, nil)
				if err != nil {
					t.Fatal(err)
				}
				initialise(t, x, g)
				exes[i] = x
				sums := 0
				for _, list := range x.(*executable).exchange.norms.commands {
					if _, convolution := list[0].(*taskCommand).command.(*cudnnPlanCall); convolution && list[1].label() == "statistics_pack" {
						sums++
					}
				}
				if want := 3; i == 0 && sums != want || i == 1 && (sums == want) != both {
					t.Fatalf("rank %d: cuDNN sums for %d batch norms", i, sums)
				}
			}
			together(t, 2, func(i int) error { return s.steps(exes[i], ranks[i].sync, i, 2, 6) })
			a, b := snapshot(t, exes[0]), snapshot(t, exes[1])
			for name, w := range want[0] {
				near(t, name, b[name], a[name], 0)
				if d := distance(w, a[name]); !strings.HasPrefix(name, optimizerSlotPrefix) && !(d <= 5e-3) {
					t.Errorf("%s: %s is off by %v of its norm", kind, name, d)
				}
			}
			for i, r := range ranks {
				if err := errors.Join(exes[i].Close(), r.sync.Close()); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// TestSynchronisedTrace: a trace has each exchange of statistics, in its own row or on
// the host, and the batch norms' kernels with their layers.
func TestSynchronisedTrace(t *testing.T) {
	for kind, want := range map[string]map[string]int{
		"nccl": {"exchange statistics in exchange of block1.norm": 2, "bn_join in forward of block1.norm": 1, "statistics_unpack in backward of block2.norm": 1},
		"host": {"all-gather of statistics in exchange of ": 6, "bn_join in forward of block1.norm": 1, "bucket 1 to the host in exchange of ": 1},
	} {
		t.Run(kind, func(t *testing.T) {
			s := synced{kind: kind, ranks: 2, precision: "fp32"}
			ranks := ranksBy(t, kind, 2, s.options(), false)
			file := filepath.Join(t.TempDir(), "trace.json")
			together(t, 2, func(i int) error {
				g, p := smoothNet(t, 2, s.lowering())
				x, err := ranks[i].engine.Load(p, nil)
				if err != nil {
					return err
				}
				initialise(t, x, g)
				window := engine.Profile{First: 3, Steps: 1}
				if i == 0 {
					window.Trace = file
				}
				if err := ranks[i].engine.Profile(window); err != nil {
					return err
				}
				return errors.Join(s.steps(x, ranks[i].sync, i, 2, 4), x.Close(), ranks[i].sync.Close())
			})
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var trace struct {
				TraceEvents []struct {
					Name, Cat string
					Args      struct{ Layer string }
				}
			}
			if err := json.Unmarshal(text, &trace); err != nil {
				t.Fatal(err)
			}
			found := map[string]int{}
			for _, e := range trace.TraceEvents {
				found[fmt.Sprintf("%s in %s of %s", e.Name, e.Cat, e.Args.Layer)]++
			}
			for name, n := range want {
				if found[name] != n {
					t.Errorf("%s: %d times, want %d", name, found[name], n)
				}
			}
		})
	}
}
