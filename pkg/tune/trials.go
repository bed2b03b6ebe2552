package tune

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/data"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// TrialOptions say what is measured, as benchy's settings do (a profiler of
// PyTorch's loaders, whose names and lines these are). What is 0 is benchy's
// own.
type TrialOptions struct {
	Batches int // in a trial; 0: 50
	Trials  int // counted; 0: 3
	Warmup  int // before them, not counted; 0: 1, negative: none

	Line func(line string) // each line of benchy's log, on rank 0; nil: nobody
}

// Trials is a measured throughput of the loader alone (IO), of training on one
// batch that is there already (SYNTHETIC), and of both (FULL): samples per second
// of all ranks together.
type Trials struct {
	Ranks   int
	Seconds map[string][]float64 // of each trial, by name
	Results []runs.Trial

	// Original are IO and FULL of the files where they are, if the config stages them
	// (data.stage): Results are then of the copy. Staged describes the copy.
	Original []runs.Trial
	Staged   string
}

// JSON is benchy's document.
func (t *Trials) JSON() map[string]any {
	doc := map[string]any{"nranks": t.Ranks}
	for _, r := range t.Results {
		doc[r.Name] = map[string]any{
			"trial_throughput": r.Rates, "trial_time": t.Seconds[r.Name],
			"avg_iter_throughput": r.Rates, // of the iterations of a trial, all of which are waited for at its end
		}
	}
	return doc
}

// RunTrials measures a config on one rank of group; every rank calls it. It
// trains for it, and writes nothing.
//
// A rate is batch·ranks·batches/Δt between two moments at which all ranks have
// done all that they had begun; the spread is the population's standard
// deviation over the trials.
func RunTrials(ctx context.Context, cfg train.Config, group collective.Group, o TrialOptions) (res *Trials, err error) {
	o.Batches, o.Trials = orDefault(o.Batches, 50), orDefault(o.Trials, 3)
	o.Warmup = max(0, orDefault(o.Warmup, 1))
	if o.Batches < 1 || o.Trials < 1 {
		return nil, fmt.Errorf("run trials: %d batches and %d trials: use at least 1 of each", o.Batches, o.Trials)
	}
	cfg.Accumulate, cfg.EMA = 1, train.Average{}
	t, err := train.New(ctx, cfg, group, train.WorkerOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	m := &measurer{t: t, cfg: cfg, group: group, loader: t.Loader(), o: o}
	defer m.close()
	res = &Trials{Ranks: group.Size(), Seconds: map[string][]float64{}}
	for _, trial := range []struct {
		name  string
		batch func(ctx context.Context) error
	}{{"IO", m.load}, {"SYNTHETIC", m.step}, {"FULL", m.both}} {
		seconds, err := m.measure(ctx, trial.name, trial.batch)
		if err != nil {
			return nil, fmt.Errorf("run trials: %s: %w", trial.name, err)
		}
		res.Seconds[trial.name] = seconds
		res.Results = append(res.Results, m.summary(trial.name, seconds))
	}
	if staged := t.Staged(); staged != nil {
		res.Staged = staged.String()
		if res.Original, err = m.original(ctx); err != nil {
			return nil, fmt.Errorf("run trials of files that are not staged: %w", err)
		}
	}
	return res, nil
}

// original measures IO and FULL with the files where they are.
func (m *measurer) original(ctx context.Context) ([]runs.Trial, error) {
	samples, err := train.OpenSamples(ctx, m.cfg.Data)
	if err != nil {
		return nil, err
	}
	loader, err := newLoader(m.cfg, samples.Train, m.group)
	if err != nil {
		return nil, err
	}
	defer loader.Close()
	o := &measurer{t: m.t, cfg: m.cfg, group: m.group, loader: loader, o: m.o}
	o.o.Line = nil // readers of benchy's lines know three names
	defer o.close()
	var trials []runs.Trial
	for _, trial := range []struct {
		name  string
		batch func(ctx context.Context) error
	}{{"IO", o.load}, {"FULL", o.both}} {
		seconds, err := o.measure(ctx, trial.name, trial.batch)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", trial.name, err)
		}
		trials = append(trials, o.summary(trial.name, seconds))
	}
	return trials, nil
}

// newLoader makes the loader of this rank's training batches.
func newLoader(cfg train.Config, set data.Dataset, group collective.Group) (*data.Loader, error) {
	sampler, err := data.NewSampler(cfg.Sampler(set.Len(), group.Size(), group.Rank()))
	if err != nil {
		return nil, err
	}
	return data.NewLoader(set, sampler, cfg.DataLoader())
}

