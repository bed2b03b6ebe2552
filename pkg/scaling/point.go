package scaling

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/stat"

	"lockstep/pkg/logread"
	"lockstep/pkg/runs"
)

// Span is a value over repeated runs, with the lowest and the highest of them.
// All three are NaN where nothing was measured.
type Span struct {
	Value, Min, Max float64
}

// Point is a series at a number of workers.
type Point struct {
	Series  string
	Workers int
	Runs    int // that count
	Failed  int // that failed or were cancelled, and do not count
	Epochs  int // that count, of all these runs together

	EpochSeconds Span // of training, without validation
	Throughput   Span // samples per second, all workers together
	Speedup      Span // over the fewest workers of the series; min and max over the baseline's value
	Efficiency   Span // from 0 to 1: speed-up / (workers / baseline workers)

	IoU, Dice                   Span // over the test set, after training
	IoUConstant, DiceConstant   Span // of the better of the all-0 and the all-1 predictor
	IoUUntrained, DiceUntrained Span // of the same network before the first step
	TrainLoss, ValLoss          Span // of the last epoch

	BatchPerWorker, ThreadsPerWorker int // 0 where unknown
}

// measured is what the rule makes of one run.
type measured struct {
	seconds, rate float64 // NaN where unknown
	epochs        int     // counted
}

// measure applies the rule to a run.
func (s *Study) measure(r runs.Run) measured {
	var seconds, rates []float64
	var samples, total float64
	for i, e := range r.Epochs {
		if !s.counts(r, i) || !(e.Seconds > 0) || math.IsInf(e.Seconds, 0) {
			continue
		}
		n := float64(e.Samples)
		if n == 0 {
			n = float64(s.Rule.SamplesPerEpoch)
		}
		seconds = append(seconds, e.Seconds)
		rates = append(rates, n/e.Seconds)
		samples, total = samples+n, total+e.Seconds
	}
	m := measured{seconds: math.NaN(), rate: math.NaN(), epochs: len(seconds)}
	if m.epochs == 0 {
		return s.measureWhole(r, m)
	}
	if s.Rule.Epochs == Median {
		m.seconds, m.rate = median(seconds), median(rates)
	} else { // the mean rate over time, not over epochs: samples / seconds
		m.seconds, m.rate = stat.Mean(seconds, nil), samples/total
	}
	if samples == 0 {
		m.rate = math.NaN()
	}
	return m
}

// measureWhole takes the mean of the training time over all epochs where the
// log tells that time alone.
func (s *Study) measureWhole(r runs.Run, m measured) measured {
	whole, ok := r.Info.Config[logread.TrainingSeconds].(float64)
	if !ok || !(whole > 0) || len(r.Epochs) == 0 || timed(r) {
		return m
	}
	s.note("%s tells only the whole training time; its seconds per epoch are that over its %d epochs, the first included", r.Dir, len(r.Epochs))
	m.epochs, m.seconds = len(r.Epochs), whole/float64(len(r.Epochs))
	if s.Rule.SamplesPerEpoch > 0 {
		m.rate = float64(s.Rule.SamplesPerEpoch) / m.seconds
	}
	return m
}

// timed says whether a run has the time of any epoch.
func timed(r runs.Run) bool {
	return slices.ContainsFunc(r.Epochs, func(e runs.Epoch) bool { return e.Seconds > 0 })
}

// counts says whether the rule counts the i-th epoch of a run. The only row of
// a program that is not ours is the time of the whole job, which is not to be
// left out.
func (s *Study) counts(r runs.Run, i int) bool {
	if len(r.Info.Command) > 0 && len(r.Epochs) == 1 {
		return true
	}
	if n, err := strconv.Atoi(s.Rule.Epochs); err == nil {
		return r.Epochs[i].Epoch == n
	}
	return i >= s.Rule.DropFirst
}

// addSeries computes the points of a series and says what is odd about it.
func (s *Study) addSeries(g seriesRuns) {
	counts := map[int][]runs.Run{}
	var workers []int
	for _, r := range g.runs {
		if counts[r.Info.Workers] == nil {
			workers = append(workers, r.Info.Workers)
		}
		counts[r.Info.Workers] = append(counts[r.Info.Workers], r)
	}
	slices.Sort(workers)
	first := len(s.Points)
	for _, n := range workers {
		s.Points = append(s.Points, s.point(g.name, n, counts[n]))
	}
	s.speedups(g.name, s.Points[first:])
	s.compare(g)
}

