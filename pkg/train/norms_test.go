package train

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
	"sync"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/runs"
)

// stepped returns a rank's parameters and running statistics after some steps, by name. It does
// not call Evaluate, which replaces the running statistics by rank 0's.
func stepped(ctx context.Context, cfg Config, g collective.Group, steps int, options WorkerOptions) (map[string][]float64, error) {
	tr, err := New(ctx, cfg, g, options)
	if err != nil {
		return nil, err
	}
	all := map[string][]float64{}
	if err := tr.TrainTo(ctx, steps); err != nil {
		return nil, errors.Join(err, tr.Close())
	}
	for _, name := range tr.train.Names() {
		if all[name], err = tr.train.Get(name); err != nil {
			return nil, errors.Join(err, tr.Close())
		}
	}
	return all, tr.Close()
}

// steppedAll returns the result of stepped for every rank.
func steppedAll(t *testing.T, cfg Config, workers, steps int) []map[string][]float64 {
	t.Helper()
	return steppedOn(t, cfg, workers, steps, WorkerOptions{})
}

func steppedOn(t *testing.T, cfg Config, workers, steps int, options WorkerOptions) []map[string][]float64 {
	t.Helper()
	ranks, errs := make([]map[string][]float64, workers), make([]error, workers)
	var wg sync.WaitGroup
	for rank, g := range collective.InProcess(workers) {
		on := options
		on.LocalRank = rank
		wg.Go(func() { ranks[rank], errs[rank] = stepped(t.Context(), cfg, g, steps, on) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return ranks
}

// TestSyncBatchNormRanksAgree: with synchronized batch norms, all ranks have the same running
// statistics bit by bit, with and without overlap and recomputed activations. Without
// synchronization, their running statistics differ.
func TestSyncBatchNormRanksAgree(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(c *Config)
		same   []func(c *Config) // what must not make a difference
	}{
		{"cpu", func(*Config) {}, []func(c *Config){
			func(c *Config) { c.Engine.Overlap = false },
			func(c *Config) { c.Recompute = true },
		}},
		{"2 accumulated batches", func(c *Config) { c.Accumulate = 2 }, []func(c *Config){
			func(c *Config) { c.Engine.Overlap, c.Recompute = false, true },
		}},
		{"reference, fp16", func(c *Config) { c.Engine.Device, c.Engine.Precision = "reference", "fp16" }, []func(c *Config){
			func(c *Config) { c.Recompute = true },
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := tiny()
			cfg.BucketMiB = 0.01 // several
			cfg.SyncBatchNorm = true
			tt.change(&cfg)
			const workers, steps = 3, 6
			want := steppedAll(t, cfg, workers, steps)
			check := func(what string, ranks []map[string][]float64) {
				for rank, got := range ranks {
					for name, v := range want[0] {
						if !slices.Equal(got[name], v) {
							t.Errorf("%s: %s of rank %d is not rank 0's", what, name, rank)
						}
					}
				}
			}
			check("ranks", want)
			for i, change := range tt.same {
				other := cfg
				change(&other)
				check(fmt.Sprint("variation ", i), steppedAll(t, other, workers, steps))
			}
			cfg.SyncBatchNorm = false
			own, differ := steppedAll(t, cfg, workers, steps), 0
			for name, v := range own[0] {
				if strings.Contains(name, "running") && !slices.Equal(own[1][name], v) {
					differ++
				}
			}
			if differ == 0 {
				t.Error("without synchronisation all ranks have the same running statistics: the test shows nothing")
			}
		})
	}
}

// TestSyncBatchNormAlone: synchronization does not change the bits of a single worker.
func TestSyncBatchNormAlone(t *testing.T) {
	cfg := tiny()
	want := steppedAll(t, cfg, 1, 6)[0]
	cfg.SyncBatchNorm = true
	for name, v := range steppedAll(t, cfg, 1, 6)[0] {
		if !slices.Equal(v, want[name]) {
			t.Errorf("%s is another", name)
		}
	}
}

// TestSyncBatchNormReplicas: two replicas reach the parameters and running statistics of one
// replica with the global batch, in float64 up to the order of additions.
func TestSyncBatchNormReplicas(t *testing.T) {
	cfg := tiny()
	cfg.Data.Count, cfg.Data.Height, cfg.Data.Width, cfg.Data.TestImages, cfg.Epochs = 21, 16, 16, 5, 1
	cfg.Engine.Device, cfg.Engine.Precision, cfg.SyncBatchNorm = "reference", "fp64", true
	many, err := Replicas(t.Context(), cfg, nil, 2)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Batch *= 2
	one, err := Replicas(t.Context(), cfg, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range one.Weights() {
		if got := many.Weights()[i]; got.Name != w.Name || !(distance(w.Float64s(), got.Float64s()) <= toleranceFloat64) {
			t.Errorf("%s differs by %v", w.Name, distance(w.Float64s(), got.Float64s()))
		}
	}
	if a, b := many.Epochs[0].ValLoss, one.Epochs[0].ValLoss; math.Abs(a-b) > 1e-9 {
		t.Errorf("held-out loss %v with two replicas, %v with one", a, b)
	}
}

// TestSyncBatchNormTrace: the trace of a step contains two exchanges for each of its batch
// norms. It does not contain those of the previous batch of the same optimizer step.
func TestSyncBatchNormTrace(t *testing.T) {
	cfg := tiny()
	cfg.SyncBatchNorm, cfg.Accumulate, cfg.Epochs = true, 2, 1
	dir := t.TempDir()
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir, Profile: Profile{First: 2, Steps: 1}}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "trace-0.json"))
	if err != nil {
		t.Fatal(err)
	}
	var trace struct {
		TraceEvents []struct{ Name string }
	}
	if err := json.Unmarshal(text, &trace); err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, e := range trace.TraceEvents {
		found[e.Name]++
	}
	const exchanges = 2 * 10 // two levels down, the bridge and two up have two batch norms each
	if found["all-gather of statistics"] != exchanges || found["wait for statistics"] != exchanges {
		t.Errorf("%d all-gathers and %d waits, want %d", found["all-gather of statistics"], found["wait for statistics"], exchanges)
	}
}

