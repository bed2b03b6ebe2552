package scaling

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
)

// Point is a series at a number of workers.
type Point struct {
	Series  string
	Workers int
	Nodes   int // machines; 0 where unknown
	// Size is what the rule counts, and what a figure has on its axis: Workers,
	// or Nodes with Rule.Per "node". Baseline is the Size that speed-up
	// compares with; 0 where there is none.
	Size, Baseline int
	Scaling        string // of the series: "weak", "strong" or "unknown", see Mode

	Runs     int // that count
	Failed   int // that failed or were cancelled, and do not count
	Diverged int // that count, and whose loss became NaN or infinite; their loss does not count
	Epochs   int // that count, of all these runs together
	// Disturbed is how many of the runs that count were disturbed by other load
	// on their machine; see runs.LoadSummary.
	Disturbed int

	EpochSeconds Span // of training, without validation
	Throughput   Span // samples per second, all workers together
	PerWorker    Span // samples per second and worker (node with Rule.Per "node")
	Speedup      Span // over the baseline; min and max over the baseline's value
	Efficiency   Span // from 0 to 1: speed-up / (Size / Baseline)

	TrainSeconds Span // of all epochs of a run
	TestSeconds  Span // of the test after training
	WallSeconds  Span // of the whole job, start-up included
	EnergyJoules Span // of all devices over a run

	IoU, Dice                   Span // over the test set, after training
	IoUConstant, DiceConstant   Span // of the better of the all-0 and the all-1 predictor
	IoUUntrained, DiceUntrained Span // of the same network before the first step
	TrainLoss, ValLoss          Span // of the last epoch
	TestLoss                    Span // after training
	Accuracy, ValAccuracy       Span // of the last epoch that has it, 0 to 1

	BatchPerWorker, GlobalBatch       int // 0 where unknown
	SamplesPerEpoch, ThreadsPerWorker int // 0 where unknown
}

// cell is what a Point is made of: the runs that count and what the rule
// makes of each.
type cell struct {
	runs     []runs.Run
	measured []measured
}

// values are one measured value of each run.
func (c cell) values(of func(measured) float64) []float64 {
	v := make([]float64, len(c.measured))
	for i, m := range c.measured {
		v[i] = of(m)
	}
	return v
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
		p, c := s.point(g.name, n, counts[n])
		s.Points, s.cells = append(s.Points, p), append(s.cells, c)
	}
	s.speedups(g.name, s.Points[first:], s.cells[first:])
	mode := modeOf(g)
	s.modes = append(s.modes, mode)
	for i := range s.Points[first:] {
		s.Points[first+i].Scaling = mode.Scaling
	}
	s.compare(g)
}

// point aggregates the runs of a series at n workers.
func (s *Study) point(series string, n int, all []runs.Run) (Point, cell) {
	p := Point{Series: series, Workers: n, Size: n}
	var c cell
	for _, r := range all {
		if failed(r) {
			p.Failed++
			s.problem(r, "the run %s and does not count: %s", r.Info.Status, orUnknown(r.Info.Error))
			continue
		}
		m := s.measure(r)
		s.examine(r, m)
		c.runs, c.measured = append(c.runs, r), append(c.measured, m)
		p.Epochs += m.epochs
		if m.last.diverged != "" {
			p.Diverged++
		}
		if why := s.disturbance(r); why != "" {
			p.Disturbed++
			s.disturbed = append(s.disturbed, filepath.Base(r.Dir)+" ("+why+")")
		}
	}
	p.Runs = len(c.runs)
	p.EpochSeconds = s.span(c.values(func(m measured) float64 { return m.seconds }), true)
	p.Throughput = s.span(c.values(func(m measured) float64 { return m.rate }), true)
	p.WallSeconds = s.span(c.values(func(m measured) float64 { return m.wall }), true)
	s.quality(&p, c)
	for _, r := range c.runs {
		p.Nodes = max(p.Nodes, nodesOf(r))
		p.SamplesPerEpoch = max(p.SamplesPerEpoch, samplesOf(r))
	}
	if s.Rule.Per == PerNode {
		p.Size = p.Nodes
	}
	p.PerWorker = nothing()
	if p.Size > 0 {
		p.PerWorker = p.Throughput.scaled(1 / float64(p.Size))
	}
	if len(c.runs) > 0 {
		p.BatchPerWorker, p.GlobalBatch = batches(c.runs[0])
		p.ThreadsPerWorker = c.runs[0].Info.ThreadsPerWorker
	}
	return p, c
}

