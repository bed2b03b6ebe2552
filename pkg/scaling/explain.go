package scaling

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling/internal/observe"
)

// Input is a number that entered the computation of a result, with the file and line that it was
// read from.
type Input struct {
	Role    string // its role in the formula: "N = 14", "baseline B = 1"
	Run     string // run folder, or log file of another program
	File    string // file that contains the number
	Line    int    // line in File, from 1; 0 if the number is not on a separate line
	Epoch   int    // 0 for a number of the whole run
	Name    string // name of the column
	Value   float64
	Unit    string
	Counted bool
	Why     string // the reason why it does not count, or how it is used
}

// ExplainedNumber documents how one number of a study was computed.
type ExplainedNumber struct {
	ID          string // HTML anchor: speedup-native-14
	Series      string
	Metric      string
	Workers     int
	Formula     string // for example S(14) = t(1) / t(14)
	Substituted string // the formula with numbers: 194.188 s / 16.223 s = 11.970
	Result      Estimate
	Rule        string // the rule in words
	Inputs      []Input
	Notes       []string
}

// Explanation documents how a metric was computed, for each series, with formulas and inputs.
//
// Its table has one row per input: metric, series, workers, result, role, run, file,
// line, epoch, name, value, unit, counted, why. Line and epoch are 0 if they do not
// apply.
type Explanation struct {
	analysis
	Items []ExplainedNumber
}

// Explain documents how a metric of each series at a worker count was computed: the formula, its
// inputs, which epochs count, and the file and line of each number. metric is a column of
// Study.Table, such as speedup, efficiency, throughput, epoch_seconds, iou, val_loss or
// wall_seconds.
func (s *Study) Explain(metric string, workers int) (*Explanation, error) {
	e := &Explanation{}
	e.analysis = analysis{e}
	for _, p := range s.Points {
		if p.Workers != workers {
			continue
		}
		one, err := s.ExplainSeries(p.Series, metric, workers)
		if err != nil {
			return nil, err
		}
		e.Items = append(e.Items, one.Items...)
	}
	if len(e.Items) == 0 {
		there := observe.Distinct(s.Points, func(p Point) string { return strconv.Itoa(p.Workers) })
		return nil, fmt.Errorf("explain %s: no series has a run at %s; the study has runs at %s", metric, english.FormatCount(workers, "worker"), english.JoinAnd(there))
	}
	return e, nil
}

// ExplainSeries is like Explain for one series.
func (s *Study) ExplainSeries(series, metric string, workers int) (*Explanation, error) {
	i, err := s.findPointIndex(series, workers)
	if err != nil {
		return nil, fmt.Errorf("explain %s: %w", metric, err)
	}
	k := slices.IndexFunc(pointEstimateFields(), func(f pointEstimateField) bool { return f.name == metric })
	if k < 0 {
		var names []string
		for _, f := range pointEstimateFields() {
			names = append(names, f.name)
		}
		return nil, fmt.Errorf("explain: unknown metric %q: use one of %s", metric, strings.Join(names, ", "))
	}
	x := ExplainedNumber{
		ID: explanationHTMLID(metric, series, workers), Series: series, Metric: metric, Workers: workers,
		Result: *pointEstimateFields()[k].of(&s.Points[i]), Rule: s.Rule.String(),
	}
	switch metric {
	case "speedup", "efficiency":
		err = s.explainSpeedupRatio(&x, i)
	case "epoch_seconds", "throughput", "per_worker":
		s.explainEpochMetric(&x, i)
	default:
		s.explainRunMetric(&x, i)
	}
	if err != nil {
		return nil, fmt.Errorf("explain %s: %w", metric, err)
	}
	if p := s.Points[i]; p.Failed > 0 {
		x.Notes = append(x.Notes, fmt.Sprintf("%s at %s failed or were canceled, and do not count", english.FormatCount(p.Failed, "run"), english.FormatCount(workers, "worker")))
	}
	if !math.IsNaN(x.Result.Low) && x.Result.N > 1 {
		x.Notes = append(x.Notes, fmt.Sprintf("%s interval %s; %s", english.FormatPercent(s.Rule.confidenceLevel()), x.Result.formatInterval(), s.IntervalNote()))
	}
	e := &Explanation{Items: []ExplainedNumber{x}}
	e.analysis = analysis{e}
	return e, nil
}

func explanationHTMLID(metric, series string, workers int) string {
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, series)
	return fmt.Sprintf("%s-%s-%d", strings.ReplaceAll(metric, "_", "-"), safe, workers)
}

