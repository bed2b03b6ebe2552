package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/data"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// LoaderOptions are the options of MeasureLoader.
type LoaderOptions struct {
	Budget     time.Duration     // intended total time; 0: 30 s; exceeded if three rounds per setting take longer
	LoaderOnly bool              // do not train: it remains unknown whether the loader is the bottleneck
	Line       func(line string) // receives one line of progress per measurement; nil: no progress
}

// LoaderTrial is the measured speed of one loader setting.
type LoaderTrial struct {
	Setting      train.LoaderConfig `json:"setting"`
	Rates        []float64          `json:"rates"`         // samples per second in each round
	Rate         float64            `json:"rate"`          // median of Rates
	Times        Ratio              `json:"times"`         // speed relative to the config's own setting
	MemoryBytes  int64              `json:"memory_bytes"`  // memory for prefetched batches and cached samples
	Final        bool               `json:"final"`         // took part in the final rounds
	OtherBatches bool               `json:"other_batches"` // changes the batches that are trained on, so it is never advised

	rounds []float64 // one rate per round, NaN for rounds without this setting
}

// LoaderTuning is the result of MeasureLoader: the speed of all settings, and how much loading
// slows the training down.
type LoaderTuning struct {
	Batch  int           `json:"batch"`
	Trials []LoaderTrial `json:"trials"` // fastest first
	// Now, Fastest and Smallest are indices in Trials. Now is the config's own setting. Of the settings
	// that are as fast as Fastest within noise, Smallest has the fewest workers and then the least memory.
	Now      int  `json:"now"`
	Fastest  int  `json:"fastest"`
	Smallest int  `json:"smallest"`
	Alone    bool `json:"alone"` // no other setting is as fast as Fastest within noise
	// Enough is the index of the smallest setting whose loader alone is at least 100 times as fast as
	// the training, so that a faster loader gains nothing; -1 without such a setting or training.
	Enough int `json:"enough"`
	// Training contains the trials IO, SYNTHETIC and FULL of the config's own setting, in this
	// order. It is nil if no training was measured.
	Training []runs.Trial `json:"training,omitempty"`
	// Full is the rate of FULL divided by the rate of SYNTHETIC: how much loading slows the
	// training down. Gain is the rate of FULL with the setting of Enough, or else of Smallest,
	// divided by the rate of FULL with the config's own setting.
	Full  Ratio    `json:"full"`
	Gain  Ratio    `json:"gain"`
	Notes []string `json:"notes"` // settings that were not measured, each with the reason
}

const (
	defaultBudget = 30 * time.Second
	targetRounds  = 6 // intended rounds per comparison
	minRounds     = 3 // with fewer rounds, settings are not compared
)

// MeasureLoader measures settings of the config's loader on the config's data, in three
// steps:
//
//  1. each kind of loader with 0 to 16 workers;
//  2. for the smallest setting that is as fast as the fastest one: other prefetch depths
//     and other orders of the stages;
//  3. the training, with the config's own setting and with the best one.
//
// In each round, every setting is measured once, like the trial IO of RunTrials. Settings
// that are clearly slower are dropped. MeasureLoader measures one worker and sets
// GOMAXPROCS as for a worker of a run, unless the environment sets it.
func MeasureLoader(ctx context.Context, cfg train.Config, o LoaderOptions) (res *LoaderTuning, err error) {
	fail := func(err error) (*LoaderTuning, error) { return nil, fmt.Errorf("tune loader: %w", err) }
	if o.Budget <= 0 {
		o.Budget = defaultBudget
	}
	cfg.Accumulate, cfg.EMA = 1, train.AverageConfig{}
	if err := cfg.Validate(); err != nil {
		return fail(err)
	}
	if k := cfg.Loader.Kind; k == data.LoaderSynthetic || k == train.LoaderDevice {
		return fail(fmt.Errorf("unsupported loader.kind %s, which loads nothing during a step: set loader.kind=lowmem or loader.kind=inmem", k))
	}
	var notes []string
	if _, gpu := cfg.Engine.CUDA(); gpu && cfg.Loader.DeviceMiB > 0 {
		notes = append(notes, "measured with loader.device_mib=0: a training set in GPU memory needs no loader")
		cfg.Loader.DeviceMiB = 0
	}
	samples, err := train.OpenSamples(ctx, cfg.Data)
	if err != nil {
		return fail(err)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		before := runtime.GOMAXPROCS(0)
		runtime.GOMAXPROCS(train.Processors(cfg.Engine.Threads, before, 1, false))
		defer runtime.GOMAXPROCS(before)
	}
	t := &loaderTuner{cfg: cfg, o: o, samples: samples, notes: notes, group: collective.InProcess(1)[0], alone: map[bool]float64{}}
	defer func() { err = errors.Join(err, t.close()) }()
	if err := t.measureLoaders(ctx); err != nil {
		return fail(err)
	}
	res = t.newTuningResult()
	if o.LoaderOnly {
		return res, nil
	}
	if err := t.measureTraining(ctx, res); err != nil {
		return fail(err)
	}
	return res, nil
}

