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

// LoaderOptions say how settings of a loader are compared.
type LoaderOptions struct {
	Budget     time.Duration     // that all measuring aims at; at least three rounds of each setting are measured; 0: 30 s
	LoaderOnly bool              // nothing is trained: whether the loader is the bottleneck stays open
	Line       func(line string) // what is being measured; nil: nobody
}

// LoaderTrial is what one setting of the loader gave.
type LoaderTrial struct {
	Setting      train.LoaderConfig `json:"setting"`
	Rates        []float64          `json:"rates"`         // samples a second, of each round
	Rate         float64            `json:"rate"`          // their median
	Times        Ratio              `json:"times"`         // as fast as the config's own setting
	MemoryBytes  int64              `json:"memory_bytes"`  // of the batches ahead, and of what is kept of the data
	Final        bool               `json:"final"`         // measured against the others to the end
	OtherBatches bool               `json:"other_batches"` // the training would see other batches: it is never advised

	rounds []float64 // Rates, NaN for rounds that it was not in
}

// LoaderTuning is which setting of the loader is the fastest, and whether that
// matters.
type LoaderTuning struct {
	Batch  int           `json:"batch"`
	Trials []LoaderTrial `json:"trials"` // the fastest first
	// Now, Fastest and Smallest are places in Trials: the config's own setting;
	// the fastest; and of those that are as fast within noise the one with the
	// fewest workers, then the least memory.
	Now      int  `json:"now"`
	Fastest  int  `json:"fastest"`
	Smallest int  `json:"smallest"`
	Alone    bool `json:"alone"` // no other setting is as fast as Fastest within noise
	// Enough is the smallest setting that alone gives 100 times as many samples as
	// the training takes, so that a faster one gains nothing; −1 where none does.
	Enough int `json:"enough"`
	// Training are the trials IO, SYNTHETIC and FULL of the config's own setting;
	// nil where nothing was trained.
	Training []runs.Trial `json:"training,omitempty"`
	// Full is FULL over SYNTHETIC: what loading costs the training. Gain is FULL
	// with the setting of Enough, or else of Smallest, over FULL with the config's
	// own.
	Full  Ratio    `json:"full"`
	Gain  Ratio    `json:"gain"`
	Notes []string `json:"notes"` // settings that were left out, and why
}

const (
	tuneBudget = 30 * time.Second
	tuneRounds = 6 // that a comparison aims at
	leastTuned = 3 // rounds below which there is no verdict
)

// Loader measures settings of the config's loader on its own data: every kind
// and number of workers; then, of the smallest that are as fast as the fastest,
// other depths of prefetch and orders of the stages; then the training with the
// setting that the config has and with the best one. Settings are measured in
// turns, round by round, as the trial IO of RunTrials is; those that are clearly
// slower drop out. It is for one worker, whose process gets the processors that a
// worker's gets.
func Loader(ctx context.Context, cfg train.Config, o LoaderOptions) (res *LoaderTuning, err error) {
	fail := func(err error) (*LoaderTuning, error) { return nil, fmt.Errorf("tune loader: %w", err) }
	if o.Budget <= 0 {
		o.Budget = tuneBudget
	}
	cfg.Accumulate, cfg.EMA = 1, train.Average{}
	if err := cfg.Validate(); err != nil {
		return fail(err)
	}
	if k := cfg.Loader.Kind; k == data.LoaderSynthetic || k == train.LoaderDevice {
		return fail(fmt.Errorf("loader.kind is %s, which loads nothing in a step: set loader.kind=lowmem, or inmem", k))
	}
	var notes []string
	if _, gpu := cfg.Engine.CUDA(); gpu && cfg.Loader.DeviceMiB > 0 {
		notes = append(notes, "measured with loader.device_mib=0: a set that a GPU holds whole needs no loader")
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
	t := &tuner{cfg: cfg, o: o, samples: samples, notes: notes, group: collective.InProcess(1)[0], alone: map[bool]float64{}}
	defer func() { err = errors.Join(err, t.close()) }()
	if err := t.loaders(ctx); err != nil {
		return fail(err)
	}
	res = t.result()
	if o.LoaderOnly {
		return res, nil
	}
	if err := t.training(ctx, res); err != nil {
		return fail(err)
	}
	return res, nil
}

// tuner compares settings.
type tuner struct {
	cfg     train.Config
	o       LoaderOptions
	samples train.Samples
	group   collective.Group
	kept    data.Dataset // the training samples in memory; nil where they cannot be
	all     []*contender
	notes   []string
	rounds  int              // of both races
	alone   map[bool]float64 // seconds of a batch without workers, of inmem and of lowmem
}

// contender is a setting that is measured.
type contender struct {
	LoaderTrial
	m     *measurer
	batch float64 // seconds that it takes
	out   bool    // it is clearly slower
}

func (t *tuner) close() error {
	for _, c := range t.all {
		c.m.close()
		c.m.loader.Close()
	}
	return t.group.Close()
}

func (t *tuner) say(format string, a ...any) {
	if t.o.Line != nil {
		t.o.Line(fmt.Sprintf(format, a...))
	}
}

func (t *tuner) note(format string, a ...any) { t.notes = append(t.notes, fmt.Sprintf(format, a...)) }

// loaders does both races.
func (t *tuner) loaders(ctx context.Context) error {
	share := 0.4
	if t.o.LoaderOnly {
		share = 0.6
	}
	begin := time.Now()
	if err := t.fill(ctx); err != nil {
		return err
	}
	first := time.Duration(share*float64(t.o.Budget)) - time.Since(begin)
	now, err := t.add(t.cfg.Loader)
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
			if _, err := t.add(setting); err != nil {
				return err
			}
		}
	}
	if err := t.race(ctx, t.all, max(first, t.o.Budget/5)); err != nil {
		return err
	}
	fastest, smallest, _ := judge(t.trials())
	finalists := []*contender{now}
	for _, c := range []*contender{t.all[fastest], t.all[smallest]} {
		if !slices.Contains(finalists, c) {
			finalists = append(finalists, c)
		}
	}
	for _, setting := range variations(t.all[smallest].Setting) {
		c, err := t.add(setting)
		if err != nil {
			return err
		}
		if !slices.Contains(finalists, c) {
			finalists = append(finalists, c)
		}
	}
	for _, c := range finalists {
		c.Final, c.out = true, false
	}
	return t.race(ctx, finalists, time.Duration((0.9-share)*0.6*float64(t.o.Budget)))
}

