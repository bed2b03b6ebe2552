package scaling

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling/internal/observe"
)

func (s *Study) setSpeedups(series string, points []Point, cells []observe.RunGroup) {
	for i := range points {
		points[i].Speedup, points[i].Efficiency = unknownEstimate(), unknownEstimate()
	}
	m, ok := observe.ChooseSpeedMeasure(cells)
	if epochs := observe.DistinctJobEpochCounts(cells, false); len(epochs) > 1 && (!ok || m.Name != "wall_seconds") {
		s.addNote("series %s: of some runs, the logs contain only the time of the whole job, and these trained %s epochs, so their times are not compared", series, english.JoinAnd(epochs))
	}
	if !ok {
		return
	}
	s.measures[series] = m
	b, ok := s.findBaseline(series, points, cells, m)
	if !ok {
		return
	}
	for i := range points {
		points[i].Baseline = points[b].Size
		points[i].Speedup = Estimate(m.Ratio(s.estimator(), cells[i], cells[b]))
		if i == b { // the baseline's ratio to itself is exactly 1
			one := points[i].Speedup
			one.Low, one.High = 1, 1
			points[i].Speedup = one
		}
		if points[i].Size > 0 {
			points[i].Efficiency = points[i].Speedup.scale(float64(points[b].Size) / float64(points[i].Size))
		}
	}
}

// findBaseline returns the index of the point against which speed-up is computed, and whether any
// run counts at this point. It adds a note if the baseline selected by Rule.Baseline was not
// measured, is not the smallest worker count of the series, or has more than one worker.
func (s *Study) findBaseline(series string, points []Point, cells []observe.RunGroup, m observe.SpeedMeasure) (int, bool) {
	if s.Rule.Per == PerNode && slices.ContainsFunc(points, func(p Point) bool { return p.Size == 0 }) {
		s.addNote("series %s: the logs do not contain the number of nodes of the runs at %s, so these have no speed-up per node", series, s.workersWithoutSize(points))
	}
	found := -1
	want := 0 // any: the smallest
	switch s.Rule.Baseline {
	case "", BaselineSmallest:
	case BaselineOne:
		want = 1
	default:
		want, _ = strconv.Atoi(s.Rule.Baseline) // Validate has checked the number
	}
	for i, p := range points {
		// The points are in ascending order of workers. Of equal nodes the last uses all workers.
		fits := p.Size > 0 && m.HasValue(cells[i]) && (want == 0 || p.Size == want)
		if fits && (found < 0 || p.Size <= points[found].Size) {
			found = i
		}
	}
	switch {
	case found < 0 && want > 0:
		s.addNote("series %s: no run counts at the baseline of %s, so there is no speed-up; choose another with --baseline", series, s.Rule.formatSize(want))
		return 0, false
	case found < 0:
		return 0, false
	case want > 0:
	case !m.HasValue(cells[0]):
		s.addNote("series %s: no run counts at %s, so the baseline of the speed-up is %s", series, english.FormatCount(points[0].Workers, "worker"), s.Rule.formatSize(points[found].Size))
	case points[found].Size > 1:
		s.addNote("series %s: the baseline of the speed-up is %s, the smallest measured size", series, s.Rule.formatSize(points[found].Size))
	}
	return found, true
}

// workersWithoutSize lists the worker counts of points with unknown size: "2 and 4 workers".
func (s *Study) workersWithoutSize(points []Point) string {
	var there []string
	for _, p := range points {
		if p.Size == 0 {
			there = append(there, strconv.Itoa(p.Workers))
		}
	}
	return english.JoinAnd(there) + " workers"
}

// ThroughputUnit returns the units of all points' throughput, joined by "or". Without any, it
// returns "samples/s".
func (s *Study) ThroughputUnit() string {
	return cmp.Or(english.JoinOr(s.throughputUnits()), observe.DefaultRateUnit)
}

