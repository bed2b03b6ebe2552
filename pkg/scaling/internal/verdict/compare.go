// Package verdict decides whether one series is faster than another, whether a change is slower
// than allowed, and whether the compared runs did the same work.
package verdict

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling/internal/observe"
	"lockstep/pkg/scaling/internal/stats"
)

// Values of Comparison.Verdict.
const (
	VerdictFaster  = "faster"
	VerdictSlower  = "slower"
	VerdictNone    = "no difference shown"
	VerdictUnknown = "cannot tell"
)

// Comparison answers "is A faster than B at this worker count?"; see scaling.Comparison.
type Comparison struct {
	A, B            string
	Workers         int
	Measure         string
	RunsA, RunsB    int
	Ratio           stats.Estimate
	P, PermutationP float64
	Test            string
	Verdict         string
	Sentence        string

	same bool // both sides are the same runs
}

// Comparisons contains one comparison for each worker count that both series have.
type Comparisons struct {
	Rows     []Comparison
	Pooled   []PooledComparison // one for each pair of series with several worker counts
	Problems []string           // what could not be compared, with reasons
}

// Study contains the measurements of a study that a comparison needs.
type Study struct {
	DisplayName string // name of the study in sentences
	By          stats.Estimator
	Points      []Point // by series, then by workers
}

// Point contains the measurements of a series at one worker count.
type Point struct {
	Series   string
	Workers  int
	Diverged int // number of runs whose loss diverged
	Cell     observe.RunGroup
}

func (s Study) series() []string {
	return observe.Distinct(s.Points, func(p Point) string { return p.Series })
}

func (s Study) pointIndex(series string, workers int) int {
	return slices.IndexFunc(s.Points, func(p Point) bool { return p.Series == series && p.Workers == workers })
}

// SeriesPair is a pair of series to compare: A from one study and B from another. NameA and NameB
// are their names in sentences.
type SeriesPair struct{ A, B, NameA, NameB string }

// CompareStudies compares the series that have the same name in both studies or, if there are none,
// the only series of each. It uses the estimator of study a.
func CompareStudies(a, b Study) (*Comparisons, error) {
	pairs, err := matchSeries(a, b)
	if err != nil {
		return nil, err
	}
	for i, p := range pairs {
		if p.A == p.B { // otherwise the sentence would call a series faster than itself
			pairs[i].NameA, pairs[i].NameB = p.A+" in "+a.DisplayName, p.B+" in "+b.DisplayName
		}
	}
	c, err := CompareSeriesPairs(a, b, pairs)
	if err != nil {
		return nil, err
	}
	for _, side := range []struct {
		has, lacks Study
		of         func(SeriesPair) string
	}{{a, b, func(p SeriesPair) string { return p.A }}, {b, a, func(p SeriesPair) string { return p.B }}} {
		for _, name := range side.has.series() {
			if !slices.ContainsFunc(pairs, func(p SeriesPair) bool { return side.of(p) == name }) {
				c.Problems = append(c.Problems, fmt.Sprintf("%s has no series %s, which %s has", side.lacks.DisplayName, name, side.has.DisplayName))
			}
		}
	}
	return c, nil
}

// matchSeries pairs the series that have the same name in both studies or, if there are none, the
// only series of each.
func matchSeries(a, b Study) ([]SeriesPair, error) {
	var pairs []SeriesPair
	namesA, namesB := a.series(), b.series()
	for _, name := range namesA {
		if slices.Contains(namesB, name) {
			pairs = append(pairs, SeriesPair{name, name, name, name})
		}
	}
	if len(pairs) == 0 && len(namesA) == 1 && len(namesB) == 1 {
		x, y := namesA[0], namesB[0]
		pairs = append(pairs, SeriesPair{x, y, x, y})
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("compare: no series has the same name in both studies: the first study has %s, the second has %s", english.QuoteNames(namesA), english.QuoteNames(namesB))
	}
	return pairs, nil
}

// CompareSeriesPairs compares pairs of series at every worker count that both have.
func CompareSeriesPairs(a, b Study, pairs []SeriesPair) (*Comparisons, error) {
	out := &Comparisons{}
	for _, pr := range pairs {
		first := len(out.Rows)
		workersByDifference := map[string][]string{} // the worker counts at which each difference occurs
		var differ []string
		for _, p := range a.Points {
			if p.Series != pr.A {
				continue
			}
			j := b.pointIndex(pr.B, p.Workers)
			if j < 0 {
				out.Problems = append(out.Problems, fmt.Sprintf("%s has no run at %s", pr.NameB, english.FormatCount(p.Workers, "worker")))
				continue
			}
			c, err := CompareAtWorkerCount(a.By, pr.NameA, pr.NameB, p.Workers, p.Cell, b.Points[j].Cell)
			if err != nil {
				out.Problems = append(out.Problems, err.Error())
				continue
			}
			out.Rows = append(out.Rows, *c)
			for _, d := range describeDifferingTraits(p.Cell, b.Points[j].Cell) {
				if workersByDifference[d] == nil {
					differ = append(differ, d)
				}
				workersByDifference[d] = append(workersByDifference[d], strconv.Itoa(p.Workers))
			}
		}
		for _, d := range differ {
			out.Problems = append(out.Problems, fmt.Sprintf("%s and %s differ in %s, at %s: compare their times with care", pr.NameA, pr.NameB, d, FormatWorkers(workersByDifference[d])))
		}
		for _, q := range b.Points {
			if q.Series == pr.B && a.pointIndex(pr.A, q.Workers) < 0 {
				out.Problems = append(out.Problems, fmt.Sprintf("%s has no run at %s", pr.NameA, english.FormatCount(q.Workers, "worker")))
			}
		}
		if p, ok := poolComparisons(out.Rows[first:], a.By.Level); ok {
			out.Pooled = append(out.Pooled, p)
		}
	}
	if len(out.Rows) == 0 {
		return nil, fmt.Errorf("compare: no worker count can be compared: %s", english.JoinAnd(out.Problems))
	}
	return out, nil
}

