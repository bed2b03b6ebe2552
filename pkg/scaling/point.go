package scaling

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/observe"
	"lockstep/pkg/scaling/internal/verdict"
)

// Point aggregates the runs of one series at one worker count.
type Point struct {
	Series  string
	Workers int
	Nodes   int // machines; 0 if unknown
	// Size is the number of workers, or of nodes if Rule.Per is "node". It is the horizontal axis
	// of figures. Baseline is the Size of the point against which speed-up is computed, or 0 if
	// there is none.
	Size, Baseline int
	Scaling        string // "weak", "strong" or "unknown"; see Mode

	Runs     int // runs that count
	Failed   int // runs that failed or were canceled; they do not count
	Diverged int // runs that count although their loss became NaN or infinite; the loss is ignored
	Epochs   int // counted epochs of all these runs together
	// Disturbed is the number of counted runs that other load on their machine disturbed; see
	// runs.LoadSummary.
	Disturbed int
	// SharedCores is the number of cores that the workers on a machine shared, if they had more
	// threads than cores. It is 0 if they had enough cores, if the numbers are unknown, and with
	// accelerators.
	SharedCores int

	EpochSeconds Estimate // training time per epoch, without validation
	Throughput   Estimate // in ThroughputUnit, all workers together
	PerWorker    Estimate // throughput per worker (per node if Rule.Per is "node")
	Speedup      Estimate // over the baseline; Min and Max are relative to the baseline's value
	Efficiency   Estimate // 0 to 1: speed-up / (Size / Baseline)

	TrainSeconds Estimate // training time of all epochs of a run
	TestSeconds  Estimate // time of the test after training
	WallSeconds  Estimate // time of the whole job, including start-up
	EnergyJoules Estimate // energy of all devices during a run

	IoU, Dice                   Estimate // on the test set, after training; of several classes, the means over them
	IoUConstant, DiceConstant   Estimate // score of the best constant prediction
	IoUUntrained, DiceUntrained Estimate // score of the same network before the first training step
	TrainLoss, ValLoss          Estimate // in the last epoch
	TestLoss                    Estimate // after training
	Accuracy, ValAccuracy       Estimate // 0 to 1, in the last epoch that has a value

	// ThroughputUnit is the unit of Throughput and PerWorker: the unit stated in the logs, such as
	// "images/s" or "tokens/s", or else "samples/s". It is "" if the throughput is unknown.
	ThroughputUnit string

	BatchPerWorker, GlobalBatch       int // 0 if unknown
	SamplesPerEpoch, ThreadsPerWorker int // 0 if unknown
}

// addSeries appends the points of a series and its scaling mode. It adds notes about differences
// between the runs that make a comparison unfair.
func (s *Study) addSeries(g observe.Series) {
	counts := map[int][]runs.Run{}
	var workers []int
	for _, r := range g.Runs {
		if counts[r.Info.Workers] == nil {
			workers = append(workers, r.Info.Workers)
		}
		counts[r.Info.Workers] = append(counts[r.Info.Workers], r)
	}
	slices.Sort(workers)
	first := len(s.Points)
	for _, n := range workers {
		p, c := s.newPoint(g.Name, n, counts[n])
		s.Points, s.cells = append(s.Points, p), append(s.cells, c)
	}
	s.setSpeedups(g.Name, s.Points[first:], s.cells[first:])
	s.noteMissingSpeeds(g, s.Points[first:])
	s.notePadding(g.Name, s.Points[first:], s.cells[first:])
	mode := Mode(verdict.DetermineScalingMode(g))
	s.modes = append(s.modes, mode)
	for i := range s.Points[first:] {
		s.Points[first+i].Scaling = mode.Scaling
	}
	s.Notes = append(s.Notes, verdict.UnfairnessNotes(g, verdict.ScalingMode(mode))...)
}