// TestSyncBatchNormSpans: exchanges in the forward pass count as exposed communication, and the
// time of a step's first collective is recorded, also with accumulated batches.
func TestSyncBatchNormSpans(t *testing.T) {
	cfg := tiny()
	cfg.SyncBatchNorm, cfg.Accumulate, cfg.Epochs = true, 2, 1
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := trainAll(t, cfg, 2, WorkerOptions{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	_, steps, _, err := runs.ReadSteps(dir, 0)
	if err != nil || len(steps) != 3 { // 17 samples are 5 batches of 2 for each
		t.Fatalf("%d steps, error %v", len(steps), err)
	}
	for _, s := range steps {
		total := s.Data + s.Forward + s.Backward + s.Wait + s.Optimizer
		if !(s.AllReduce > 0) || !(s.Wait > 0) || !(s.UntilCollective > 0) || s.UntilCollective > total/2 || s.Forward < 0 || s.Backward < 0 {
			t.Errorf("step %+v", s)
		}
	}
}

func TestSyncBatchNormConfig(t *testing.T) {
	c, err := tiny().With("sync_batchnorm=true")
	if err != nil || !c.SyncBatchNorm || !c.LoweringOptions().SyncBatchNorm {
		t.Errorf("%v: sync_batchnorm is %v", err, c.SyncBatchNorm)
	}
	if c, err = c.With("engine.device=cuda:1"); err != nil || !c.SyncBatchNorm {
		t.Errorf("on a GPU: %v, sync_batchnorm is %v", err, c.SyncBatchNorm)
	}
	for _, name := range Names() {
		c, err := loadConfig(name)
		if err != nil {
			t.Fatal(err)
		}
		if c.SyncBatchNorm {
			t.Errorf("%s synchronises batch norms, which none of the published runs did", name)
		}
	}
}

// gradientsOnly is a GradSync that does not exchange statistics.
type gradientsOnly struct{ engine.GradSync }

func (gradientsOnly) Capabilities() engine.SyncCapabilities { return engine.SyncCapabilities{} }

// TestSyncBatchNormNeedsAnExchange: a step with a GradSync that exchanges only gradients is an
// error.
func TestSyncBatchNormNeedsAnExchange(t *testing.T) {
	cfg := tiny()
	cfg.SyncBatchNorm = true
	tr, err := New(t.Context(), cfg, collective.Single(), WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.train.Step(t.Context(), gradientsOnly{}, nil); err == nil || !strings.Contains(err.Error(), "step: synchronize batch norms:") {
		t.Errorf("error %v", err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
}
