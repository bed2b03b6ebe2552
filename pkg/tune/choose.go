package tune

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"lockstep/pkg/data"
	"lockstep/pkg/runs"
	"lockstep/pkg/train"
)

// Ratio compares two rates measured in the same rounds. Value is the geometric mean over the rounds of
// one rate divided by the other. Low and High are the limits of its 95 % confidence interval (Student's
// t of the logarithms). Value is NaN without rounds. Low and High are NaN with fewer than two rounds.
type Ratio struct {
	Value, Low, High float64
	Rounds           int
}

// newRatio returns the Ratio of a to b, where a[i] and b[i] are the rates in round i. It skips
// rounds with a NaN.
func newRatio(a, b []float64) Ratio {
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

// String formats r as "1.25 [1.10, 1.40]": the value and its interval. It omits the interval if it
// is NaN, and returns "-" if the value is NaN.
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

// MarshalJSON encodes r as a JSON object, with null instead of NaN.
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

func medianRate(rounds []float64) float64 {
	v := slices.DeleteFunc(slices.Clone(rounds), math.IsNaN)
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// negligibleSpeedDifference is the relative difference in speed below which two settings count as equally
// fast, however precise the measurement: two measurements of the same setting can differ by as much.
const negligibleSpeedDifference = 0.02

// decisiveSpeedDifference is the relative difference above which two settings do not count as equally
// fast, even if the measurement is too noisy to distinguish them.
const decisiveSpeedDifference = 0.1

// chooseLoaderSettings returns the index of the setting with the highest median rate, and of the smallest
// setting (see isSmallerThan) among those that are as fast within noise. alone reports whether no
// other setting is as fast as the fastest. Settings with fewer than minRounds rounds, or with other
// batches than the config's, are ignored; if none is left, the result is 0, 0, false.
func chooseLoaderSettings(all []LoaderTrial) (fastest, smallest int, alone bool) {
	fastest = -1
	counts := func(l LoaderTrial) bool { return !l.OtherBatches && len(l.Rates) >= minRounds }
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
		r := newRatio(l.rounds, all[fastest].rounds)
		alone = alone && r.High < 1 && r.Value < 1-negligibleSpeedDifference
		if r.isAtLeastAsFast() && l.isSmallerThan(all[smallest]) {
			smallest = i
		}
	}
	return fastest, smallest, alone
}

// isSmallerThan reports whether l has fewer workers than other, or as many and less memory.
func (l LoaderTrial) isSmallerThan(other LoaderTrial) bool {
	return cmp.Or(cmp.Compare(l.Setting.Workers, other.Setting.Workers), cmp.Compare(l.MemoryBytes, other.MemoryBytes)) < 0
}

// findSufficientSetting returns the index of the smallest setting whose loader is fast enough that
// loading is negligible, or -1 if there is none. It must deliver sufficientLoaderRatio times as many
// samples per second as training, the rate of the training.
func findSufficientSetting(all []LoaderTrial, training float64) int {
	found := -1
	for i, l := range all {
		if !l.OtherBatches && len(l.Rates) >= minRounds && l.Rate >= sufficientLoaderRatio*training && (found < 0 || l.isSmallerThan(all[found])) {
			found = i
		}
	}
	return found
}

// comparedSettingIndex returns the index of the setting whose training speed is compared with the config's
// own: Enough if it is set, else Smallest.
func (l *LoaderTuning) comparedSettingIndex() int {
	if l.Enough >= 0 {
		return l.Enough
	}
	return l.Smallest
}

// isAtLeastAsFast reports whether the first rate of r is at least as high as the second, within noise.
func (r Ratio) isAtLeastAsFast() bool {
	return r.Rounds >= minRounds && (r.Value >= 1-negligibleSpeedDifference || r.High >= 1 && r.Value >= 1-decisiveSpeedDifference)
}

// measureTraining measures how much loading slows the training down, with the config's setting and
// with the best one. It stores the results in res.
func (t *loaderTuner) measureTraining(ctx context.Context, res *LoaderTuning) (err error) {
	worker, err := train.New(ctx, t.cfg, t.group, train.WorkerOptions{Samples: &t.samples})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, worker.Close()) }()
	now := t.all[0]
	m := &trialMeasurer{t: worker, cfg: t.cfg, group: t.group, o: TrialOptions{Batches: 1, Trials: 1}}
	with := func(c *loaderCandidate, name string, batch func(context.Context) error) (float64, error) {
		m.loader = c.m.loader
		seconds, err := m.measureTrials(ctx, name, batch)
		m.close()
		m.batches = nil
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		rate := m.samplesPerSecond(m.o.Batches, seconds[0])
		t.logf("%s with %s: %.1f samples/s", name, formatLoaderSetting(c.Setting), rate)
		return rate, nil
	}
	begin := time.Now()
	rate := 0.0
	for range 2 { // the first step also warms up
		if rate, err = with(now, "SYNTHETIC", m.trainOnCachedBatch); err != nil {
			return err
		}
	}
	res.Enough = findSufficientSetting(res.Trials, rate)
	best := t.findCandidate(res.Trials[res.comparedSettingIndex()].Setting)
	budget := time.Duration(0.3 * float64(t.o.Budget))
	kinds := 2
	if best != now {
		kinds = 3
	}
	m.o.Warmup = 1
	m.o.Batches = max(1, int(budget.Seconds()/float64(targetRounds*kinds)/2*rate/float64(t.cfg.Batch)))
	var synthetic, full, gained []float64
	for round := 0; round < minRounds || time.Since(begin) < budget; round++ {
		for _, x := range []struct {
			c     *loaderCandidate
			name  string
			batch func(context.Context) error
			into  *[]float64
		}{{now, "SYNTHETIC", m.trainOnCachedBatch, &synthetic}, {now, "FULL", m.loadAndTrain, &full}, {best, "FULL", m.loadAndTrain, &gained}} {
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
	res.Full, res.Gain = newRatio(full, synthetic), newRatio(gained, full)
	io := res.Trials[res.Now]
	res.Training = []runs.Trial{summarizeLoaderTrial("IO", io.Rates), summarizeLoaderTrial("SYNTHETIC", synthetic), summarizeLoaderTrial("FULL", full)}
	return nil
}

// findCandidate returns the candidate whose setting has the same effect as s. If there is none, it
// returns the candidate with the config's setting.
func (t *loaderTuner) findCandidate(s train.LoaderConfig) *loaderCandidate {
	for _, c := range t.all {
		if settingEffectKey(c.Setting) == settingEffectKey(s) {
			return c
		}
	}
	return t.all[0]
}

// summarizeLoaderTrial returns a trial with the median of rates and, as in RunTrials, their population standard
// deviation.
func summarizeLoaderTrial(name string, rates []float64) runs.Trial {
	return runs.Trial{Name: name, Rate: medianRate(rates), Rates: rates, Spread: math.Sqrt(stat.PopVariance(rates, nil))}
}

// AdvisedSetting returns the setting of Enough or, if that is not set, of Smallest. If the config's
// own setting trains as fast, it returns that.
func (l *LoaderTuning) AdvisedSetting() train.LoaderConfig {
	if l.comparedSettingIndex() == l.Now || l.isLoadingNegligible() || l.Training != nil && !(l.Gain.Low > 1) {
		return l.Trials[l.Now].Setting
	}
	return l.Trials[l.comparedSettingIndex()].Setting
}

// loaderToTrainingRatio returns the speed of the config's loader alone, divided by the speed of
// training without loading. It is NaN if no training was measured.
func (l *LoaderTuning) loaderToTrainingRatio() float64 {
	if l.Training == nil {
		return math.NaN()
	}
	return l.Training[0].Rate / l.Training[1].Rate
}

// sufficientLoaderRatio is the smallest loaderToTrainingRatio at which loading is negligible: even
// if no batch is loaded ahead, loading takes at most a hundredth of a step.
const sufficientLoaderRatio = 100

// isLoadingNegligible reports whether a training was measured that loading does not slow down measurably.
func (l *LoaderTuning) isLoadingNegligible() bool {
	return l.Training != nil && (l.Full.isAtLeastAsFast() || l.loaderToTrainingRatio() >= sufficientLoaderRatio)
}

// FormatOverrides formats s as values of the flag --set, such as "loader.workers=4".
func FormatOverrides(s train.LoaderConfig) []string {
	set := []string{"loader.kind=" + cmp.Or(s.Kind, data.LoaderLowMem), fmt.Sprintf("loader.workers=%d", s.Workers), fmt.Sprintf("loader.prefetch=%d", s.Prefetch)}
	if len(s.Order) > 0 && !slices.Equal(s.Order, data.DefaultOrder()) {
		set = append(set, "loader.order=["+strings.Join(s.Order, ",")+"]")
	}
	return set
}