// quality fills in what a run has once.
func (s *Study) quality(p *Point, c cell) {
	over := func(logs bool, value func(runs.Run) float64) Span {
		v := make([]float64, len(c.runs))
		for i, r := range c.runs {
			v[i] = value(r)
		}
		return s.span(v, logs)
	}
	test := func(value func(runs.Test) float64) Span {
		return over(false, func(r runs.Run) float64 { return ofTest(r, value) })
	}
	p.TrainSeconds, p.TestSeconds = over(true, trainSeconds), over(true, testSeconds)
	p.EnergyJoules = over(true, energyOf)
	final := func(test func(runs.Test) float64, epoch func(lastValues) float64) Span {
		v := make([]float64, len(c.runs))
		for i, r := range c.runs {
			v[i] = c.measured[i].last.final(r, test, epoch)
		}
		return s.span(v, false)
	}
	last := func(value func(lastValues) float64) Span {
		return s.span(c.values(func(m measured) float64 { return value(m.last) }), false)
	}
	p.IoU, p.Dice = final(testIoU, lastIoU), final(testDice, lastDice)
	p.IoUConstant = test(func(t runs.Test) float64 { return t.IoUConstant })
	p.DiceConstant = test(func(t runs.Test) float64 { return t.DiceConstant })
	p.IoUUntrained = test(func(t runs.Test) float64 { return t.IoUUntrained })
	p.DiceUntrained = test(func(t runs.Test) float64 { return t.DiceUntrained })
	p.TestLoss = test(func(t runs.Test) float64 { return t.Loss })
	p.TrainLoss = last(func(l lastValues) float64 { return l.trainLoss })
	p.ValLoss = last(func(l lastValues) float64 { return l.valLoss })
	p.Accuracy = last(func(l lastValues) float64 { return l.accuracy })
	p.ValAccuracy = last(func(l lastValues) float64 { return l.valAccuracy })
}

// examine names what keeps a run that counts from being whole.
func (s *Study) examine(r runs.Run, m measured) {
	switch r.Info.Status {
	case runs.StatusRunning:
		s.problem(r, "the run has not ended; what counts is its %s so far", english.Count(len(r.Epochs), "epoch"))
	case runs.StatusKilled:
		s.problem(r, "the run was killed; what counts is its %s so far", english.Count(len(r.Epochs), "epoch"))
	}
	switch {
	case m.epochs > 0:
	case timed(r):
		s.problem(r, "no epoch of %d counts by the rule (%s); train more epochs, or change the rule", len(r.Epochs), s.Rule.counting())
	case m.wall > 0 || m.rate > 0 || len(r.Curves)+len(r.Spans)+len(r.Trials) > 0: // it tells something else
	case len(r.Epochs) == 0:
		s.problem(r, "the run has no epochs")
	default:
		s.problem(r, "the log tells no time per epoch")
	}
	if where := m.last.diverged; where != "" {
		s.problem(r, "%s is not a finite number: the run diverged; its time counts, its loss does not", where)
	}
}

// failed says whether a run does not count.
func failed(r runs.Run) bool {
	return r.Info.Status == runs.StatusFailed || r.Info.Status == runs.StatusCanceled
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

// find is the point of a series at a number of workers.
func (s *Study) find(series string, workers int) (int, error) {
	i := slices.IndexFunc(s.Points, func(p Point) bool { return p.Series == series && p.Workers == workers })
	if i >= 0 {
		return i, nil
	}
	var there []string
	for _, p := range s.Points {
		if p.Series == series {
			there = append(there, fmt.Sprint(p.Workers))
		}
	}
	if len(there) == 0 {
		return 0, fmt.Errorf("no series is called %q; there are: %s", series, quoted(s.Series()))
	}
	return 0, fmt.Errorf("series %s has no run at %s; it has runs at %s", series, plural(workers, "worker"), commas(there))
}

// oneSeries is the series that a caller means by name, or by "" where there is
// one alone.
func (s *Study) oneSeries(name string) (string, error) {
	all := s.Series()
	switch {
	case slices.Contains(all, name):
		return name, nil
	case name == "" && len(all) == 1:
		return all[0], nil
	case name == "":
		return "", fmt.Errorf("there are several series; name one of: %s", quoted(all))
	}
	return "", fmt.Errorf("no series is called %q; there are: %s", name, quoted(all))
}

// finite says whether v is a number.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