// point aggregates the runs of a series at n workers.
func (s *Study) point(series string, n int, all []runs.Run) Point {
	p := Point{Series: series, Workers: n}
	var used []runs.Run
	var seconds, rates []float64
	for _, r := range all {
		if r.Info.Status == runs.StatusFailed || r.Info.Status == runs.StatusCanceled {
			p.Failed++
			s.problem(r, "the run %s and does not count: %s", r.Info.Status, orUnknown(r.Info.Error))
			continue
		}
		m := s.measure(r)
		s.examine(r, m)
		used = append(used, r)
		p.Epochs += m.epochs
		seconds, rates = append(seconds, m.seconds), append(rates, m.rate)
	}
	p.Runs = len(used)
	p.EpochSeconds, p.Throughput = s.span(seconds), s.span(rates)
	over := func(value func(runs.Run) float64) Span {
		var v []float64
		for _, r := range used {
			v = append(v, value(r))
		}
		return s.span(v)
	}
	p.IoU = over(func(r runs.Run) float64 { return final(r, testIoU, func(e runs.Epoch) float64 { return e.IoU }) })
	p.Dice = over(func(r runs.Run) float64 { return final(r, testDice, func(e runs.Epoch) float64 { return e.Dice }) })
	p.IoUConstant = over(func(r runs.Run) float64 { return ofTest(r, func(t runs.Test) float64 { return t.IoUConstant }) })
	p.DiceConstant = over(func(r runs.Run) float64 { return ofTest(r, func(t runs.Test) float64 { return t.DiceConstant }) })
	p.IoUUntrained = over(func(r runs.Run) float64 { return ofTest(r, func(t runs.Test) float64 { return t.IoUUntrained }) })
	p.DiceUntrained = over(func(r runs.Run) float64 { return ofTest(r, func(t runs.Test) float64 { return t.DiceUntrained }) })
	p.TrainLoss = over(func(r runs.Run) float64 { return ofLast(r, func(e runs.Epoch) float64 { return e.TrainLoss }) })
	p.ValLoss = over(func(r runs.Run) float64 { return ofLast(r, func(e runs.Epoch) float64 { return e.ValLoss }) })
	if len(used) > 0 {
		p.BatchPerWorker, p.ThreadsPerWorker = used[0].Info.BatchPerWorker, used[0].Info.ThreadsPerWorker
	}
	return p
}

// examine names what keeps a run that counts from being whole.
func (s *Study) examine(r runs.Run, m measured) {
	if r.Info.Status == runs.StatusRunning {
		s.problem(r, "the run has not ended (it still runs, or was killed); its %d epochs so far count", len(r.Epochs))
	}
	switch {
	case len(r.Epochs) == 0:
		s.problem(r, "the run has no epochs")
	case m.epochs > 0:
	case timed(r):
		s.problem(r, "no epoch of %d counts by the rule (%s); train more epochs, or change the rule", len(r.Epochs), s.Rule)
	default:
		s.problem(r, "the log tells no time per epoch")
	}
	for _, e := range r.Epochs {
		if math.IsNaN(e.TrainLoss) || math.IsInf(e.TrainLoss, 0) {
			s.problem(r, "the training loss of epoch %d is not a finite number", e.Epoch)
			break
		}
	}
}

// speedups fills in what compares the points of one series.
func (s *Study) speedups(series string, points []Point) {
	value := func(p Point) Span { return p.Throughput }
	known := func(p Point) bool { return !math.IsNaN(value(p).Value) }
	if !slices.ContainsFunc(points, known) {
		// t(B)/t(N) is the ratio of the rates 1/t.
		value = func(p Point) Span {
			return Span{1 / p.EpochSeconds.Value, 1 / p.EpochSeconds.Max, 1 / p.EpochSeconds.Min}
		}
		if slices.ContainsFunc(points, known) {
			s.byTime = append(s.byTime, series)
		}
	}
	nan := Span{math.NaN(), math.NaN(), math.NaN()}
	for i := range points {
		points[i].Speedup, points[i].Efficiency = nan, nan
	}
	b := slices.IndexFunc(points, known)
	if b < 0 {
		return
	}
	if b > 0 {
		s.note("series %s: nothing counts at %d workers; the baseline of the speed-up is %d workers", series, points[0].Workers, points[b].Workers)
	} else if points[b].Workers > 1 {
		s.note("series %s: the baseline of the speed-up is %d workers, the fewest there are", series, points[b].Workers)
	}
	base := value(points[b]).Value
	for i := range points {
		v := value(points[i])
		share := float64(points[b].Workers) / float64(points[i].Workers)
		points[i].Speedup = Span{v.Value / base, v.Min / base, v.Max / base}
		points[i].Efficiency = Span{v.Value / base * share, v.Min / base * share, v.Max / base * share}
	}
}

// span aggregates what is known of values by the rule.
func (s *Study) span(values []float64) Span {
	v := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(v) == 0 {
		return Span{math.NaN(), math.NaN(), math.NaN()}
	}
	middle := median(v)
	if s.Rule.Repeats == Mean {
		middle = stat.Mean(v, nil)
	}
	return Span{middle, slices.Min(v), slices.Max(v)}
}

// median is the middle value, or the mean of the two middle ones.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func testIoU(t runs.Test) float64  { return t.IoU }
func testDice(t runs.Test) float64 { return t.Dice }

// final is a value of the test after training, or of the last epoch that has it.
func final(r runs.Run, test func(runs.Test) float64, epoch func(runs.Epoch) float64) float64 {
	if v := ofTest(r, test); !math.IsNaN(v) {
		return v
	}
	return ofLast(r, epoch)
}

func ofTest(r runs.Run, value func(runs.Test) float64) float64 {
	if r.Info.Test == nil {
		return math.NaN()
	}
	return value(*r.Info.Test)
}

// ofLast is a value of the last epoch that has it.
func ofLast(r runs.Run, value func(runs.Epoch) float64) float64 {
	for _, e := range slices.Backward(r.Epochs) {
		if v := value(e); !math.IsNaN(v) {
			return v
		}
	}
	return math.NaN()
}

func (s *Study) problem(r runs.Run, format string, a ...any) {
	s.Problems = append(s.Problems, runs.Problem{File: r.Dir, Reason: fmt.Sprintf(format, a...)})
}

func (s *Study) note(format string, a ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, a...))
}

func orUnknown(reason string) string {
	if reason == "" {
		return "it left no reason"
	}
	return reason
}

// runName is how a note calls a run.
func runName(r runs.Run) string { return filepath.Base(r.Dir) }