// explainSpeedupRatio stores in x how the speed-up or efficiency of the i-th point was computed from two
// points.
func (s *Study) explainSpeedupRatio(x *ExplainedNumber, i int) error {
	p := s.Points[i]
	m, ok := s.measures[p.Series]
	b := slices.IndexFunc(s.Points, func(q Point) bool { return q.Series == p.Series && q.Size == p.Baseline && q.Baseline > 0 })
	for k, q := range s.Points { // of equal sizes the last is the baseline
		if q.Series == p.Series && q.Size == p.Baseline && m.HasValue(s.cells[k]) {
			b = k
		}
	}
	if !ok || b < 0 || p.Baseline == 0 {
		return fmt.Errorf("series %s has no speed-up at %s: no run counts there or at the baseline (%s)", p.Series, english.FormatCount(p.Workers, "worker"), s.Rule.describeBaseline())
	}
	values := func(k int) float64 {
		v := m.PositiveValues(s.cells[k])
		if len(v) == 0 {
			return math.NaN()
		}
		return s.estimator().MeanOrMedian(v)
	}
	at, base := values(i), values(b)
	symbol, top, bottom, topValue, bottomValue := "r", p.Size, p.Baseline, at, base
	if !m.Higher {
		symbol, top, bottom, topValue, bottomValue = "t", p.Baseline, p.Size, base, at
	}
	x.Formula = fmt.Sprintf("S(%d) = %s(%d) / %s(%d), where %s is the %s", p.Size, symbol, top, symbol, bottom, symbol, m.Words)
	x.Substituted = fmt.Sprintf("%s %s / %s %s = %s", english.FormatTenDigits(topValue), m.Unit(s.cells[i]), english.FormatTenDigits(bottomValue), m.Unit(s.cells[b]), english.FormatNumber(p.Speedup.Value))
	if x.Metric == "efficiency" {
		x.Formula += fmt.Sprintf("; E(%d) = S(%d)·%d/%d", p.Size, p.Size, p.Baseline, p.Size)
		x.Substituted += fmt.Sprintf("; %s · %d/%d = %s", english.FormatNumber(p.Speedup.Value), p.Baseline, p.Size, english.FormatNumber(p.Efficiency.Value))
	}
	x.Inputs = append(x.Inputs, s.speedInputs("N = "+s.Rule.formatSize(p.Size), i, m.Name)...)
	if b != i {
		x.Inputs = append(x.Inputs, s.speedInputs("baseline B = "+s.Rule.formatSize(p.Baseline), b, m.Name)...)
	}
	return nil
}

// explainEpochMetric stores in x how the time per epoch or the throughput of the i-th point was computed.
func (s *Study) explainEpochMetric(x *ExplainedNumber, i int) {
	p := s.Points[i]
	name := "throughput"
	switch x.Metric {
	case "epoch_seconds":
		name = "epoch_seconds"
		x.Formula = "t = " + s.Rule.describeEpochStatistic() + " of the seconds"
	case "throughput":
		x.Formula = "r = samples of the counted epochs / their seconds"
		if s.Rule.Epochs == Median {
			x.Formula = "r = median over the counted epochs of samples / seconds"
		}
	default:
		x.Formula = fmt.Sprintf("r/N = samples of the counted epochs / their seconds / %d", p.Size)
	}
	if source := s.cells[i].RateSource(); source != "" && name == "throughput" {
		x.Formula = "r = " + source
		if x.Metric == "per_worker" {
			x.Formula = fmt.Sprintf("r/N = r / %d, where r is %s", p.Size, source)
		}
	}
	if p.Runs > 1 {
		x.Formula += fmt.Sprintf(", then the %s over %s", s.Rule.statisticOverRuns(), english.FormatCount(p.Runs, "run"))
	}
	var each []string
	for _, m := range s.cells[i].Measured {
		v := m.Rate
		if name == "epoch_seconds" {
			v = m.Seconds
		}
		each = append(each, english.FormatTenDigits(v))
	}
	x.Substituted = strings.Join(each, ", ")
	if len(each) != 1 || x.Metric == "per_worker" {
		x.Substituted += " → " + english.FormatNumber(x.Result.Value)
	}
	x.Inputs = s.speedInputs(fmt.Sprintf("N = %d", p.Workers), i, name)
}

// explainRunMetric stores in x how a metric with one value per run, such as a loss or the wall
// time, was computed for the i-th point.
func (s *Study) explainRunMetric(x *ExplainedNumber, i int) {
	p := s.Points[i]
	x.Formula = x.Metric + " of the run"
	if p.Runs > 1 {
		x.Formula = fmt.Sprintf("%s over %s", s.Rule.statisticOverRuns(), english.FormatCount(p.Runs, "run"))
	}
	var each []string
	for k, r := range s.cells[i].Runs {
		in := Input(observe.NewResultInput(x.Metric, r, s.cells[i].Measured[k]))
		in.Role, in.Run = fmt.Sprintf("N = %d", p.Workers), r.Dir
		if in.Counted = !math.IsNaN(in.Value); in.Counted {
			each = append(each, english.FormatTenDigits(in.Value))
		} else if in.Why == "" {
			in.Why = "the log does not contain it"
		}
		x.Inputs = append(x.Inputs, in)
	}
	x.Substituted = strings.Join(each, ", ")
	if len(each) > 1 {
		x.Substituted += " → " + english.FormatNumber(x.Result.Value)
	}
}

// speedInputs returns the values of all epochs at the i-th point that enter a measure of speed,
// including epochs that do not count.
func (s *Study) speedInputs(role string, i int, measureName string) []Input {
	var out []Input
	for _, in := range s.Rule.toMeasurementRule().SpeedInputs(s.cells[i], measureName) {
		in.Role = role
		out = append(out, Input(in))
	}
	return out
}

// describeEpochStatistic describes how a run's epochs are combined, such as "mean over the counted epochs".
func (r Rule) describeEpochStatistic() string {
	switch how := cmp.Or(r.Epochs, Mean); how {
	case Mean, Median:
		return how + " over the counted epochs"
	}
	return "epoch " + r.Epochs
}

func (r Rule) statisticOverRuns() string { return cmp.Or(r.Repeats, Median) }