// noteMissingSpeeds adds notes that explain why points of a series have neither a time per epoch, a
// throughput nor a speed-up, and what would help. It also notes if the rule drops first epochs that
// the logs do not contain.
func (s *Study) noteMissingSpeeds(g observe.Series, points []Point) {
	late := 0
	var curves []string
	epochs, counted := 0, 0
	for _, r := range g.Runs {
		if observe.HasFailed(r) || len(r.AllReduces)+len(r.Spans) > 0 {
			continue
		}
		counted++
		epochs += len(r.Epochs)
		if len(r.Epochs) > 1 && r.Epochs[0].Epoch > s.Rule.DropFirst {
			late = r.Epochs[0].Epoch
		}
		for _, c := range r.Curves {
			if !slices.Contains(curves, c.Name) {
				curves = append(curves, c.Name)
			}
		}
	}
	if _, err := strconv.Atoi(s.Rule.Epochs); late > 0 && s.Rule.DropFirst > 0 && err != nil {
		s.addSeriesNote(g.Name, fmt.Sprintf("the logs start after the first epoch, such as at epoch %d, so no epoch is left out as the first", late))
	}
	// Another note says why the times of whole jobs are not compared.
	isKnown := func(p Point) bool {
		return p.EpochSeconds.Value > 0 || p.Throughput.Value > 0 || p.Speedup.Value > 0 || p.WallSeconds.Value > 0
	}
	if counted == 0 || slices.ContainsFunc(points, isKnown) || slices.ContainsFunc(g.Runs, observe.HasEpochTimes) {
		return // or the rule counts no epoch, as addRunProblems says
	}
	const most = 4
	what := english.FormatCount(epochs, "epoch") + " without times"
	if n := len(curves); n == 0 && epochs == 0 {
		what = "neither epochs nor curves"
	} else if n > 0 {
		list := "the curves " + english.JoinAnd(curves[:min(n, most)])
		if n > most {
			list += fmt.Sprintf(" and %d more", n-most)
		}
		if what += " and " + list; epochs == 0 {
			what = "no epochs, but " + list
		}
	}
	advice := "name the time with --line '… {seconds}s …' or --columns 'seconds=NAME', the throughput with {samples_per_second}, or see what lockstep read FILE --suggest proposes"
	if g.Runs[0].Kind == "JSON lines" {
		advice = "give the time the name epoch_time or step_time, or the throughput the name samples_per_second"
	}
	s.addSeriesNote(g.Name, fmt.Sprintf("no time per epoch, throughput or speed-up can be given: the logs have %s; %s", what, advice))
}

// notePadding adds a note if more than 1 % of the samples of a point are padding.
func (s *Study) notePadding(series string, points []Point, cells []observe.RunGroup) {
	var shares []string
	for i, c := range cells {
		most := 0.0
		for _, r := range c.Runs {
			most = max(most, observe.PaddingShare(r))
		}
		if most > 0.01 {
			shares = append(shares, fmt.Sprintf("%s at %s", english.FormatPercent(math.Round(1000*most)/1000), english.FormatCount(points[i].Workers, "worker")))
		}
	}
	if len(shares) > 0 {
		s.addNote("series %s: samples that repeat others to fill a batch or a shard are no work and do not count in the throughput: %s", series, english.JoinAnd(shares))
	}
}

// addSeriesNote adds a note about a series. If several series have the same note, it appears once
// and names all of them.
func (s *Study) addSeriesNote(series, text string) {
	for i, note := range s.Notes {
		if names, ok := strings.CutSuffix(note, ": "+text); ok {
			if !strings.HasSuffix(names, " "+series) {
				s.Notes[i] = names + ", " + series + ": " + text
			}
			return
		}
	}
	s.addNote("series %s: %s", series, text)
}

func (s *Study) newPoint(series string, n int, all []runs.Run) (Point, observe.RunGroup) {
	p := Point{Series: series, Workers: n, Size: n}
	var c observe.RunGroup
	for _, r := range all {
		if observe.HasFailed(r) {
			p.Failed++
			s.addProblem(r, "the run %s and does not count: %s", r.Info.Status, cmp.Or(r.Info.Error, "no reason recorded"))
			continue
		}
		m := s.Rule.toMeasurementRule().Measure(r)
		if m.Note != "" {
			s.addSeriesNote(series, m.Note)
		}
		s.addRunProblems(r, m)
		c.Runs, c.Measured = append(c.Runs, r), append(c.Measured, m)
		p.Epochs += m.Epochs
		if m.Last.Diverged != "" {
			p.Diverged++
		}
		if why := s.describeDisturbance(r); why != "" {
			p.Disturbed++
			s.disturbed = append(s.disturbed, disturbedRun{series, filepath.Base(r.Dir), why})
		}
		if cores := observe.CountSharedCores(r); cores > 0 && (p.SharedCores == 0 || cores < p.SharedCores) {
			p.SharedCores = cores
		}
	}
	p.Runs = len(c.Runs)
	p.EpochSeconds = s.estimate(c.Values(func(m observe.Measurements) float64 { return m.Seconds }), true)
	p.Throughput = s.estimate(c.Values(func(m observe.Measurements) float64 { return m.Rate }), true)
	p.ThroughputUnit = c.RateUnit()
	p.WallSeconds = s.estimate(c.Values(func(m observe.Measurements) float64 { return m.Wall }), true)
	s.setRunMetrics(&p, c)
	for _, r := range c.Runs {
		p.Nodes = max(p.Nodes, observe.NodeCount(r))
		p.SamplesPerEpoch = max(p.SamplesPerEpoch, observe.SamplesPerEpoch(r))
	}
	if s.Rule.Per == PerNode {
		p.Size = p.Nodes
	}
	p.PerWorker = unknownEstimate()
	if p.Size > 0 {
		p.PerWorker = p.Throughput.scale(1 / float64(p.Size))
	}
	if len(c.Runs) > 0 {
		p.BatchPerWorker, p.GlobalBatch = observe.BatchSizes(c.Runs[0])
		p.ThreadsPerWorker = c.Runs[0].Info.ThreadsPerWorker
	}
	return p, c
}

