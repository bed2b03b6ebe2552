package scaling

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/observe"
	"lockstep/pkg/scaling/internal/verdict"
)

// Values of Comparison.Verdict and PooledComparison.Verdict.
const (
	VerdictFaster  = verdict.VerdictFaster
	VerdictSlower  = verdict.VerdictSlower
	VerdictNone    = verdict.VerdictNone
	VerdictUnknown = verdict.VerdictUnknown
	// VerdictMixed occurs only in PooledComparison: the verdict depends on the worker count.
	VerdictMixed = verdict.VerdictMixed
)

// Comparison answers the question "is A faster than B at this worker count?".
type Comparison struct {
	A, B         string // series
	Workers      int
	Measure      string // the measure compared: throughput, epoch_seconds or wall_seconds
	RunsA, RunsB int
	// Ratio is the speed of A divided by the speed of B, with its interval. If the measure is a
	// time, it is the time of B divided by the time of A.
	Ratio Estimate
	// P is from Welch's t-test of the logarithms of the measured values: the probability of
	// a difference at least this large if A and B are equally fast. PermutationP is from
	// the exact permutation test, which assumes no distribution but cannot be small with
	// few runs (at least 0.1 with three against three). Both are NaN if a side has one run.
	// PermutationP is also NaN if there are too many permutations.
	P, PermutationP float64
	Test            string // description of the tests and their results
	Verdict         string // "faster", "slower", "no difference shown" or "cannot tell"
	Sentence        string
}

// PooledComparison answers "is A faster than B?" over all worker counts at which both were measured.
// It needs no repeated runs, because it is a paired test in which each worker count gives one pair.
type PooledComparison struct {
	A, B           string // series
	Counts         int    // worker counts that were compared
	Faster, Slower int    // worker counts at which A was measured to be faster or slower
	// Median, Min and Max summarize the ratios (speed of A divided by speed of B) over the worker counts.
	Median, Min, Max float64
	// P is from the exact two-sided signed-rank test of the logarithms of the ratios
	// (Wilcoxon, Individual comparisons by ranking methods, Biometrics Bulletin 1,
	// 1945): the probability that the ratios are at least this far on one side of 1 if A
	// and B are equally fast. With n counts it is at least 2/2ⁿ, so fewer than 6 counts
	// cannot reach 0.05. It is NaN if A and B are equal at every count.
	P        float64
	Verdict  string // "faster", "slower", "no difference shown", "cannot tell" or "depends on the worker count"
	Sentence string
}

// Comparisons contains one comparison for each worker count at which both series were measured.
//
// Its table has one row per worker count: a, b, workers, measure, runs_a, runs_b,
// ratio, ratio_low, ratio_high, p, permutation_p, verdict, sentence.
type Comparisons struct {
	analysis
	Rows     []Comparison
	Pooled   []PooledComparison // one for each pair of series with several worker counts
	Problems []string           // what could not be compared, with reasons
	rule     Rule
	cautions []string // about the compared series; see Study.Cautions
}

// Compare compares the speeds of series a and b at one worker count. It computes the interval of
// their ratio by the study's Rule, and Welch's t-test of the logarithms (Welch 1947). The verdict
// is faster or slower only if the interval excludes 1 and P is below 1 − confidence.
func (s *Study) Compare(a, b string, workers int) (*Comparison, error) {
	i, err := s.findPointIndex(a, workers)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	j, err := s.findPointIndex(b, workers)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	c, err := verdict.CompareAtWorkerCount(s.estimator(), a, b, workers, s.cells[i], s.cells[j])
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	out := newComparison(*c)
	return &out, nil
}

func newComparison(c verdict.Comparison) Comparison {
	return Comparison{
		A: c.A, B: c.B, Workers: c.Workers, Measure: c.Measure, RunsA: c.RunsA, RunsB: c.RunsB, Ratio: Estimate(c.Ratio),
		P: c.P, PermutationP: c.PermutationP, Test: c.Test, Verdict: c.Verdict, Sentence: c.Sentence,
	}
}

func newComparisons(c *verdict.Comparisons, rule Rule, cautions []string) *Comparisons {
	out := &Comparisons{Problems: c.Problems, rule: rule, cautions: cautions}
	out.analysis = analysis{out}
	for _, r := range c.Rows {
		out.Rows = append(out.Rows, newComparison(r))
	}
	for _, p := range c.Pooled {
		out.Pooled = append(out.Pooled, PooledComparison(p))
	}
	return out
}

