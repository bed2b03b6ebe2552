package scaling

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/go-gota/gota/dataframe"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/combin"
	"gonum.org/v1/gonum/stat/distuv"
)

// Values of Comparison.Verdict.
const (
	VerdictFaster  = "faster"
	VerdictSlower  = "slower"
	VerdictNone    = "no difference shown"
	VerdictUnknown = "cannot tell"
)

// Comparison is the answer to "is A faster than B at so many workers?".
type Comparison struct {
	A, B         string // series
	Workers      int
	Measure      string // what was compared: throughput, epoch_seconds or wall_seconds
	RunsA, RunsB int
	// Ratio is how many times A is as fast as B (throughput over throughput, or
	// the time of B over that of A), with its interval.
	Ratio Span
	// P is of Welch's t-test of the logarithms: how likely runs at least so far
	// apart are if A and B are equally fast. PermutationP is of the exact
	// permutation test, which assumes no distribution but cannot be small where
	// there are few runs (0.1 at best with three against three). NaN where a
	// side has one run; the latter also where there are too many arrangements.
	P, PermutationP float64
	Test            string // what was tested and how, in words
	Verdict         string // "faster", "slower", "no difference shown" or "cannot tell"
	Sentence        string

	same bool // both sides are the same runs
}

// Comparisons are those at every number of workers that both have. A cell
// shows them as a table.
type Comparisons struct {
	Rows     []Comparison
	Pooled   []Pooled // over the worker counts, one for each pair of series that has several
	Problems []string // what could not be compared
	rule     Rule
}

// Compare says whether series a is faster than series b at a number of
// workers: the ratio of their speeds, its interval by the study's rule, and
// Welch's test of the logarithms (Welch 1947). The verdict needs both: an
// interval without 1, and a p below 1 − confidence.
func (s *Study) Compare(a, b string, workers int) (*Comparison, error) {
	i, err := s.find(a, workers)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	j, err := s.find(b, workers)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	c, err := s.compareCells(a, b, workers, s.cells[i], s.cells[j])
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	return c, nil
}

// CompareSeries compares two series at every number of workers that both have.
func (s *Study) CompareSeries(a, b string) (*Comparisons, error) {
	return comparePoints(s, s, []pair{{a, b, a, b}})
}

// CompareStudies compares the series that two studies both have, and where
// each has one alone these two, whatever they are called. The rule is a's.
func CompareStudies(a, b *Study) (*Comparisons, error) {
	pairs, err := pairsOf(a, b)
	if err != nil {
		return nil, err
	}
	for i, p := range pairs {
		if p.a == p.b { // else one would be faster than itself
			pairs[i].nameA, pairs[i].nameB = p.a+" in "+a.place(), p.b+" in "+b.place()
		}
	}
	c, err := comparePoints(a, b, pairs)
	if err != nil {
		return nil, err
	}
	for _, side := range []struct {
		has, lacks *Study
		of         func(pair) string
	}{{a, b, func(p pair) string { return p.a }}, {b, a, func(p pair) string { return p.b }}} {
		for _, name := range side.has.Series() {
			if !slices.ContainsFunc(pairs, func(p pair) bool { return side.of(p) == name }) {
				c.Problems = append(c.Problems, fmt.Sprintf("%s has no series %s, which %s has", side.lacks.place(), name, side.has.place()))
			}
		}
	}
	return c, nil
}

// place is how a sentence tells a study from another: the folder it was read
// from, or its name.
func (s *Study) place() string {
	if len(s.paths) == 1 {
		return filepath.Base(s.paths[0])
	}
	return s.Name()
}

// pair is a series of each of two studies, with what a sentence calls them.
type pair struct{ a, b, nameA, nameB string }

func pairsOf(a, b *Study) ([]pair, error) {
	if a == nil || b == nil {
		return nil, errors.New("compare: a study is missing; read each with scaling.Read")
	}
	var pairs []pair
	for _, name := range a.Series() {
		if slices.Contains(b.Series(), name) {
			pairs = append(pairs, pair{name, name, name, name})
		}
	}
	if len(pairs) == 0 && len(a.Series()) == 1 && len(b.Series()) == 1 {
		x, y := a.Series()[0], b.Series()[0]
		pairs = append(pairs, pair{x, y, x, y})
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("compare: no series is in both: one has %s, the other %s", quoted(a.Series()), quoted(b.Series()))
	}
	return pairs, nil
}

