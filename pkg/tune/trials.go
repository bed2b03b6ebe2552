package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"gonum.org/v1/gonum/stat"

	"lockstep/pkg/collective"
	"lockstep/pkg/data"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// TrialOptions are the options of RunTrials. Their names and defaults, and the lines of the log, are
// those of benchy, a profiler for PyTorch's data loaders.
type TrialOptions struct {
	Batches int // batches per trial; 0: 50
	Trials  int // number of trials of each kind, without warm-up; 0: 3
	Warmup  int // number of warm-up trials before them; 0: 1, negative: none

	Line func(line string) // receives the lines of benchy's log on rank 0; nil: no log
}

// Trials is the result of RunTrials: the throughput of loading alone (IO), of training on one batch
// in memory (SYNTHETIC), and of both (FULL), in samples per second of all ranks together.
type Trials struct {
	Ranks   int
	Seconds map[string][]float64   // time of each trial, by "IO", "SYNTHETIC" and "FULL"
	Rates   map[string][][]float64 // rate of each batch of each trial, likewise
	Results []runs.Trial           // IO, SYNTHETIC and FULL

	// Original contains the trials IO and FULL with the original files if the config stages its data
	// (data.stage). Results then contains the trials with the staged copy, which Staged describes.
	// Otherwise, Original is nil.
	Original []runs.Trial
	Staged   string
}

// JSON returns the results as in benchy's JSON file. Rates are in samples per second and times in seconds.
func (t *Trials) JSON() map[string]any {
	doc := map[string]any{"nranks": t.Ranks}
	for _, r := range t.Results {
		var means []float64
		for _, rates := range t.Rates[r.Name] {
			means = append(means, stat.Mean(rates, nil))
		}
		doc[r.Name] = map[string]any{
			"rates": t.Rates[r.Name], "avg_iter_throughput": means,
			"trial_throughput": r.Rates, "trial_time": t.Seconds[r.Name],
		}
	}
	return doc
}

// RunTrials measures the throughput of loading, of training, and of both together. Every rank of
// group must call it with the same options. It trains a network but writes no files.
//
// The rate of one trial is batch size × ranks × batches / Δt. At both ends of Δt all ranks are
// synchronized and their devices are idle. The rate of a batch is batch size × ranks / the time of
// the batch on this rank, without synchronizing. The rate of a result is the mean over the trials,
// and its spread their population standard deviation.
func RunTrials(ctx context.Context, cfg train.Config, group collective.Group, o TrialOptions) (res *Trials, err error) {
	o.Batches, o.Trials = cmp.Or(o.Batches, 50), cmp.Or(o.Trials, 3)
	o.Warmup = max(0, cmp.Or(o.Warmup, 1))
	if o.Batches < 1 || o.Trials < 1 {
		return nil, fmt.Errorf("run trials: got %d batches and %d trials, want at least 1 of each", o.Batches, o.Trials)
	}
	cfg.Accumulate, cfg.EMA = 1, train.AverageConfig{}
	t, err := train.New(ctx, cfg, group, train.WorkerOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	m := &trialMeasurer{t: t, cfg: cfg, group: group, loader: t.Loader(), o: o}
	defer m.close()
	res = &Trials{Ranks: group.Size(), Seconds: map[string][]float64{}, Rates: map[string][][]float64{}}
	for _, trial := range []struct {
		name  string
		batch func(ctx context.Context) error
	}{{"IO", m.loadBatch}, {"SYNTHETIC", m.trainOnCachedBatch}, {"FULL", m.loadAndTrain}} {
		seconds, err := m.measureTrials(ctx, trial.name, trial.batch)
		if err != nil {
			return nil, fmt.Errorf("run trials: %s: %w", trial.name, err)
		}
		res.Seconds[trial.name], res.Rates[trial.name] = seconds, m.rates
		res.Results = append(res.Results, m.summarizeTrials(trial.name, seconds))
	}
	if staged := t.Staged(); staged != nil {
		res.Staged = staged.String()
		if res.Original, err = m.measureWithoutStaging(ctx); err != nil {
			return nil, fmt.Errorf("run trials with the original files: %w", err)
		}
	}
	return res, nil
}

// measureWithoutStaging measures IO and FULL with the original files.
func (m *trialMeasurer) measureWithoutStaging(ctx context.Context) ([]runs.Trial, error) {
	samples, err := train.OpenSamples(ctx, m.cfg.Data)
	if err != nil {
		return nil, err
	}
	loader, err := newLoader(m.cfg, samples.Train, m.group)
	if err != nil {
		return nil, err
	}
	defer loader.Close()
	o := &trialMeasurer{t: m.t, cfg: m.cfg, group: m.group, loader: loader, o: m.o}
	o.o.Line = nil // programs that read benchy's log know only three kinds of trial
	defer o.close()
	var trials []runs.Trial
	for _, trial := range []struct {
		name  string
		batch func(ctx context.Context) error
	}{{"IO", o.loadBatch}, {"FULL", o.loadAndTrain}} {
		seconds, err := o.measureTrials(ctx, trial.name, trial.batch)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", trial.name, err)
		}
		trials = append(trials, o.summarizeTrials(trial.name, seconds))
	}
	return trials, nil
}

// newLoader creates the loader of this rank's training batches from set.
func newLoader(cfg train.Config, set data.Dataset, group collective.Group) (*data.Loader, error) {
	sampler, err := data.NewSampler(cfg.SamplerOptions(set.Len(), group.Size(), group.Rank()))
	if err != nil {
		return nil, err
	}
	return data.NewLoader(set, sampler, cfg.LoaderOptions())
}

