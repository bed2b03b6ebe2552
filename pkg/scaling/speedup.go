package scaling

import (
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling/internal/observe"
)

// speedups sets Speedup, Efficiency and Baseline of the points of one series.
func (s *Study) speedups(series string, points []Point, cells []observe.Cell) {
	for i := range points {
		points[i].Speedup, points[i].Efficiency = unknown(), unknown()
	}
	m, ok := observe.SpeedOf(cells)
	if !ok {
		return
	}
	s.measures[series] = m
	b, ok := s.baseline(series, points, cells, m)
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
			points[i].Efficiency = points[i].Speedup.scaled(float64(points[b].Size) / float64(points[i].Size))
		}
	}
}

// baseline returns the index of the point against which speed-up is computed. It adds a
// note if the baseline is not the fewest workers that the series has, or is more than
// one. It returns false if no run counts at the baseline.
func (s *Study) baseline(series string, points []Point, cells []observe.Cell, m observe.Speed) (int, bool) {
	if s.Rule.Per == PerNode && slices.ContainsFunc(points, func(p Point) bool { return p.Size == 0 }) {
		s.note("series %s: the logs do not tell on how many nodes the runs at %s ran; they have no speed-up per node", series, s.without(points))
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
		// The points are in ascending order of workers. Of equal sizes (nodes) the last
		// one uses all workers of its nodes.
		fits := p.Size > 0 && m.Known(cells[i]) && (want == 0 || p.Size == want)
		if fits && (found < 0 || p.Size <= points[found].Size) {
			found = i
		}
	}
	switch {
	case found < 0 && want > 0:
		s.note("series %s: no run counts at the baseline of %s, so there is no speed-up; choose another with Rule.Baseline (--baseline)", series, s.Rule.units(want))
		return 0, false
	case found < 0:
		return 0, false
	case want > 0:
	case !m.Known(cells[0]):
		s.note("series %s: nothing counts at %s; the baseline of the speed-up is %s", series, english.Count(points[0].Workers, "worker"), s.Rule.units(points[found].Size))
	case points[found].Size > 1:
		s.note("series %s: the baseline of the speed-up is %s, the fewest there are", series, s.Rule.units(points[found].Size))
	}
	return found, true
}

// without lists the worker counts of the points that have no size.
func (s *Study) without(points []Point) string {
	var there []string
	for _, p := range points {
		if p.Size == 0 {
			there = append(there, strconv.Itoa(p.Workers))
		}
	}
	return english.List(there) + " workers"
}

// noteMeasures adds notes on the series whose speed-up is not computed from throughput.
func (s *Study) noteMeasures() {
	byTime := func(name string) string {
		var found []string
		for _, series := range s.Series() {
			if s.measures[series].Name == name {
				found = append(found, series)
			}
		}
		return strings.Join(found, ", ")
	}
	if found := byTime("epoch_seconds"); found != "" {
		s.note("series %s: the logs tell no sample counts; speed-up is t(baseline)/t(N) of the seconds per epoch, which holds when every epoch has the same samples", found)
	}
	if found := byTime("wall_seconds"); found != "" {
		s.note("series %s: the logs tell the time of the whole job alone; speed-up is t(baseline)/t(N) of it, start-up and validation included, which holds when every job trains the same epochs", found)
	}
}