func comparePoints(sa, sb *Study, pairs []pair) (*Comparisons, error) {
	out := &Comparisons{rule: sa.Rule}
	for _, pr := range pairs {
		first := len(out.Rows)
		unlike := map[string][]string{} // the workers at which a difference is met
		var differ []string
		for _, name := range []struct {
			s    *Study
			name string
		}{{sa, pr.a}, {sb, pr.b}} {
			if _, err := name.s.oneSeries(name.name); err != nil {
				return nil, fmt.Errorf("compare: %w", err)
			}
		}
		for i, p := range sa.Points {
			if p.Series != pr.a {
				continue
			}
			j := slices.IndexFunc(sb.Points, func(q Point) bool { return q.Series == pr.b && q.Workers == p.Workers })
			if j < 0 {
				out.Problems = append(out.Problems, fmt.Sprintf("%s has no run at %s", pr.nameB, plural(p.Workers, "worker")))
				continue
			}
			c, err := sa.compareCells(pr.nameA, pr.nameB, p.Workers, sa.cells[i], sb.cells[j])
			if err != nil {
				out.Problems = append(out.Problems, err.Error())
				continue
			}
			out.Rows = append(out.Rows, *c)
			for _, d := range differences(sa.cells[i], sb.cells[j]) {
				if unlike[d] == nil {
					differ = append(differ, d)
				}
				unlike[d] = append(unlike[d], strconv.Itoa(p.Workers))
			}
		}
		for _, d := range differ {
			out.Problems = append(out.Problems, fmt.Sprintf("%s and %s differ in %s, at %s: compare their times with care", pr.nameA, pr.nameB, d, workersText(unlike[d])))
		}
		for _, q := range sb.Points {
			if q.Series == pr.b && !slices.ContainsFunc(sa.Points, func(p Point) bool { return p.Series == pr.a && p.Workers == q.Workers }) {
				out.Problems = append(out.Problems, fmt.Sprintf("%s has no run at %s", pr.nameA, plural(q.Workers, "worker")))
			}
		}
		if p, ok := pool(out.Rows[first:], sa.Rule.level()); ok {
			out.Pooled = append(out.Pooled, p)
		}
	}
	if len(out.Rows) == 0 {
		return nil, fmt.Errorf("compare: nothing can be compared: %s", commas(out.Problems))
	}
	return out, nil
}

// workersText lists numbers of workers: "1 and 2 workers".
func workersText(sizes []string) string {
	if len(sizes) == 1 && sizes[0] == "1" {
		return "1 worker"
	}
	return commas(sizes) + " workers"
}

// compareCells compares two cells by the best measure that both have.
func (s *Study) compareCells(a, b string, workers int, ca, cb cell) (*Comparison, error) {
	c := &Comparison{A: a, B: b, Workers: workers, P: math.NaN(), PermutationP: math.NaN()}
	var m measure
	for _, try := range measuresOfSpeed() {
		if try.known(ca) && try.known(cb) {
			m = try
			break
		}
	}
	if m.value == nil {
		return nil, fmt.Errorf("%s and %s at %s have no time or throughput that both tell", a, b, plural(workers, "worker"))
	}
	c.Measure = m.name
	x, y := c0(ca.values(m.value)), c0(cb.values(m.value))
	c.RunsA, c.RunsB = len(x), len(y)
	if sameRuns(ca, cb, x, y) {
		c.same = true
		c.Ratio = Span{Value: 1, Min: 1, Max: 1, Low: 1, High: 1, N: len(x)}
		c.Verdict, c.Test = VerdictNone, "none: they are the same runs"
		c.Sentence = fmt.Sprintf("%s and %s hold the same %s at %s.", a, b, plural(len(x), "run"), plural(workers, "worker"))
		return c, nil
	}
	c.Ratio = m.speed(s, ca, cb)
	if len(x) > 1 && len(y) > 1 {
		c.P, c.PermutationP = welchTest(x, y), permutationTest(x, y)
	}
	c.judge(m, s.Rule.level())
	return c, nil
}

