package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/runs"
	"lockstep/pkg/strategy"
)

func TestUnknownStrategy(t *testing.T) {
	_, err := tiny().With("strategy=dpp")
	if want := `validate config tiny: unknown strategy "dpp" (did you mean ddp?): use one of ` + strings.Join(strategy.Names(), ", "); err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
	cfg := tiny()
	cfg.Strategy.Name = "dpp"
	if _, err := New(t.Context(), cfg, collective.Single(), WorkerOptions{}); err == nil || !strings.Contains(err.Error(), `unknown strategy "dpp"`) {
		t.Errorf("New: %v", err)
	}
}

// TestDefaultStrategyIsOmitted: the default strategy leaves run.json as it was before
// configs had the key, whether the config names the strategy or not.
func TestDefaultStrategyIsOmitted(t *testing.T) {
	named, err := tiny().With("strategy=ddp")
	if err != nil {
		t.Fatal(err)
	}
	unset, err := named.With("strategy=null")
	if err != nil || unset.Strategy != (strategy.Config{}) {
		t.Errorf("strategy=null: %q, %v", unset.Strategy, err)
	}
	var texts []string
	for _, c := range []Config{tiny(), named, unset} {
		doc, err := c.jsonDocument()
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := doc["strategy"]; ok {
			t.Errorf("the document has the default strategy %v", v)
		}
		text, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
		if got, want := c.runFolder(2), "logs/tiny/ddp-n2-s1"; got != want {
			t.Errorf("run folder %s, want %s", got, want)
		}
	}
	if texts[0] != texts[1] || texts[0] != texts[2] {
		t.Errorf("the documents differ: %s", texts)
	}
}