// variations are a setting's other depths of prefetch and orders.
func variations(s train.LoaderConfig) []train.LoaderConfig {
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

// effective is a setting by what it does: settings that are equal in it load in
// the same way.
func effective(s train.LoaderConfig) string {
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

// add is the contender with a setting, a new one where there is none yet.
func (t *tuner) add(s train.LoaderConfig) (*contender, error) {
	for _, c := range t.all {
		if effective(c.Setting) == effective(s) {
			return c, nil
		}
	}
	same, err := data.SameBatches(t.cfg.Loader.Order, s.Order)
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
	c := &contender{m: &measurer{cfg: cfg, group: t.group, loader: loader}}
	c.Setting, c.OtherBatches = s, !same
	t.all = append(t.all, c)
	return c, nil
}

// memoryPart is what of the machine's memory kept samples may take.
const memoryPart = 0.7

// fill reads the training samples into memory, if that is possible in a third of
// the budget; only the config's own setting is worth more.
func (t *tuner) fill(ctx context.Context) error {
	kept := data.InMemory(t.samples.Train)
	if _, complete := data.Kept(kept); complete {
		if t.cfg.Loader.Kind != data.LoaderInMem {
			t.note("inmem: the data are in memory already, so that it is lowmem")
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
	begin, done, limit := time.Now(), 0, int64(memoryPart*float64(runs.CollectHost().MemoryBytes))
	it := loader.Epoch(ctx, 0)
	defer it.Close()
	for it.Next() {
		done++
		bytes, complete := data.Kept(kept)
		took := time.Since(begin)
		switch own := t.cfg.Loader.Kind == data.LoaderInMem; {
		case complete:
			return nil
		case limit > 0 && bytes > limit && !own:
			t.note("inmem: left out: %d of %d batches fill %s of memory already", done, loader.Steps(), mebibytes(bytes))
			t.kept = nil
			return nil
		case took > t.o.Budget/3 && !own:
			t.note("inmem: left out: reading all samples takes about %v; for it give --budget %v",
				(took * time.Duration(loader.Steps()) / time.Duration(done)).Round(time.Second), (4 * took * time.Duration(loader.Steps()) / time.Duration(done)).Round(time.Second))
			t.kept = nil
			return nil
		}
	}
	return it.Err()
}

// race measures contenders in turns until the time is over.
func (t *tuner) race(ctx context.Context, all []*contender, budget time.Duration) error {
	begin := time.Now()
	slice := budget.Seconds() / float64(tuneRounds*len(all)) / 2
	all, err := t.look(ctx, all, budget)
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
		c.out = c.batch > 3*best && !c.isNow(t)
	}
	for round := 0; ; round++ {
		took := time.Since(begin)
		if round >= leastTuned && took+took/time.Duration(round+1) > budget {
			return nil
		}
		t.rounds++
		for _, c := range all {
			if c.out {
				continue
			}
			if err := c.measure(ctx, max(c.least(), int(slice/c.batch))); err != nil {
				return err
			}
			for len(c.rounds) < t.rounds-1 {
				c.rounds = append(c.rounds, math.NaN())
			}
			c.rounds = append(c.rounds, float64(t.cfg.Batch)/c.batch)
			t.say("%s: %.1f samples/s", SettingText(c.Setting), float64(t.cfg.Batch)/c.batch)
		}
		if round+1 >= leastTuned {
			t.drop(all)
		}
	}
}

// look measures each contender once, which does not count but warms up and says
// how long a batch takes. Those whose look alone would take too much of the budget
// are left out.
func (t *tuner) look(ctx context.Context, all []*contender, budget time.Duration) (kept []*contender, err error) {
	for _, c := range all {
		n := c.least()
		if c.batch == 0 && c.keepsBehind() {
			n = max(n, c.m.loader.Steps()) // what is kept is kept from the second epoch on
		}
		inmem := c.Setting.Kind == data.LoaderInMem
		if alone := t.alone[inmem]; alone > 0 && !c.isNow(t) {
			hands := max(1, min(c.Setting.Workers, runtime.GOMAXPROCS(0)))
			if need := time.Duration(float64(2*n) * alone / float64(hands) * float64(time.Second)); need > budget/time.Duration(len(all)) {
				t.note("%s: left out: a look takes about %v; for it give --budget %v", SettingText(c.Setting), need.Round(time.Second), (time.Duration(float64(len(all))*float64(need)/float64(budget)*float64(t.o.Budget)) + time.Second).Round(time.Second))
				continue
			}
		}
		for ; ; n *= 2 { // until what it takes to begin an epoch is little of it
			begin := time.Now()
			if err := c.measure(ctx, n); err != nil {
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

// least is how many batches a measurement has at least: fewer may all have been
// prepared before its clock starts.
func (c *contender) least() int {
	if c.Setting.Workers == 0 {
		return 1
	}
	return 2 * max(c.Setting.Workers, c.Setting.Prefetch)
}

// keepsBehind says whether the setting keeps what its stages have made.
func (c *contender) keepsBehind() bool {
	order := c.Setting.Order
	i := slices.Index(order, data.StageCache)
	return i >= 0 && i > min(slices.Index(order, data.StageBatch), slices.Index(order, data.StageMap))
}

func (c *contender) isNow(t *tuner) bool { return c == t.all[0] }

// clearlySlower is the share of the fastest one's rate that the interval of one
// that drops out does not reach.
const clearlySlower = 0.9

// drop takes those out that are clearly slower than the fastest.
func (t *tuner) drop(all []*contender) {
	best := t.all[0]
	for _, c := range all {
		if !c.OtherBatches && medianRate(c.rounds) > medianRate(best.rounds) {
			best = c
		}
	}
	for _, c := range all {
		c.out = c.out || !c.isNow(t) && ratio(c.rounds, best.rounds).High < clearlySlower
	}
}

// measure takes n batches after as many that do not count.
func (c *contender) measure(ctx context.Context, n int) error {
	c.m.o = TrialOptions{Batches: n, Trials: 1, Warmup: 1}
	seconds, err := c.m.measure(ctx, "IO", c.m.load)
	if err != nil {
		return fmt.Errorf("%s: %w", SettingText(c.Setting), err)
	}
	c.MemoryBytes = max(c.MemoryBytes, c.m.loader.MemoryBytes())
	c.m.close() // so that nothing is prepared beside what is measured next
	c.m.batches = nil
	c.batch = max(seconds[0], 1e-9) / float64(n)
	return nil
}

// trials are the contenders' results so far.
func (t *tuner) trials() []LoaderTrial {
	now, trials := t.all[0], make([]LoaderTrial, len(t.all))
	for i, c := range t.all {
		trials[i] = c.LoaderTrial
		trials[i].Rates = slices.DeleteFunc(slices.Clone(c.rounds), math.IsNaN)
		if trials[i].Rate = medianRate(c.rounds); len(trials[i].Rates) == 0 && c.batch > 0 { // it was not worth a round
			trials[i].Rate = float64(t.cfg.Batch) / c.batch
		}
		trials[i].Times = ratio(c.rounds, now.rounds)
	}
	return trials
}

// result puts the trials in order, and judges those that were measured to the
// end.
func (t *tuner) result() *LoaderTuning {
	res := &LoaderTuning{Batch: t.cfg.Batch, Notes: t.notes, Enough: -1, Full: ratio(nil, nil), Gain: ratio(nil, nil)}
	res.Trials = slices.DeleteFunc(t.trials(), func(l LoaderTrial) bool { return l.Rate == 0 }) // left out
	own := effective(t.all[0].Setting)
	slices.SortStableFunc(res.Trials, func(a, b LoaderTrial) int { return cmp.Compare(b.Rate, a.Rate) })
	res.Now = slices.IndexFunc(res.Trials, func(l LoaderTrial) bool { return effective(l.Setting) == own })
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
	fastest, smallest, alone := judge(picked)
	res.Fastest, res.Smallest, res.Alone = finals[fastest], finals[smallest], alone
	return res
}
