package tune

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"lockstep/pkg/data"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// Ratio is how many times as much one thing is as another one that was measured
// beside it, round by round: the geometric mean, with the 95 % interval of
// Student's t of the logarithms. NaN is not known.
type Ratio struct {
	Value, Low, High float64
	Rounds           int
}

// ratio is a over b, in the rounds in which both were measured.
func ratio(a, b []float64) Ratio {
	nan := math.NaN()
	r := Ratio{nan, nan, nan, 0}
	var logs []float64
	for i := range min(len(a), len(b)) {
		if v := math.Log(a[i] / b[i]); !math.IsNaN(v) && !math.IsInf(v, 0) {
			logs = append(logs, v)
		}
	}
	if r.Rounds = len(logs); r.Rounds == 0 {
		return r
	}
	mean, deviation := stat.MeanStdDev(logs, nil)
	r.Value = math.Exp(mean)
	if n := float64(len(logs)); n > 1 {
		half := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(0.975) * deviation / math.Sqrt(n)
		r.Low, r.High = math.Exp(mean-half), math.Exp(mean+half)
	}
	return r
}

// String is the value with its interval.
func (r Ratio) String() string {
	text := func(v float64) string {
		if v >= 100 {
			return fmt.Sprintf("%.0f", v)
		}
		return fmt.Sprintf("%.2f", v)
	}
	switch {
	case math.IsNaN(r.Value):
		return "-"
	case math.IsNaN(r.Low):
		return text(r.Value)
	}
	return fmt.Sprintf("%s [%s, %s]", text(r.Value), text(r.Low), text(r.High))
}

// MarshalJSON writes what is not known as null.
func (r Ratio) MarshalJSON() ([]byte, error) {
	number := func(v float64) *float64 {
		if math.IsNaN(v) {
			return nil
		}
		return &v
	}
	return json.Marshal(struct {
		Value  *float64 `json:"value"`
		Low    *float64 `json:"low"`
		High   *float64 `json:"high"`
		Rounds int      `json:"rounds"`
	}{number(r.Value), number(r.Low), number(r.High), r.Rounds})
}