// setRunMetrics sets the fields of p that have one value per run: times of the complete run,
// energy, quality metrics and losses.
func (s *Study) setRunMetrics(p *Point, c observe.RunGroup) {
	over := func(logs bool, value func(i int) float64) Estimate {
		v := make([]float64, len(c.Runs))
		for i := range c.Runs {
			v[i] = value(i)
		}
		return s.estimate(v, logs)
	}
	p.TrainSeconds = over(true, func(i int) float64 { return observe.TrainSeconds(c.Runs[i]) })
	p.TestSeconds = over(true, func(i int) float64 { return observe.TestSeconds(c.Runs[i]) })
	p.EnergyJoules = over(true, func(i int) float64 { return observe.EnergyJoules(c.Runs[i]) })
	for _, m := range observe.Metrics() {
		*findPointEstimateField(m.Name).of(p) = over(false, func(i int) float64 { return m.RunValueWith(c.Runs[i], c.Measured[i].Last) })
	}
}

// addRunProblems adds a problem if a counted run has not ended, has no epoch that counts, or has a
// loss that diverged.
func (s *Study) addRunProblems(r runs.Run, m observe.Measurements) {
	switch r.Info.Status {
	case runs.StatusRunning:
		s.addProblem(r, "the run has not ended; counted so far: %s", english.FormatCount(len(r.Epochs), "epoch"))
	case runs.StatusKilled:
		s.addProblem(r, "the run was killed; counted until then: %s", english.FormatCount(len(r.Epochs), "epoch"))
	}
	switch {
	case m.Epochs > 0:
	case observe.HasEpochTimes(r):
		s.addMissingData(r, s.Rule.explainUncountedRun(len(r.Epochs)))
	case m.Wall > 0 || m.Rate > 0 || len(r.Curves)+len(r.Spans)+len(r.Trials)+len(r.AllReduces) > 0: // the run has other measurements
	case len(r.Epochs) == 0:
		s.addMissingData(r, "the run has no epochs")
	default:
		s.addMissingData(r, "the log has no time per epoch")
	}
	if where := m.Last.Diverged; where != "" {
		s.addProblem(r, "%s is not a finite number: the run diverged; its time counts, its loss does not", where)
	}
}

func (s *Study) addProblem(r runs.Run, format string, a ...any) {
	s.Problems = append(s.Problems, runs.Problem{File: r.Dir, Reason: fmt.Sprintf(format, a...)})
}

func (s *Study) addNote(format string, a ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, a...))
}

// findPointIndex returns the index in s.Points of a series at a worker count. If there is no such point,
// the error lists the available series or worker counts.
func (s *Study) findPointIndex(series string, workers int) (int, error) {
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
		return 0, fmt.Errorf("unknown series %q: use one of %s", series, english.QuoteNames(s.Series()))
	}
	return 0, fmt.Errorf("series %s has no run at %s; it has runs at %s", series, english.FormatCount(workers, "worker"), english.JoinAnd(there))
}

// resolveSeries returns name if the study has a series of this name. If name is "", it returns the
// only series of the study.
func (s *Study) resolveSeries(name string) (string, error) {
	all := s.Series()
	switch {
	case slices.Contains(all, name):
		return name, nil
	case name == "" && len(all) == 1:
		return all[0], nil
	case name == "":
		return "", fmt.Errorf("the study has several series: name one of %s", english.QuoteNames(all))
	}
	return "", fmt.Errorf("unknown series %q: use one of %s", name, english.QuoteNames(all))
}

// describeDisturbance describes the load that disturbed a run during the epochs that the rule
// counts. It returns "" if there was none or it was not recorded. A run started by a sweep that did
// not get the cores it needs always counts as disturbed.
func (s *Study) describeDisturbance(r runs.Run) string {
	known := ""
	if r.Info.Binding != nil {
		known = r.Info.Binding.Disturbed
	}
	if len(r.Loads) == 0 {
		return known
	}
	counts := s.Rule.toMeasurementRule().CountedEpochFilter(r)
	counted := map[int]bool{}
	for i, e := range r.Epochs {
		counted[e.Epoch] = counts(i)
	}
	wholeRun := len(r.Info.Command) > 0 // the launcher of another program measures the load of the whole run
	load, ok := runs.SummarizeLoad(r.Loads, func(epoch int) bool { return wholeRun || counted[epoch] })
	if !ok || !load.Disturbed {
		return known
	}
	return load.String()
}