// sameRuns reports whether two cells hold the same runs, with the same measured
// values: a folder that is compared with itself.
func sameRuns(a, b cell, x, y []float64) bool {
	places := func(c cell) []string {
		out := make([]string, len(c.runs))
		for i, r := range c.runs {
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

// judge makes the verdict and says it.
func (c *Comparison) judge(m measure, level float64) {
	at := "at " + plural(c.Workers, "worker")
	effect := fmt.Sprintf("%s runs %s times as fast as %s %s (%s)", c.A, short(c.Ratio.Value), c.B, at, m.words)
	if math.IsNaN(c.P) {
		c.Verdict, c.Test = VerdictUnknown, "none: a test needs two runs of each"
		c.Sentence = fmt.Sprintf("%s, but %s of %s and %s of %s cannot tell a difference from chance: run at least 3 seeds of each.",
			effect, plural(c.RunsA, "run"), c.A, plural(c.RunsB, "run"), c.B)
		return
	}
	c.Test = fmt.Sprintf("Welch's t-test of the logarithms, p %s", pIs(c.P))
	if !math.IsNaN(c.PermutationP) {
		c.Test += fmt.Sprintf("; exact permutation test, p %s (at best %s with so many runs)", pIs(c.PermutationP), pText(leastP(c.RunsA, c.RunsB)))
	}
	said := fmt.Sprintf("%s, %s interval %s, n = %d and %d; %s", effect, percent(level), c.Ratio.interval(), c.RunsA, c.RunsB, c.Test)
	excludes := c.Ratio.Low > 1 || c.Ratio.High < 1
	switch {
	case !excludes || !(c.P < 1-level):
		c.Verdict = VerdictNone
		c.Sentence = said + ". The runs show no difference: it is within " + c.Ratio.interval() + "."
	case c.Ratio.Value > 1:
		c.Verdict = VerdictFaster
		c.Sentence = said + fmt.Sprintf(". Yes: %s is faster.", c.A)
	default:
		c.Verdict = VerdictSlower
		c.Sentence = said + fmt.Sprintf(". No: %s is slower.", c.A)
	}
}

// pText is a p for people.
func pText(p float64) string {
	if p < 0.0001 {
		return "< 0.0001"
	}
	return fmt.Sprintf("%.2g", p)
}

// pIs is a p behind its letter.
func pIs(p float64) string {
	if text := pText(p); text[0] == '<' {
		return text
	}
	return "= " + pText(p)
}

// welchTest is the two-sided p of Welch's t-test of the logarithms (Welch,
// Biometrika 34, 1947). Each side has two values or more, all positive.
func welchTest(a, b []float64) float64 {
	logs := bootstrap{logs: true}
	x, y := logs.sample(a), logs.sample(b)
	difference := math.Abs(stat.Mean(x.at, nil) - stat.Mean(y.at, nil))
	switch deviation := math.Hypot(x.noise, y.noise); {
	case deviation > 0:
		t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: welch(x, y)}
		return 2 * t.Survival(difference/deviation)
	case difference > 0:
		return 0
	}
	return 1
}

// mostArrangements bounds the exact permutation test.
const mostArrangements = 20_000

// arrangements is how many ways there are to choose n of n+m runs.
func arrangements(n, m int) *big.Int { return new(big.Int).Binomial(int64(n+m), int64(n)) }

// leastP is the smallest p that the permutation test can give.
func leastP(n, m int) float64 {
	ways, _ := new(big.Float).SetInt(arrangements(n, m)).Float64()
	if n == m { // sides that trade all their runs are as far apart
		return 2 / ways
	}
	return 1 / ways
}

// permutationTest is the two-sided p of the exact permutation test of the
// difference of the mean logarithms: the share of all ways to deal the runs to
// the two sides that are at least so far apart. NaN where there are too many.
func permutationTest(a, b []float64) float64 {
	ways := arrangements(len(a), len(b))
	if !ways.IsInt64() || ways.Int64() > mostArrangements {
		return math.NaN()
	}
	all := make([]float64, 0, len(a)+len(b))
	total := 0.0
	for _, v := range slices.Concat(a, b) {
		all, total = append(all, math.Log(v)), total+math.Log(v)
	}
	apart := func(sum float64) float64 {
		return math.Abs(sum/float64(len(a)) - (total-sum)/float64(len(b)))
	}
	observed := 0.0
	for _, v := range all[:len(a)] {
		observed += v
	}
	// Equal arrangements must not be lost to rounding.
	limit := apart(observed) * (1 - 1e-12)
	reached, dealt := 0, 0
	g := combin.NewCombinationGenerator(len(all), len(a))
	pick := make([]int, len(a))
	for g.Next() {
		sum := 0.0
		for _, i := range g.Combination(pick) {
			sum += all[i]
		}
		dealt++
		if apart(sum) >= limit {
			reached++
		}
	}
	return float64(reached) / float64(dealt)
}

func (c *Comparisons) grid() grid[Comparison] {
	g := grid[Comparison]{what: "comparison", rows: c.Rows, columns: []column[Comparison]{
		{name: "a", brief: true, text: func(c Comparison) string { return c.A }},
		{name: "b", brief: true, text: func(c Comparison) string { return c.B }},
		{name: "workers", brief: true, count: func(c Comparison) int { return c.Workers }},
		{name: "measure", text: func(c Comparison) string { return c.Measure }},
		{name: "runs_a", brief: true, count: func(c Comparison) int { return c.RunsA }},
		{name: "runs_b", brief: true, count: func(c Comparison) int { return c.RunsB }},
	}}
	g.columns = append(g.columns, spanColumns("ratio", true, func(c Comparison) Span { return c.Ratio })...)
	g.columns = append(g.columns,
		column[Comparison]{
			name: "p", brief: true, optional: true, value: func(c Comparison) float64 { return c.P },
			show: func(c Comparison) string { return pText(c.P) },
		},
		column[Comparison]{name: "permutation_p", value: func(c Comparison) float64 { return c.PermutationP }},
		column[Comparison]{name: "verdict", brief: true, text: func(c Comparison) string { return c.Verdict }},
		column[Comparison]{name: "sentence", text: func(c Comparison) string { return c.Sentence }})
	for _, p := range c.Pooled {
		g.remarks = append(g.remarks, p.Sentence)
	}
	var alone []string // worker counts that cannot tell alone
	for _, r := range c.Rows {
		if r.Verdict == VerdictUnknown && slices.ContainsFunc(c.Pooled, func(p Pooled) bool { return p.A == r.A && p.B == r.B }) {
			if n := strconv.Itoa(r.Workers); !slices.Contains(alone, n) {
				alone = append(alone, n)
			}
			continue
		}
		g.remarks = append(g.remarks, r.Sentence)
	}
	if len(alone) > 0 {
		g.remarks = append(g.remarks, fmt.Sprintf("a single run of a side at %s cannot tell a difference from chance there: run at least 3 seeds of each", workersText(alone)))
	}
	g.remarks = append(g.remarks, "rule: "+c.rule.counting())
	for _, p := range c.Problems {
		g.remarks = append(g.remarks, "problem: "+p)
	}
	return g
}

// Table has a row a number of workers: a, b, workers, measure, runs_a, runs_b,
// ratio, ratio_low, ratio_high, p, permutation_p, verdict, sentence.
func (c *Comparisons) Table() dataframe.DataFrame { return c.grid().table() }

// String is the table for people, with the pooled sentences and those of the rows.
func (c *Comparisons) String() string { return c.grid().String() }

// HTML is the table for a notebook's cell.
func (c *Comparisons) HTML() string { return c.grid().html() }

// Write writes the rows as "table", "csv" or "json".
func (c *Comparisons) Write(w io.Writer, format string) error { return c.grid().write(w, format) }

func (c *Comparison) all() *Comparisons { return &Comparisons{Rows: []Comparison{*c}} }

// Table has one row, as that of Comparisons.
func (c *Comparison) Table() dataframe.DataFrame { return c.all().Table() }

// String is the sentence.
func (c *Comparison) String() string { return c.Sentence }

// HTML is the sentence for a notebook's cell.
func (c *Comparison) HTML() string { return paragraph(c.Sentence) }

// Write writes the row as "table", "csv" or "json".
func (c *Comparison) Write(w io.Writer, format string) error { return c.all().Write(w, format) }