// medianRate is the median of what was measured, 0 of nothing.
func medianRate(rounds []float64) float64 {
	v := slices.DeleteFunc(slices.Clone(rounds), math.IsNaN)
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// alike is the relative difference that is not worth a larger setting, however
// well it was measured: another run of the same setting shows as much.
const alike = 0.02

// unlike is the relative difference beyond which a setting is not called as fast,
// however noisy the measurement was that does not tell them apart.
const unlike = 0.1

// judge picks of the settings with enough rounds, and with the batches of the
// config, the fastest by its median; and of those that are as fast within noise
// the smallest: the fewest workers, then the least memory, then the first. alone
// says that no other is as fast.
func judge(all []LoaderTrial) (fastest, smallest int, alone bool) {
	fastest = -1
	counts := func(l LoaderTrial) bool { return !l.OtherBatches && len(l.Rates) >= leastTuned }
	for i, l := range all {
		if counts(l) && (fastest < 0 || l.Rate > all[fastest].Rate) {
			fastest = i
		}
	}
	if fastest < 0 {
		return 0, 0, false
	}
	smallest, alone = fastest, true
	for i, l := range all {
		if i == fastest || !counts(l) {
			continue
		}
		r := ratio(l.rounds, all[fastest].rounds)
		alone = alone && r.High < 1 && r.Value < 1-alike
		if r.asGood() && l.smaller(all[smallest]) {
			smallest = i
		}
	}
	return fastest, smallest, alone
}

// smaller says whether a setting has fewer workers than another one, or as many
// and needs less memory.
func (l LoaderTrial) smaller(than LoaderTrial) bool {
	return cmp.Or(cmp.Compare(l.Setting.Workers, than.Setting.Workers), cmp.Compare(l.MemoryBytes, than.MemoryBytes)) < 0
}

// enough is the smallest setting that gives plenty for a training that takes so
// many samples a second, −1 where none does.
func enough(all []LoaderTrial, training float64) int {
	found := -1
	for i, l := range all {
		if !l.OtherBatches && len(l.Rates) >= leastTuned && l.Rate >= plenty*training && (found < 0 || l.smaller(all[found])) {
			found = i
		}
	}
	return found
}

// best is the setting that the training is tried with.
func (l *LoaderTuning) best() int {
	if l.Enough >= 0 {
		return l.Enough
	}
	return l.Smallest
}

// asGood says whether what the ratio is of is as fast as the other within noise.
func (r Ratio) asGood() bool {
	return r.Rounds >= leastTuned && (r.Value >= 1-alike || r.High >= 1 && r.Value >= 1-unlike)
}

// training measures what loading costs the training, with the config's own
// setting and with the smallest of the fastest.
func (t *tuner) training(ctx context.Context, res *LoaderTuning) (err error) {
	worker, err := train.New(ctx, t.cfg, t.group, train.WorkerOptions{Samples: &t.samples})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, worker.Close()) }()
	now := t.all[0]
	m := &measurer{t: worker, cfg: t.cfg, group: t.group, o: TrialOptions{Batches: 1, Trials: 1}}
	with := func(c *contender, name string, batch func(context.Context) error) (float64, error) {
		m.loader = c.m.loader
		seconds, err := m.measure(ctx, name, batch)
		m.close()
		m.batches = nil
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		rate := m.rate(seconds[0])
		t.say("%s with %s: %.1f samples/s", name, SettingText(c.Setting), rate)
		return rate, nil
	}
	begin := time.Now()
	rate := 0.0
	for range 2 { // the first step also warms up
		if rate, err = with(now, "SYNTHETIC", m.step); err != nil {
			return err
		}
	}
	res.Enough = enough(res.Trials, rate)
	best := t.find(res.Trials[res.best()].Setting)
	budget := time.Duration(0.3 * float64(t.o.Budget))
	kinds := 2
	if best != now {
		kinds = 3
	}
	m.o.Warmup = 1
	m.o.Batches = max(1, int(budget.Seconds()/float64(tuneRounds*kinds)/2*rate/float64(t.cfg.Batch)))
	var synthetic, full, gained []float64
	for round := 0; round < leastTuned || time.Since(begin) < budget; round++ {
		for _, x := range []struct {
			c     *contender
			name  string
			batch func(context.Context) error
			into  *[]float64
		}{{now, "SYNTHETIC", m.step, &synthetic}, {now, "FULL", m.both, &full}, {best, "FULL", m.both, &gained}} {
			if x.into == &gained && best == now {
				continue
			}
			rate, err := with(x.c, x.name, x.batch)
			if err != nil {
				return err
			}
			*x.into = append(*x.into, rate)
		}
	}
	res.Full, res.Gain = ratio(full, synthetic), ratio(gained, full)
	io := res.Trials[res.Now]
	res.Training = []runs.Trial{trialOf("IO", io.Rates), trialOf("SYNTHETIC", synthetic), trialOf("FULL", full)}
	return nil
}

// find is the contender with a setting.
func (t *tuner) find(s train.LoaderConfig) *contender {
	for _, c := range t.all {
		if effective(c.Setting) == effective(s) {
			return c
		}
	}
	return t.all[0]
}

// trialOf is a trial by the median of its rates; the spread is their population
// standard deviation, as that of RunTrials.
func trialOf(name string, rates []float64) runs.Trial {
	return runs.Trial{Name: name, Rate: medianRate(rates), Rates: rates, Spread: math.Sqrt(stat.PopVariance(rates, nil))}
}

// Advised is the setting to use: that of Enough or Smallest, or the config's own
// where nothing is to be gained.
func (l *LoaderTuning) Advised() train.LoaderConfig {
	if l.best() == l.Now || l.free() || l.Training != nil && !(l.Gain.Low > 1) {
		return l.Trials[l.Now].Setting
	}
	return l.Trials[l.best()].Setting
}

// Spare is how many times as many samples the config's loader alone gives as the
// training takes without loading; NaN where nothing was trained.
func (l *LoaderTuning) Spare() float64 {
	if l.Training == nil {
		return math.NaN()
	}
	return l.Training[0].Rate / l.Training[1].Rate
}

// plenty is Spare from which on loading costs less than can be measured, even
// where nothing is prepared ahead: a hundredth of the step.
const plenty = 100

// free says whether loading costs the training nothing.
func (l *LoaderTuning) free() bool {
	return l.Training != nil && (l.Full.asGood() || l.Spare() >= plenty)
}

// Overrides returns a setting as overrides "key=value" of a config, as --set takes them.
func Overrides(s train.LoaderConfig) []string {
	kind := s.Kind
	if kind == "" {
		kind = data.LoaderLowMem
	}
	set := []string{"loader.kind=" + kind, fmt.Sprintf("loader.workers=%d", s.Workers), fmt.Sprintf("loader.prefetch=%d", s.Prefetch)}
	if len(s.Order) > 0 && !slices.Equal(s.Order, data.DefaultOrder()) {
		set = append(set, orderSet(s.Order))
	}
	return set
}