func (s *Study) toVerdictStudy() verdict.Study {
	out := verdict.Study{DisplayName: s.displayName(), By: s.estimator()}
	for i, p := range s.Points {
		out.Points = append(out.Points, verdict.Point{Series: p.Series, Workers: p.Workers, Diverged: p.Diverged, Cell: s.cells[i]})
	}
	return out
}

// CompareSeries compares two series at every worker count that both have.
func (s *Study) CompareSeries(a, b string) (*Comparisons, error) {
	for _, name := range []string{a, b} {
		if _, err := s.resolveSeries(name); err != nil {
			return nil, fmt.Errorf("compare: %w", err)
		}
	}
	all := s.toVerdictStudy()
	c, err := verdict.CompareSeriesPairs(all, all, []verdict.SeriesPair{{A: a, B: b, NameA: a, NameB: b}})
	if err != nil {
		return nil, err
	}
	return newComparisons(c, s.Rule, s.cautionsAbout([]string{a, b})), nil
}

// CompareStudies compares the series that have the same name in both studies or, if there are none,
// the only series of each. The intervals are computed by a.Rule.
func CompareStudies(a, b *Study) (*Comparisons, error) {
	if a == nil || b == nil {
		return nil, fmt.Errorf("compare: %w", errNilStudy)
	}
	c, err := verdict.CompareStudies(a.toVerdictStudy(), b.toVerdictStudy())
	if err != nil {
		return nil, err
	}
	return newComparisons(c, a.Rule, mergeCautions(a, b)), nil
}

// mergeCautions returns the cautions of both studies. If they differ, each begins with the name of
// its study.
func mergeCautions(a, b *Study) []string {
	if slices.Equal(a.Cautions(), b.Cautions()) {
		return a.Cautions()
	}
	var out []string
	for _, s := range []*Study{a, b} {
		for _, text := range s.Cautions() {
			out = append(out, s.displayName()+": "+text)
		}
	}
	return out
}

var errNilStudy = errors.New("a study is nil: read both studies with scaling.Read")

func (s *Study) displayName() string {
	if len(s.paths) == 1 {
		return filepath.Base(s.paths[0])
	}
	return s.Name()
}

func (c *Comparisons) table(maxRows int) resultTable {
	g := grid.Grid[Comparison]{What: "comparison", Rows: limitRows(c.Rows, maxRows), Columns: []grid.Column[Comparison]{
		{Name: "a", Brief: true, Text: func(c Comparison) string { return c.A }},
		{Name: "b", Brief: true, Text: func(c Comparison) string { return c.B }},
		{Name: "workers", Brief: true, Count: func(c Comparison) int { return c.Workers }},
		{Name: "measure", Text: func(c Comparison) string { return c.Measure }},
		{Name: "runs_a", Brief: true, Count: func(c Comparison) int { return c.RunsA }},
		{Name: "runs_b", Brief: true, Count: func(c Comparison) int { return c.RunsB }},
	}}
	g.Columns = append(g.Columns, estimateColumns("ratio", func(c Comparison) Estimate { return c.Ratio })...)
	g.Columns = append(g.Columns,
		grid.Column[Comparison]{
			Name: "p", Brief: true, Optional: true, Value: func(c Comparison) float64 { return c.P },
			Show: func(c Comparison) string { return english.FormatPValue(c.P) },
		},
		grid.Column[Comparison]{Name: "permutation_p", Value: func(c Comparison) float64 { return c.PermutationP }},
		grid.Column[Comparison]{Name: "verdict", Brief: true, Text: func(c Comparison) string { return c.Verdict }},
		grid.Column[Comparison]{Name: "sentence", Text: func(c Comparison) string { return c.Sentence }})
	g.Remarks = formatCautions(c.cautions)
	for _, p := range c.Pooled {
		g.Remarks = append(g.Remarks, p.Sentence)
	}
	var alone []Comparison // in which a single run cannot show a difference
	for _, r := range g.Rows {
		if r.Verdict == VerdictUnknown && slices.ContainsFunc(c.Pooled, func(p PooledComparison) bool { return p.A == r.A && p.B == r.B }) {
			alone = append(alone, r)
			continue
		}
		g.Remarks = append(g.Remarks, r.Sentence)
	}
	if len(alone) > 0 {
		counts := observe.Distinct(alone, func(r Comparison) string { return strconv.Itoa(r.Workers) })
		g.Remarks = append(g.Remarks, fmt.Sprintf("at %s, one of the two series has a single run, so a difference may be due to chance: run at least 3 seeds of each", verdict.FormatWorkers(counts)))
	}
	g.Remarks = append(g.Remarks, "rule: "+c.rule.describeCountedEpochs())
	for _, p := range c.Problems {
		g.Remarks = append(g.Remarks, "problem: "+p)
	}
	return g
}