type loaderTuner struct {
	cfg     train.Config
	o       LoaderOptions
	samples train.Samples
	group   collective.Group
	kept    data.Dataset       // the training samples in memory; nil if inmem is not measured
	all     []*loaderCandidate // all[0] is the config's own setting
	notes   []string
	rounds  int              // rounds measured so far
	alone   map[bool]float64 // seconds per batch without workers; the key is true for inmem, false for lowmem
}

type loaderCandidate struct {
	LoaderTrial
	m       *trialMeasurer
	batch   float64 // seconds per batch; 0 before the first measurement
	dropped bool    // no longer measured, because it is clearly slower
}

// close closes the loaders of all candidates, and the group.
func (t *loaderTuner) close() error {
	for _, c := range t.all {
		c.m.close()
		c.m.loader.Close()
	}
	return t.group.Close()
}

// logf passes one line of progress to LoaderOptions.Line.
func (t *loaderTuner) logf(format string, a ...any) {
	if t.o.Line != nil {
		t.o.Line(fmt.Sprintf(format, a...))
	}
}

func (t *loaderTuner) addNote(format string, a ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, a...))
}

// measureLoaders measures all kinds of loaders with several numbers of workers. Then it measures
// variations of the smallest setting that is as fast as the fastest one.
func (t *loaderTuner) measureLoaders(ctx context.Context) error {
	share := 0.4
	if t.o.LoaderOnly {
		share = 0.6
	}
	begin := time.Now()
	if err := t.cacheSamples(ctx); err != nil {
		return err
	}
	first := time.Duration(share*float64(t.o.Budget)) - time.Since(begin)
	now, err := t.addCandidate(t.cfg.Loader)
	if err != nil {
		return err
	}
	for _, kind := range []string{data.LoaderLowMem, data.LoaderInMem} {
		for _, workers := range []int{0, 1, 2, 4, 8, 16} {
			setting := t.cfg.Loader
			setting.Kind, setting.Workers = kind, workers
			if kind == data.LoaderInMem && t.kept == nil {
				continue
			}
			if _, err := t.addCandidate(setting); err != nil {
				return err
			}
		}
	}
	if err := t.measureCandidateRounds(ctx, t.all, max(first, t.o.Budget/5)); err != nil {
		return err
	}
	fastest, smallest, _ := chooseLoaderSettings(t.collectTrials())
	finalists := []*loaderCandidate{now}
	for _, c := range []*loaderCandidate{t.all[fastest], t.all[smallest]} {
		if !slices.Contains(finalists, c) {
			finalists = append(finalists, c)
		}
	}
	for _, setting := range listSettingVariations(t.all[smallest].Setting) {
		c, err := t.addCandidate(setting)
		if err != nil {
			return err
		}
		if !slices.Contains(finalists, c) {
			finalists = append(finalists, c)
		}
	}
	for _, c := range finalists {
		c.Final, c.dropped = true, false
	}
	return t.measureCandidateRounds(ctx, finalists, time.Duration((0.9-share)*0.6*float64(t.o.Budget)))
}