// Table compares the throughput with staged files and with the original files, one row each. It
// returns "" if the config does not stage its data.
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
	_ = w.Flush() // writing to a Builder cannot fail
	return b.String() + t.Staged + "\n"
}

type trialMeasurer struct {
	t       *train.Trainer // nil to measure only the loader
	cfg     train.Config
	group   collective.Group
	loader  *data.Loader
	o       TrialOptions
	batches *data.Iterator // over the current epoch; nil between epochs
	epoch   int            // the next epoch
	cached  data.Batch     // the batch that trainOnCachedBatch uses
	rates   [][]float64    // samples per second of each batch, per trial, which measure measured last
}

// close closes the current epoch's iterator, but not the loader.
func (m *trialMeasurer) close() {
	if m.batches != nil {
		m.batches.Close()
	}
}

// loadBatch loads the next batch. At the end of an epoch, it continues with the next epoch.
func (m *trialMeasurer) loadBatch(ctx context.Context) error {
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
	return errors.New("load batch: an epoch has no batch: use more samples or a smaller batch")
}

// trainOnCachedBatch does one training step, always on the same batch, which the first call loads.
func (m *trialMeasurer) trainOnCachedBatch(ctx context.Context) error {
	if m.cached.Image == nil {
		if err := m.loadBatch(ctx); err != nil {
			return err
		}
		b := m.batches.Batch()
		m.cached = data.Batch{Image: slices.Clone(b.Image), Target: slices.Clone(b.Target)}
	}
	return m.trainStep(ctx, m.cached)
}

// loadAndTrain loads a batch and trains one step on it, as in a run.
func (m *trialMeasurer) loadAndTrain(ctx context.Context) error {
	if err := m.loadBatch(ctx); err != nil {
		return err
	}
	return m.trainStep(ctx, m.batches.Batch())
}

// trialLearningRate is so small that the weights hardly change. The speed does not depend on them,
// and with the config's rate the training on a single batch could diverge.
const trialLearningRate = 1e-9

func (m *trialMeasurer) trainStep(ctx context.Context, b data.Batch) error {
	return m.t.Step(ctx, b.Image, b.Target, trialLearningRate, nil)
}

// measureTrials runs the warm-up and the trials of one kind, such as "IO". Each trial calls batch
// o.Batches times. It returns the seconds of each trial, without the warm-up, and stores the rates
// of the batches in m.rates.
func (m *trialMeasurer) measureTrials(ctx context.Context, name string, batch func(context.Context) error) ([]float64, error) {
	var seconds []float64
	m.rates = nil
	for i := range m.o.Warmup + m.o.Trials {
		begin, err := m.synchronizeRanks(ctx)
		if err != nil {
			return nil, err
		}
		ofBatches := make([]float64, m.o.Batches)
		last := begin
		for k := range ofBatches {
			if err := batch(ctx); err != nil {
				return nil, err
			}
			now := time.Now()
			ofBatches[k] = m.samplesPerSecond(1, max(now.Sub(last), time.Nanosecond).Seconds())
			last = now
		}
		end, err := m.synchronizeRanks(ctx)
		if err != nil {
			return nil, err
		}
		s := end.Sub(begin).Seconds()
		if i < m.o.Warmup {
			m.logLine("BENCHY::%s_WARMUP_%d::Trial Throughput: %.3f", name, i, m.samplesPerSecond(m.o.Batches, s))
			continue
		}
		m.logLine("BENCHY::%s_%d::Trial Throughput: %.3f", name, i-m.o.Warmup, m.samplesPerSecond(m.o.Batches, s))
		seconds, m.rates = append(seconds, s), append(m.rates, ofBatches)
	}
	return seconds, nil
}

// synchronizeRanks waits until all ranks' devices are idle, and returns the time.
func (m *trialMeasurer) synchronizeRanks(ctx context.Context) (time.Time, error) {
	if m.t != nil {
		if err := m.t.Synchronize(); err != nil {
			return time.Time{}, err
		}
	}
	err := m.group.Barrier(ctx)
	return time.Now(), err
}

// samplesPerSecond returns the samples per second of all ranks together, if each rank loads or
// trains batches batches in the given seconds.
func (m *trialMeasurer) samplesPerSecond(batches int, seconds float64) float64 {
	return float64(m.cfg.Batch*m.group.Size()*batches) / seconds
}

// logLine passes a line of the log to o.Line. On ranks other than 0, it does nothing.
func (m *trialMeasurer) logLine(format string, a ...any) {
	if m.o.Line != nil && m.group.Rank() == 0 {
		m.o.Line(fmt.Sprintf(format, a...))
	}
}

// summarizeTrials logs and returns the mean and the population standard deviation of the trials'
// rates. seconds contains the time of each trial.
func (m *trialMeasurer) summarizeTrials(name string, seconds []float64) runs.Trial {
	r := runs.Trial{Name: name}
	for _, s := range seconds {
		r.Rates = append(r.Rates, m.samplesPerSecond(m.o.Batches, s))
	}
	r.Rate, r.Spread = stat.Mean(r.Rates, nil), math.Sqrt(stat.PopVariance(r.Rates, nil))
	m.logLine("BENCHY::SUMMARY::%s average trial throughput: %.3f +/- %.3f", name, r.Rate, r.Spread)
	return r
}