// throughputUnits returns the distinct units of all points' throughput, sorted.
func (s *Study) throughputUnits() []string {
	return slices.Sorted(slices.Values(observe.DistinctTexts(s.Points, func(p Point) string { return p.ThroughputUnit })))
}

// addThroughputSourceNotes adds one note for each way in which a throughput was obtained from logs without
// sample counts.
func (s *Study) addThroughputSourceNotes() {
	var sources []string
	series := map[string][]string{}
	for i, p := range s.Points {
		source := s.cells[i].RateSource()
		if source == "" {
			continue
		}
		if series[source] == nil {
			sources = append(sources, source)
		}
		if !slices.Contains(series[source], p.Series) {
			series[source] = append(series[source], p.Series)
		}
	}
	for _, source := range sources {
		s.addNote("series %s: the throughput is %s", strings.Join(series[source], ", "), source)
	}
}

// addWideIntervalNotes adds a note for each series with a time or a speed-up whose interval is wider than its
// value.
func (s *Study) addWideIntervalNotes() {
	for _, series := range s.Series() {
		var at []string
		for _, p := range s.Points {
			isWide := func(e Estimate) bool { return e.High-e.Low > math.Abs(e.Value) }
			if p.Series == series && (isWide(p.EpochSeconds) || isWide(p.Speedup) && p.Size != p.Baseline) {
				at = append(at, english.FormatCount(p.Workers, "worker"))
			}
		}
		if at != nil {
			s.addNote("series %s: the interval at %s is wider than its value; repeat the runs, and check with lockstep read --explain that they are repeats", series, english.JoinAnd(at))
		}
	}
}

// addMissingEpochNotes adds a note about runs that lack epochs between their first and last one.
func (s *Study) addMissingEpochNotes() {
	missing, example := 0, ""
	for _, r := range s.Runs {
		interval := math.MaxInt
		for i := 1; i < len(r.Epochs); i++ {
			interval = min(interval, r.Epochs[i].Epoch-r.Epochs[i-1].Epoch)
		}
		i := 1
		for i < len(r.Epochs) && r.Epochs[i].Epoch-r.Epochs[i-1].Epoch <= interval {
			i++
		}
		if i < len(r.Epochs) && interval > 0 {
			missing++
			example = cmp.Or(example, fmt.Sprintf("%s between %d and %d", clean.EscapeText(r.Dir), r.Epochs[i-1].Epoch, r.Epochs[i].Epoch))
		}
	}
	if missing > 0 {
		s.addNote("runs that lack epochs: %d, such as %s; their other epochs count", missing, example)
	}
}

// addSpeedMeasureNotes adds notes that name the series whose throughput is not computed from epochs, and
// the series whose speed-up is not computed from throughput.
func (s *Study) addSpeedMeasureNotes() {
	s.addThroughputSourceNotes()
	byTime := func(name string) string {
		return strings.Join(slices.DeleteFunc(s.Series(), func(series string) bool { return s.measures[series].Name != name }), ", ")
	}
	if found := byTime("epoch_seconds"); found != "" {
		s.addNote("series %s: the logs contain no sample counts, so the speed-up is t(baseline)/t(N) with the seconds per epoch; this assumes that every epoch has the same number of samples, and --samples-per-epoch (Rule.SamplesPerEpoch) gives the throughput", found)
	}
	if found := byTime("wall_seconds"); found != "" {
		text := "the logs contain only the time of the whole job, so the speed-up is t(baseline)/t(N) with this time, including start-up and validation"
		if s.hasUnknownJobEpochs() {
			text += "; this assumes that every job trains the same number of epochs"
		}
		s.addNote("series %s: %s", found, text)
	}
}

// hasUnknownJobEpochs reports whether the number of epochs is unknown for any run whose logs have only
// the time of the whole job.
func (s *Study) hasUnknownJobEpochs() bool {
	return slices.ContainsFunc(s.cells, func(c observe.RunGroup) bool {
		return slices.ContainsFunc(c.Measured, func(m observe.Measurements) bool { return m.Job > 0 && m.JobEpochs == 0 })
	})
}
