package scaling

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// measure is what a speed-up is made of: a value of each run, of which more is
// faster (a rate) or slower (a time).
type measure struct {
	name   string // as the columns have it
	words  string // for people
	unit   string
	value  func(measured) float64
	higher bool // more is faster
}

// measuresOfSpeed are those that there are, the best first: throughput needs
// no assumption; the seconds per epoch assume the same samples in each; the
// time of the whole job assumes the same training, and holds its start-up too.
func measuresOfSpeed() []measure {
	return []measure{
		{"throughput", "throughput", "samples/s", func(m measured) float64 { return m.rate }, true},
		{"epoch_seconds", "seconds per epoch", "s", func(m measured) float64 { return m.seconds }, false},
		{"wall_seconds", "seconds of the whole job", "s", func(m measured) float64 { return m.wall }, false},
	}
}

// known says whether any run of the cell has the measure.
func (m measure) known(c cell) bool {
	return slices.ContainsFunc(c.measured, func(r measured) bool { return m.value(r) > 0 })
}

// speed is how many times a is as fast as b, with the interval.
func (m measure) speed(s *Study, a, b cell) Span {
	x, y := c0(a.values(m.value)), c0(b.values(m.value))
	if m.higher {
		return s.ratioSpan(x, y)
	}
	// t(b)/t(a): the centre of the times, the spread of a's.
	r := s.ratioSpan(x, y)
	return Span{Value: 1 / r.Value, Min: 1 / r.Max, Max: 1 / r.Min, Low: 1 / r.High, High: 1 / r.Low, N: r.N}
}

// c0 leaves out what is not positive: a ratio of it means nothing.
func c0(values []float64) []float64 {
	return slices.DeleteFunc(values, func(v float64) bool { return !(v > 0) || math.IsInf(v, 0) })
}

// measureOf chooses the measure that most cells have, of several the best.
func measureOf(cells []cell) (measure, bool) {
	var best measure
	most := 0
	for _, m := range measuresOfSpeed() {
		n := 0
		for _, c := range cells {
			if m.known(c) {
				n++
			}
		}
		if n > most {
			best, most = m, n
		}
	}
	return best, most > 0
}

// speedups fills in what compares the points of one series.
func (s *Study) speedups(series string, points []Point, cells []cell) {
	for i := range points {
		points[i].Speedup, points[i].Efficiency = nothing(), nothing()
	}
	m, ok := measureOf(cells)
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
		points[i].Speedup = m.speed(s, cells[i], cells[b])
		if i == b { // over itself, whatever is drawn
			one := points[i].Speedup
			one.Low, one.High = 1, 1
			points[i].Speedup = one
		}
		if points[i].Size > 0 {
			points[i].Efficiency = points[i].Speedup.scaled(float64(points[b].Size) / float64(points[i].Size))
		}
	}
}

// baseline is the index of the point that speed-up compares with, and says so
// where it is not plain.
func (s *Study) baseline(series string, points []Point, cells []cell, m measure) (int, bool) {
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
		want, _ = strconv.Atoi(s.Rule.Baseline) // Validate has read it
	}
	for i, p := range points {
		fits := p.Size > 0 && m.known(cells[i]) && (want == 0 || p.Size == want)
		// Points come by workers: the later of equal sizes is the whole node.
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
	case !m.known(cells[0]):
		s.note("series %s: nothing counts at %s; the baseline of the speed-up is %s", series, plural(points[0].Workers, "worker"), s.Rule.units(points[found].Size))
	case points[found].Size > 1:
		s.note("series %s: the baseline of the speed-up is %s, the fewest there are", series, s.Rule.units(points[found].Size))
	}
	return found, true
}

// without lists the workers of the points that have no size.
func (s *Study) without(points []Point) string {
	var there []string
	for _, p := range points {
		if p.Size == 0 {
			there = append(there, strconv.Itoa(p.Workers))
		}
	}
	return commas(there) + " workers"
}

// noteMeasures says which series' speed-up is not of the throughput.
func (s *Study) noteMeasures() {
	byTime := func(name string) string {
		var found []string
		for _, series := range s.Series() {
			if s.measures[series].name == name {
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

// commas lists words: "1, 2 and 4".
func commas(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// quoted lists names in quotes.
func quoted(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = strconv.Quote(n)
	}
	return strings.Join(out, ", ")
}
