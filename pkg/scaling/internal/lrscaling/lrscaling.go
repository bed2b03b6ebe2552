// Package lrscaling determines how the best learning rate grows with the global batch.
package lrscaling

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/observe"
	"lockstep/pkg/scaling/internal/stats"
)

// Values of Result.Rule: how the best learning rate grows with the global batch.
const (
	RuleConstant = "none"   // constant rate: exponent 0
	RuleSqrt     = "sqrt"   // ·√(batch ratio): exponent 1/2 (Krizhevsky 2014, arXiv:1404.5997)
	RuleLinear   = "linear" // ·(batch ratio): exponent 1 (Goyal et al. 2017, arXiv:1706.02677)
	RuleOther    = "other"  // a power of the batch that matches none of these rules
)

type rateRule struct {
	name     string
	words    string
	exponent float64
}

func rateRules() []rateRule {
	return []rateRule{{RuleConstant, "the constant rate", 0}, {RuleSqrt, "the square-root rule", 0.5}, {RuleLinear, "the linear rule", 1}}
}

// learningRate returns the learning rate that the rule predicts at a batch size. rate is the
// learning rate at the batch size base.
func (r rateRule) learningRate(batch, base int, rate float64) float64 {
	return rate * math.Pow(float64(batch)/float64(base), r.exponent)
}

// Values of RateRow.Bound.
const (
	BoundHighest = "highest" // the best rate is the highest tried: a higher one may be better
	BoundLowest  = "lowest"  // the best rate is the lowest tried: a lower one may be better
	BoundOnly    = "only"    // only one rate was tried
)

// RateRow summarizes the learning rates at one global batch; see scaling.RateRow.
type RateRow struct {
	GlobalBatch            int
	Rates                  int
	Runs, Diverged         int
	Best                   stats.Estimate
	Bound                  string
	Quality, Change        stats.Estimate
	Constant, Sqrt, Linear float64
}

// TriedRate is a learning rate that was tried at a global batch; see scaling.TriedRate.
type TriedRate struct {
	GlobalBatch    int
	LearningRate   float64
	Runs, Diverged int
	Quality        stats.Estimate

	values []float64 // the quality of each run that did not diverge
}

// RuleRow compares one scaling rule with the measurements; see scaling.RuleRow.
type RuleRow struct {
	Rule       string
	Exponent   float64
	Batches    []int
	Worst      stats.Estimate
	WorstBatch int
	Rejected   bool
	Holds      int

	words string // name of the rule in sentences
}

// Result states which rule relates the best learning rate to the global batch, and up to which
// batch size it holds; see scaling.LRScaling.
type Result struct {
	Measure string
	Rows    []RateRow
	Tried   []TriedRate // by batch, then by rate
	Rules   []RuleRow

	Exponent    stats.Estimate
	Rule, How   string
	Good, Falls int
	Sentence    string
	Problems    []string

	higher    bool    // a higher quality is better
	fitted    []int   // batches to which the exponent is fitted
	edgeShare float64 // share of the resamples in which the best rate of a fitted batch is the lowest or the highest tried
	by        stats.Estimator
}

// FindRateRule determines how the best learning rate depends on the global batch. all contains runs at
// several global batches, preferably with several learning rates at each. measure names a measure
// of quality, or is "" for the first one that most runs have. estimator computes the intervals.
func FindRateRule(all []runs.Run, measure string, estimator stats.Estimator) (*Result, error) {
	out := &Result{by: estimator}
	m, err := out.chooseQualityMeasure(all, measure)
	if err != nil {
		return nil, err
	}
	out.groupRuns(all, m.RunValue)
	var batches []int
	for _, t := range out.Tried {
		batches = append(batches, t.GlobalBatch)
	}
	if batches = slices.Compact(batches); len(batches) < 2 {
		found := "no run has a global batch, a learning rate and a value of " + out.Measure
		if len(batches) == 1 {
			found = fmt.Sprintf("all runs have the global batch %d", batches[0])
		}
		return nil, fmt.Errorf("too few global batches: %s: run at least two, for example lockstep launch --seeds 1,2,3 --vary batch=4,8,16 --vary optimizer.learning_rate=0.001,0.002,0.004,0.008", found)
	}
	draws := out.resampleQualities()
	if err := out.computeRows(batches, draws); err != nil {
		return nil, err
	}
	out.fitExponent(draws)
	out.compareRateRules()
	out.decideRateRule()
	out.Sentence = out.summarize()
	return out, nil
}