// FormatWorkers formats a list of worker counts, as in "1 and 2 workers".
func FormatWorkers(sizes []string) string {
	if len(sizes) == 1 && sizes[0] == "1" {
		return "1 worker"
	}
	return english.JoinAnd(sizes) + " workers"
}

// CompareAtWorkerCount compares series a and b at one worker count by the best measure of speed that both have.
// ca and cb contain their runs. It returns an error if they have no measure in common.
func CompareAtWorkerCount(by stats.Estimator, a, b string, workers int, ca, cb observe.RunGroup) (*Comparison, error) {
	c := &Comparison{A: a, B: b, Workers: workers, P: math.NaN(), PermutationP: math.NaN()}
	var m observe.SpeedMeasure
	why := "they have no common measure of speed"
	for _, try := range observe.SpeedMeasures() {
		if !try.HasValue(ca) || !try.HasValue(cb) || try.Unit(ca) != try.Unit(cb) {
			continue
		}
		if epochs := observe.DistinctJobEpochCounts([]observe.RunGroup{ca, cb}, true); try.Name == "wall_seconds" && len(epochs) > 1 {
			why = fmt.Sprintf("the logs contain only the time of the whole job, and the jobs trained %s epochs", english.JoinAnd(epochs))
			continue
		}
		m = try
		break
	}
	if m.Value == nil {
		return nil, fmt.Errorf("%s and %s cannot be compared at %s: %s", a, b, english.FormatCount(workers, "worker"), why)
	}
	c.Measure = m.Name
	x, y := m.PositiveValues(ca), m.PositiveValues(cb)
	c.RunsA, c.RunsB = len(x), len(y)
	if containSameRuns(ca, cb, x, y) {
		c.same = true
		c.Ratio = stats.Estimate{Value: 1, Min: 1, Max: 1, Low: 1, High: 1, N: len(x)}
		c.Verdict, c.Test = VerdictNone, "none: they are the same runs"
		c.Sentence = fmt.Sprintf("%s and %s contain the same %s at %s.", a, b, english.FormatCount(len(x), "run"), english.FormatCount(workers, "worker"))
		return c, nil
	}
	c.Ratio = m.Ratio(by, ca, cb)
	if len(x) > 1 && len(y) > 1 {
		c.P, c.PermutationP = stats.WelchTest(x, y), stats.PermutationTest(x, y)
	}
	c.setVerdict(m, by.Level)
	return c, nil
}

// containSameRuns reports whether a and b contain the same runs with the same measured values, x
// and y, as when a folder is compared with itself.
func containSameRuns(a, b observe.RunGroup, x, y []float64) bool {
	places := func(c observe.RunGroup) []string {
		out := make([]string, len(c.Runs))
		for i, r := range c.Runs {
			path := r.Dir
			if full, err := filepath.Abs(path); err == nil {
				path = full
			}
			if real, err := filepath.EvalSymlinks(path); err == nil {
				path = real
			}
			out[i] = fmt.Sprintf("%s, series %s, seed %d", path, r.Info.Series, r.Info.Seed)
		}
		slices.Sort(out)
		return out
	}
	return slices.Equal(slices.Sorted(slices.Values(x)), slices.Sorted(slices.Values(y))) && slices.Equal(places(a), places(b))
}

func (c *Comparison) setVerdict(m observe.SpeedMeasure, level float64) {
	at := "at " + english.FormatCount(c.Workers, "worker")
	effect := fmt.Sprintf("%s runs %s times as fast as %s %s (%s)", c.A, english.FormatNumber(c.Ratio.Value), c.B, at, m.Words)
	if math.IsNaN(c.P) {
		c.Verdict, c.Test = VerdictUnknown, "none: a test needs two runs of each"
		c.Sentence = fmt.Sprintf("%s, but with %s of %s and %s of %s the difference may be due to chance: run at least 3 seeds of each.",
			effect, english.FormatCount(c.RunsA, "run"), c.A, english.FormatCount(c.RunsB, "run"), c.B)
		return
	}
	c.Test = fmt.Sprintf("Welch's t-test of the logarithms, p %s", english.FormatPValueWithOperator(c.P))
	if !math.IsNaN(c.PermutationP) {
		c.Test += fmt.Sprintf("; exact permutation test, p %s (at least %s with so few runs)", english.FormatPValueWithOperator(c.PermutationP), english.FormatPValue(stats.MinPermutationP(c.RunsA, c.RunsB)))
	}
	said := fmt.Sprintf("%s, %s interval %s, n = %d and %d; %s", effect, english.FormatPercent(level), c.Ratio.FormatInterval(), c.RunsA, c.RunsB, c.Test)
	excludes := c.Ratio.Low > 1 || c.Ratio.High < 1
	switch {
	case excludes && !(c.P < 1-level):
		c.Verdict = VerdictNone
		c.Sentence = said + ". The runs show no difference: the interval excludes 1, but by the test the difference may be due to chance."
	case !excludes:
		c.Verdict = VerdictNone
		c.Sentence = said + ". The runs show no difference: the interval contains 1."
	case c.Ratio.Value > 1:
		c.Verdict = VerdictFaster
		c.Sentence = said + fmt.Sprintf(". Yes: %s is faster.", c.A)
	default:
		c.Verdict = VerdictSlower
		c.Sentence = said + fmt.Sprintf(". No: %s is slower.", c.A)
	}
}