// listSettingVariations returns s with other prefetch depths, if s has workers, and with other orders of
// the stages.
func listSettingVariations(s train.LoaderConfig) []train.LoaderConfig {
	var all []train.LoaderConfig
	if s.Workers > 0 {
		for _, depth := range []int{1, 2, 4, 8, 16} {
			v := s
			v.Prefetch = depth
			all = append(all, v)
		}
	}
	for _, order := range [][]string{
		data.DefaultOrder(),
		{data.StageShuffle, data.StageShard, data.StageMap, data.StageBatch, data.StagePrefetch},
		{data.StageShuffle, data.StageShard, data.StageBatch, data.StageMap},
		{data.StageShard, data.StageShuffle, data.StageBatch, data.StageMap, data.StagePrefetch},
		{data.StageShuffle, data.StageShard, data.StageMap, data.StageCache, data.StageBatch, data.StagePrefetch},
		{data.StageShard, data.StageMap, data.StageBatch, data.StageCache, data.StageShuffle, data.StagePrefetch},
	} {
		v := s
		v.Order = order
		all = append(all, v)
	}
	return all
}

// settingEffectKey returns a key that is equal for settings with the same effect. For example, it ignores
// the prefetch depth if there are no workers.
func settingEffectKey(s train.LoaderConfig) string {
	if len(s.Order) == 0 {
		s.Order = data.DefaultOrder()
	}
	depth := 0
	switch {
	case !slices.Contains(s.Order, data.StagePrefetch) && slices.Index(s.Order, data.StageMap) > slices.Index(s.Order, data.StageBatch):
		s.Workers, s.Order = 0, append(slices.Clone(s.Order), data.StagePrefetch) // nothing is prepared ahead, as without workers
	case s.Workers > 0 && slices.Contains(s.Order, data.StagePrefetch):
		depth = max(s.Prefetch, s.Workers)
	}
	return fmt.Sprint(s.Kind == data.LoaderInMem, s.Workers, depth, s.Order)
}

// addCandidate returns the candidate in t.all whose setting has the effect of s. If there is none,
// it adds one.
func (t *loaderTuner) addCandidate(s train.LoaderConfig) (*loaderCandidate, error) {
	for _, c := range t.all {
		if settingEffectKey(c.Setting) == settingEffectKey(s) {
			return c, nil
		}
	}
	same, err := data.HaveSameBatches(t.cfg.Loader.Order, s.Order)
	if err != nil {
		return nil, err
	}
	cfg, set := t.cfg, t.samples.Train
	cfg.Loader = s
	if s.Kind == data.LoaderInMem && t.kept != nil {
		set = t.kept
	}
	loader, err := newLoader(cfg, set, t.group)
	if err != nil {
		return nil, err
	}
	c := &loaderCandidate{m: &trialMeasurer{cfg: cfg, group: t.group, loader: loader}}
	c.Setting, c.OtherBatches = s, !same
	t.all = append(t.all, c)
	return c, nil
}

// maxCacheMemoryFraction is the largest fraction of the machine's memory that cached samples may use.
const maxCacheMemoryFraction = 0.7

// cacheSamples reads the training samples into memory for the loader kind inmem. It gives up after a
// third of LoaderOptions.Budget, or if memory does not suffice, unless the config itself uses inmem.
// It then sets t.kept to nil and adds a note.
func (t *loaderTuner) cacheSamples(ctx context.Context) error {
	kept := data.InMemory(t.samples.Train)
	if _, complete := data.CachedBytes(kept); complete {
		if t.cfg.Loader.Kind != data.LoaderInMem {
			t.addNote("inmem: the same as lowmem, because the data are in memory already")
		}
		return nil
	}
	t.kept = kept
	cfg := t.cfg
	cfg.Loader = train.LoaderConfig{Kind: data.LoaderInMem, Workers: max(1, runtime.GOMAXPROCS(0)), Prefetch: 2}
	loader, err := newLoader(cfg, kept, t.group)
	if err != nil {
		return err
	}
	defer loader.Close()
	begin, done, limit := time.Now(), 0, int64(maxCacheMemoryFraction*float64(runs.DescribeHost().MemoryBytes))
	it := loader.Epoch(ctx, 0)
	defer it.Close()
	for it.Next() {
		done++
		bytes, complete := data.CachedBytes(kept)
		took := time.Since(begin)
		switch own := t.cfg.Loader.Kind == data.LoaderInMem; {
		case complete:
			return nil
		case limit > 0 && bytes > limit && !own:
			t.addNote("inmem: not measured: %d of %d batches fill %s of memory already", done, loader.Steps(), formatMiB(bytes))
			t.kept = nil
			return nil
		case took > t.o.Budget/3 && !own:
			t.addNote("inmem: not measured: reading all samples takes about %v; use --budget %v to measure it",
				(took * time.Duration(loader.Steps()) / time.Duration(done)).Round(time.Second), (4 * took * time.Duration(loader.Steps()) / time.Duration(done)).Round(time.Second))
			t.kept = nil
			return nil
		}
	}
	return it.Err()
}