// TestStrategyIsRecorded uses a name that no strategy has, because there is only one.
func TestStrategyIsRecorded(t *testing.T) {
	tr, err := New(t.Context(), tiny(), collective.Single(), WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := tr.newRunInfo(); err != nil || info.Strategy != "ddp" {
		t.Errorf("run.json of the default: strategy %q, %v", info.Strategy, err)
	}
	tr.cfg.Strategy.Name = "other"
	if info, err := tr.newRunInfo(); err != nil || info.Strategy != "other" || info.Config["strategy"] != "other" {
		t.Errorf("run.json: strategy %q, in the config %v, %v", info.Strategy, info.Config["strategy"], err)
	}
	if got, want := tr.cfg.runFolder(2), "logs/tiny/other-n2-s1"; got != want {
		t.Errorf("run folder %s, want %s", got, want)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWorkerStrategyName(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(file, []byte("strategy: other\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		w    Worker
		want string
	}{
		{Worker{Config: "unet2d-cells"}, "ddp"},
		{Worker{Config: "unet2d-cells", Set: []string{"batch=2", "strategy=other"}}, "other"},
		{Worker{Config: file}, "other"},
		{Worker{Config: file, Set: []string{"strategy=ddp"}}, "ddp"},
		{Worker{Config: "nothing"}, "ddp"},
	} {
		if got := c.w.StrategyName(); got != c.want {
			t.Errorf("%+v: strategy %q, want %q", c.w, got, c.want)
		}
	}
}

// TestStrategyOfResumedRun: a run keeps the strategy that it was started with, also if the
// default was not recorded.
func TestStrategyOfResumedRun(t *testing.T) {
	cfg := tiny()
	cfg.Epochs = 1
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	run, err := runs.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	other := cfg
	other.Strategy.Name = "other"
	now, err := other.jsonDocument()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		was, now map[string]any
		want     []Difference
	}{
		{run.Info.Config, now, []Difference{{"strategy", "ddp", "other"}}},
		{now, run.Info.Config, []Difference{{"strategy", "other", "ddp"}}},
		{now, now, nil},
		{run.Info.Config, run.Info.Config, nil},
	} {
		if d := Differences(c.was, c.now); fmt.Sprint(d) != fmt.Sprint(c.want) {
			t.Errorf("differences %v, want %v", d, c.want)
		}
	}

	path := filepath.Join(dir, "run.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), `"config": {`, `"config": {"strategy": "other",`, 1)
	if changed == string(text) {
		t.Fatalf("run.json has no config: %s", text)
	}
	if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg.Epochs = 2
	_, err = trainAll(t, cfg, 1, WorkerOptions{Dir: dir, Resume: true})
	wantError(t, err, "resume "+dir, "with strategy other, not ddp")
}

func TestRanksNeedOneStrategy(t *testing.T) {
	groups := collective.InProcess(2)
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	for rank, g := range groups {
		wg.Go(func() {
			tr := &Trainer{cfg: tiny(), group: g}
			tr.cfg.Strategy.Name = []string{"", "other"}[rank]
			errs[rank] = tr.checkSameConfig(t.Context())
		})
	}
	wg.Wait()
	for _, err := range errs {
		wantError(t, err, "strategy is other there and ddp on rank 0")
	}
}

// averaging averages the parameters every few steps in place of the gradients.
type averaging struct {
	*strategy.DDP
	group     collective.Group
	every     int
	equalized int // calls of Equalize
}

var _ strategy.Strategy = (*averaging)(nil)

func (a *averaging) Step(ctx context.Context, exe engine.Executable, s strategy.Step) (engine.Timing, error) {
	t, err := exe.Step(ctx, nil, &s.Update)
	if err != nil || s.Update.Step%a.every != 0 {
		return t, err
	}
	return t, a.average(ctx, exe)
}

func (a *averaging) Equalize(ctx context.Context, exe engine.Executable) error {
	a.equalized++
	return a.average(ctx, exe)
}

func (a *averaging) average(ctx context.Context, exe engine.Executable) error {
	for _, p := range exe.Program().Params {
		v, err := exe.Get(p.Name)
		if err != nil {
			return err
		}
		if err := strategy.AllReduceFloat64s(ctx, a.group, v); err != nil {
			return err
		}
		for i := range v {
			v[i] /= float64(a.group.Size())
		}
		if err := exe.Set(p.Name, v); err != nil {
			return err
		}
	}
	return nil
}

// trainAveraging trains two workers for one epoch of 6 steps (24 samples, 2 × batch 2) with
// a strategy that every rank creates with exchange (nil: the config's strategy). It returns
// the parameters of each rank.
func trainAveraging(t *testing.T, cfg Config, exchange func(collective.Group) strategy.Strategy) (params [2]map[string][]float64) {
	t.Helper()
	var options WorkerOptions
	if exchange != nil {
		options.Strategy = func(_ context.Context, _ strategy.Config, _ *engine.Accelerator, g collective.Group) (strategy.Strategy, error) {
			return exchange(g), nil
		}
	}
	errs := make([]error, len(params))
	var wg sync.WaitGroup
	for rank, g := range collective.InProcess(len(params)) {
		wg.Go(func() {
			tr, err := New(t.Context(), cfg, g, options)
			if err == nil {
				_, err = tr.Run(t.Context())
			}
			if err == nil {
				params[rank], err = tr.Parameters()
			}
			if tr != nil {
				err = errors.Join(err, tr.Close())
			}
			errs[rank] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return params
}

// TestOwnStrategy: without momentum, the mean of the updated parameters is the update by
// the mean gradient, so averaging the parameters after each step does what DDP does.
// Averaging after every fourth of 6 steps does not, but the epoch ends with equal
// parameters.
func TestOwnStrategy(t *testing.T) {
	cfg := exactConfig()
	cfg.Optimizer.Momentum, cfg.Epochs = 0, 1
	ddp := trainAveraging(t, cfg, nil)
	for _, every := range []int{1, 4} {
		var mu sync.Mutex
		var all []*averaging
		params := trainAveraging(t, cfg, func(g collective.Group) strategy.Strategy {
			a := &averaging{DDP: strategy.NewDDP(t.Context(), g), group: g, every: every}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, a)
			return a
		})
		if d := furthest(params[0], params[1]); d != 0 {
			t.Errorf("every %d steps: the ranks' parameters differ by %g after the epoch", every, d)
		}
		if d := furthest(ddp[0], params[0]); every == 1 && !(d <= toleranceFloat64) || every > 1 && d <= toleranceFloat64 {
			t.Errorf("every %d steps: the parameters differ from those of DDP by %g", every, d)
		}
		for _, a := range all {
			if a.equalized != 1 {
				t.Errorf("every %d steps: Equalize was called %d times, want once, before the evaluation", every, a.equalized)
			}
		}
	}
}