// Table compares staged files with those where they are, one row each; it is empty if
// the config does not stage its data.
func (t *Trials) Table() string {
	if len(t.Original) == 0 {
		return ""
	}
	find := func(trials []runs.Trial, name string) string {
		i := slices.IndexFunc(trials, func(r runs.Trial) bool { return r.Name == name })
		if i < 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f ± %.1f", trials[i].Rate, trials[i].Spread)
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "files\tIO samples/s\tFULL samples/s")
	fmt.Fprintf(w, "staged\t%s\t%s\n", find(t.Results, "IO"), find(t.Results, "FULL"))
	fmt.Fprintf(w, "not staged\t%s\t%s\n", find(t.Original, "IO"), find(t.Original, "FULL"))
	_ = w.Flush() // a Builder takes everything
	return b.String() + t.Staged + "\n"
}

func orDefault(v, d int) int {
	if v == 0 {
		return d
	}
	return v
}

// measurer measures one worker.
type measurer struct {
	t       *train.Trainer // nil: nothing is trained
	cfg     train.Config
	group   collective.Group
	loader  *data.Loader
	o       TrialOptions
	batches *data.Iterator // of the epoch under way
	epoch   int
	cached  data.Batch // the one of SYNTHETIC
}

func (m *measurer) close() {
	if m.batches != nil {
		m.batches.Close()
	}
}

// load takes the loader's next batch, of the next epoch where one is over.
func (m *measurer) load(ctx context.Context) error {
	for range 2 {
		if m.batches == nil {
			m.batches = m.loader.Epoch(ctx, m.epoch)
			m.epoch++
		}
		if m.batches.Next() {
			return nil
		}
		if err := m.batches.Err(); err != nil {
			return err
		}
		m.batches = nil
	}
	return errors.New("the data give no batch")
}

// step trains on the batch that is kept.
func (m *measurer) step(ctx context.Context) error {
	if m.cached.Image == nil {
		if err := m.load(ctx); err != nil {
			return err
		}
		b := m.batches.Batch()
		m.cached = data.Batch{Image: append([]float32(nil), b.Image...), Target: append([]float32(nil), b.Target...)}
	}
	return m.train(ctx, m.cached)
}

// both loads and trains, as a run does.
func (m *measurer) both(ctx context.Context) error {
	if err := m.load(ctx); err != nil {
		return err
	}
	return m.train(ctx, m.batches.Batch())
}

// trialRate is so small that weights hardly move: what is measured does not
// depend on them, and a rate of the config could let them diverge on one batch.
const trialRate = 1e-9

func (m *measurer) train(ctx context.Context, b data.Batch) error {
	return m.t.Step(ctx, b.Image, b.Target, trialRate, nil)
}

// measure does the warm-up and the trials, and returns the seconds of the latter.
func (m *measurer) measure(ctx context.Context, name string, batch func(context.Context) error) ([]float64, error) {
	var seconds []float64
	for i := range m.o.Warmup + m.o.Trials {
		begin, err := m.together(ctx)
		if err != nil {
			return nil, err
		}
		for range m.o.Batches {
			if err := batch(ctx); err != nil {
				return nil, err
			}
		}
		end, err := m.together(ctx)
		if err != nil {
			return nil, err
		}
		s := end.Sub(begin).Seconds()
		if i < m.o.Warmup {
			m.line("BENCHY::%s_WARMUP_%d::Trial Throughput: %.3f", name, i, m.rate(s))
			continue
		}
		m.line("BENCHY::%s_%d::Trial Throughput: %.3f", name, i-m.o.Warmup, m.rate(s))
		seconds = append(seconds, s)
	}
	return seconds, nil
}

// together waits until the device of every rank is idle, and returns the time.
func (m *measurer) together(ctx context.Context) (time.Time, error) {
	if m.t != nil {
		if err := m.t.Synchronize(); err != nil {
			return time.Time{}, err
		}
	}
	err := m.group.Barrier(ctx)
	return time.Now(), err
}

// rate is samples per second of all ranks together.
func (m *measurer) rate(seconds float64) float64 {
	return float64(m.cfg.Batch*m.group.Size()*m.o.Batches) / seconds
}

func (m *measurer) line(format string, a ...any) {
	if m.o.Line != nil && m.group.Rank() == 0 {
		m.o.Line(fmt.Sprintf(format, a...))
	}
}

// summary is a trial's mean and population standard deviation.
func (m *measurer) summary(name string, seconds []float64) runs.Trial {
	r := runs.Trial{Name: name}
	for _, s := range seconds {
		r.Rates = append(r.Rates, m.rate(s))
		r.Rate += m.rate(s) / float64(len(seconds))
	}
	for _, v := range r.Rates {
		r.Spread += (v - r.Rate) * (v - r.Rate) / float64(len(seconds))
	}
	r.Spread = math.Sqrt(r.Spread)
	m.line("BENCHY::SUMMARY::%s average trial throughput: %.3f +/- %.3f", name, r.Rate, r.Spread)
	return r
}