// measureCandidateRounds measures each candidate once per round, for at least minRounds rounds and until the
// budget is spent. It drops clearly slower candidates.
func (t *loaderTuner) measureCandidateRounds(ctx context.Context, all []*loaderCandidate, budget time.Duration) error {
	begin := time.Now()
	slice := budget.Seconds() / float64(targetRounds*len(all)) / 2
	all, err := t.warmUp(ctx, all, budget)
	if err != nil {
		return err
	}
	best := math.Inf(1)
	for _, c := range all {
		if !c.OtherBatches {
			best = min(best, c.batch)
		}
	}
	for _, c := range all {
		c.dropped = c.batch > 3*best && !c.isConfigSetting(t)
	}
	for round := 0; ; round++ {
		took := time.Since(begin)
		if round >= minRounds && took+took/time.Duration(round+1) > budget {
			return nil
		}
		t.rounds++
		for _, c := range all {
			if c.dropped {
				continue
			}
			if err := c.measureBatches(ctx, max(c.minMeasuredBatches(), int(slice/c.batch))); err != nil {
				return err
			}
			for len(c.rounds) < t.rounds-1 {
				c.rounds = append(c.rounds, math.NaN())
			}
			c.rounds = append(c.rounds, float64(t.cfg.Batch)/c.batch)
			t.logf("%s: %.1f samples/s", formatLoaderSetting(c.Setting), float64(t.cfg.Batch)/c.batch)
		}
		if round+1 >= minRounds {
			t.dropSlowCandidates(all)
		}
	}
}

// warmUp measures each candidate once, outside the results, to find out how long a batch takes. It
// skips a candidate, with a note, if that would take more than its share of the budget. It returns
// the candidates that it has measured.
func (t *loaderTuner) warmUp(ctx context.Context, all []*loaderCandidate, budget time.Duration) (kept []*loaderCandidate, err error) {
	for _, c := range all {
		n := c.minMeasuredBatches()
		if c.batch == 0 && c.cachesProcessedSamples() {
			n = max(n, c.m.loader.Steps()) // the cache is used from the second epoch on
		}
		inmem := c.Setting.Kind == data.LoaderInMem
		if alone := t.alone[inmem]; alone > 0 && !c.isConfigSetting(t) {
			hands := max(1, min(c.Setting.Workers, runtime.GOMAXPROCS(0)))
			if need := time.Duration(float64(2*n) * alone / float64(hands) * float64(time.Second)); need > budget/time.Duration(len(all)) {
				t.addNote("%s: not measured: one measurement takes about %v; use --budget %v to make it", formatLoaderSetting(c.Setting), need.Round(time.Second), (time.Duration(float64(len(all))*float64(need)/float64(budget)*float64(t.o.Budget)) + time.Second).Round(time.Second))
				continue
			}
		}
		for ; ; n *= 2 { // until the start of an epoch is a small part of the time
			begin := time.Now()
			if err := c.measureBatches(ctx, n); err != nil {
				return nil, err
			}
			if took := time.Since(begin); took > 20*time.Millisecond {
				c.batch = max(c.batch, took.Seconds()/float64(2*n))
				break
			}
		}
		if c.Setting.Workers == 0 {
			t.alone[inmem] = c.batch
		}
		kept = append(kept, c)
	}
	return kept, nil
}