// chooseQualityMeasure sets the fields Measure and higher, and returns the named measure of quality. If
// measure is "", it chooses the first one that most runs have.
func (o *Result) chooseQualityMeasure(all []runs.Run, measure string) (observe.Metric, error) {
	var names []string
	for _, q := range observe.QualityMetrics() {
		known := 0
		for _, r := range all {
			if observe.IsFinite(q.RunValue(r)) {
				known++
			}
		}
		if measure == q.Name || measure == "" && 2*known > len(all) {
			if known == 0 {
				return observe.Metric{}, fmt.Errorf("no run has a value of %s", measure)
			}
			o.Measure, o.higher = q.Name, q.Higher
			return q, nil
		}
		names = append(names, q.Name)
	}
	if measure != "" {
		return observe.Metric{}, fmt.Errorf("unknown measure %q: use one of %s", measure, strings.Join(names, ", "))
	}
	return observe.Metric{}, errors.New("most runs have no measure of quality (IoU, accuracy or loss)")
}

// groupRuns groups the runs by batch and rate, and sets Tried.
func (o *Result) groupRuns(all []runs.Run, qualityOf func(runs.Run) float64) {
	type seeded struct {
		batch int
		rate  float64
		seed  int64
	}
	seen := map[seeded]string{}
	unknown := 0
	var counted []runs.Run
	for _, r := range all {
		if observe.HasFailed(r) {
			o.addProblem("%s %s and does not count", observe.RunName(r), r.Info.Status)
			continue
		}
		_, batch := observe.BatchSizes(r)
		rate, quality, diverged := observe.LearningRate(r), qualityOf(r), observe.DescribeDivergence(r) != ""
		if batch < 1 || !(rate > 0) || !diverged && !observe.IsFinite(quality) {
			unknown++
			continue
		}
		rate = o.matchTriedRate(batch, rate)
		// Runs with the same seed are identical on any number of workers.
		at := seeded{batch, rate, r.Info.Seed}
		if first, twice := seen[at]; twice && r.Info.Seed != 0 {
			o.addProblem("%s has the batch, the learning rate and the seed of %s, so it adds no information and does not count", observe.RunName(r), first)
			continue
		}
		seen[at] = observe.RunName(r)
		counted = append(counted, r)
		i := slices.IndexFunc(o.Tried, func(t TriedRate) bool { return t.GlobalBatch == batch && t.LearningRate == rate })
		if i < 0 {
			i, o.Tried = len(o.Tried), append(o.Tried, TriedRate{GlobalBatch: batch, LearningRate: rate})
		}
		t := &o.Tried[i]
		t.Runs++
		if diverged {
			t.Diverged++
		} else {
			t.values = append(t.values, quality)
		}
	}
	if unknown > 0 {
		o.addProblem("%s of %s without a batch, a learning rate or a value of %s: not counted", english.FormatCount(unknown, "run"), english.FormatCount(len(all), "run"), o.Measure)
	}
	for i := range o.Tried {
		t := &o.Tried[i]
		if t.Quality = stats.UnknownEstimate(); t.Diverged == 0 {
			t.Quality = o.by.Estimate(t.values, false)
		}
	}
	slices.SortFunc(o.Tried, func(a, b TriedRate) int {
		return cmp.Or(a.GlobalBatch-b.GlobalBatch, cmp.Compare(a.LearningRate, b.LearningRate))
	})
	o.addSettingProblems(counted)
}

// matchTriedRate returns the rate in Tried that differs from rate only by rounding, or rate itself if
// there is none at this batch size.
func (o *Result) matchTriedRate(batch int, rate float64) float64 {
	for _, t := range o.Tried {
		if t.GlobalBatch == batch && math.Abs(t.LearningRate-rate) < 1e-6*rate {
			return t.LearningRate
		}
	}
	return rate
}

// addSettingProblems adds a problem for each setting that differs between the runs and may affect
// the quality too. Batch, rate and workers are ignored.
func (o *Result) addSettingProblems(all []runs.Run) {
	for _, c := range []struct {
		key  string
		omit []string
	}{
		{"model", nil},
		{"data", nil},
		{"epochs", nil},
		{"ema", nil},
		{"optimizer", []string{"learning_rate"}},
		{"schedule", []string{"scaling", "base_batch"}},
	} {
		first := ""
		var where runs.Run
		for _, r := range all {
			text := observe.ConfigSectionWithout(r, c.key, c.omit...)
			switch {
			case text == "":
			case first == "":
				first, where = text, r
			case text != first:
				o.addProblem("%s differs between runs (%s and %s), so their quality does not depend on batch and rate alone; select comparable runs with --series", c.key, observe.RunName(where), observe.RunName(r))
			}
			if text != "" && text != first {
				break
			}
		}
	}
}

func (o *Result) addProblem(format string, a ...any) {
	o.Problems = append(o.Problems, fmt.Sprintf(format, a...))
}