// minMeasuredBatches returns the least number of batches to measure: fewer might all be prefetched before
// the clock starts.
func (c *loaderCandidate) minMeasuredBatches() int {
	if c.Setting.Workers == 0 {
		return 1
	}
	return 2 * max(c.Setting.Workers, c.Setting.Prefetch)
}

// cachesProcessedSamples reports whether the stage cache follows map or batch, so that it caches
// processed samples, not samples as they were read.
func (c *loaderCandidate) cachesProcessedSamples() bool {
	order := c.Setting.Order
	i := slices.Index(order, data.StageCache)
	return i >= 0 && i > min(slices.Index(order, data.StageBatch), slices.Index(order, data.StageMap))
}

func (c *loaderCandidate) isConfigSetting(t *loaderTuner) bool { return c == t.all[0] }

// minRelativeSpeed is the speed, relative to the fastest setting, below which a setting is dropped.
// The upper limit of its 95 % interval must be below it.
const minRelativeSpeed = 0.9

// dropSlowCandidates sets dropped for each candidate that is clearly slower than the fastest one,
// but never for the config's own setting.
func (t *loaderTuner) dropSlowCandidates(all []*loaderCandidate) {
	best := t.all[0]
	for _, c := range all {
		if !c.OtherBatches && medianRate(c.rounds) > medianRate(best.rounds) {
			best = c
		}
	}
	for _, c := range all {
		c.dropped = c.dropped || !c.isConfigSetting(t) && newRatio(c.rounds, best.rounds).High < minRelativeSpeed
	}
}

// measureBatches measures the time of n batches, after n batches of warm-up. It updates the
// candidate's memory and seconds per batch.
func (c *loaderCandidate) measureBatches(ctx context.Context, n int) error {
	c.m.o = TrialOptions{Batches: n, Trials: 1, Warmup: 1}
	seconds, err := c.m.measureTrials(ctx, "IO", c.m.loadBatch)
	if err != nil {
		return fmt.Errorf("%s: %w", formatLoaderSetting(c.Setting), err)
	}
	c.MemoryBytes = max(c.MemoryBytes, c.m.loader.MemoryBytes())
	c.m.close() // stop prefetching, which would disturb the next measurement
	c.m.batches = nil
	c.batch = max(seconds[0], 1e-9) / float64(n)
	return nil
}

// collectTrials returns the results of all candidates so far, in the order of t.all.
func (t *loaderTuner) collectTrials() []LoaderTrial {
	now, trials := t.all[0], make([]LoaderTrial, len(t.all))
	for i, c := range t.all {
		trials[i] = c.LoaderTrial
		trials[i].Rates = slices.DeleteFunc(slices.Clone(c.rounds), math.IsNaN)
		if trials[i].Rate = medianRate(c.rounds); len(trials[i].Rates) == 0 && c.batch > 0 { // dropped after the warm-up
			trials[i].Rate = float64(t.cfg.Batch) / c.batch
		}
		trials[i].Times = newRatio(c.rounds, now.rounds)
	}
	return trials
}

// newTuningResult returns the trials, fastest first, and the fastest and the smallest setting of the final
// rounds. It does not set the fields about training.
func (t *loaderTuner) newTuningResult() *LoaderTuning {
	res := &LoaderTuning{Batch: t.cfg.Batch, Notes: t.notes, Enough: -1, Full: newRatio(nil, nil), Gain: newRatio(nil, nil)}
	res.Trials = slices.DeleteFunc(t.collectTrials(), func(l LoaderTrial) bool { return l.Rate == 0 }) // never measured
	own := settingEffectKey(t.all[0].Setting)
	slices.SortStableFunc(res.Trials, func(a, b LoaderTrial) int { return cmp.Compare(b.Rate, a.Rate) })
	res.Now = slices.IndexFunc(res.Trials, func(l LoaderTrial) bool { return settingEffectKey(l.Setting) == own })
	var finals []int
	for i, l := range res.Trials {
		if l.Final {
			finals = append(finals, i)
		}
	}
	picked := make([]LoaderTrial, len(finals))
	for k, i := range finals {
		picked[k] = res.Trials[i]
	}
	fastest, smallest, alone := chooseLoaderSettings(picked)
	res.Fastest, res.Smallest, res.Alone = finals[fastest], finals[smallest], alone
	return res
}
