package scaling

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/runs"
)

// Values of BatchRule.Rule: how the best learning rate grows with the global
// batch, where these are the rules of the field.
const (
	RateConstant = "none"   // it does not: exponent 0
	RateSqrt     = "sqrt"   // ·√(batch ratio): exponent 1/2 (Krizhevsky 2014, arXiv:1404.5997)
	RateLinear   = "linear" // ·(batch ratio): exponent 1 (Goyal et al. 2017, arXiv:1706.02677)
	RateOther    = "other"  // a power of the batch that is none of these
)

// rateRule is one of the rules.
type rateRule struct {
	name     string
	words    string
	exponent float64
}

func rateRules() []rateRule {
	return []rateRule{{RateConstant, "the constant rate", 0}, {RateSqrt, "the √ rule", 0.5}, {RateLinear, "the linear rule", 1}}
}

// at is the learning rate at a batch, from that of another one.
func (r rateRule) at(batch, base int, rate float64) float64 {
	return rate * math.Pow(float64(batch)/float64(base), r.exponent)
}

// Values of RateRow.Bound.
const (
	BoundHighest = "highest" // the best rate is the highest tried: a higher one may be better
	BoundLowest  = "lowest"  // likewise the lowest
	BoundOnly    = "only"    // one rate alone was tried
)

// RateRow is what the runs at one global batch show of its learning rate.
type RateRow struct {
	GlobalBatch    int
	Rates          int // learning rates that were tried
	Runs, Diverged int
	// Best is the best learning rate: the top of the parabola that fits the
	// quality at the best rate tried and at its neighbours, two on each side, over
	// the logarithm of the rate. With Bound it is the best that was tried.
	Best  Span
	Bound string
	// Quality is that at the best rate tried, Change the difference to the
	// smallest batch's.
	Quality, Change Span
	// Constant, Sqrt and Linear are the rates that the rules make of the smallest
	// batch's best one.
	Constant, Sqrt, Linear float64
}

// TriedRate is a learning rate that was tried at a global batch. A rate at which
// the loss of any run diverged has no quality.
type TriedRate struct {
	GlobalBatch    int
	LearningRate   float64 // of the first step after a warm-up, scaled to the workers
	Runs, Diverged int
	Quality        Span

	values []float64
	places []runs.Run
}

// RuleRow is how one of the rules fares: the quality at the rates that it makes
// of the smallest batch's best one, where they were tried, against the best rate
// tried there.
type RuleRow struct {
	Rule     string
	Exponent float64
	Batches  []int // beyond the smallest, at which its rate was tried
	// Worst is the largest loss of quality, as a difference, at WorstBatch.
	Worst      Span
	WorstBatch int
	Rejected   bool // at some batch the interval of the loss excludes 0
	Holds      int  // the largest batch up to which it is not rejected; 0: not tried
}

// BatchRule is which rule relates the best learning rate to the global batch,
// and up to which batch. A cell shows it as a table.
type BatchRule struct {
	Measure string // of quality: iou, dice, val_accuracy, accuracy, test_loss, val_loss or train_loss
	Rows    []RateRow
	Tried   []TriedRate // by batch, then by rate
	Rules   []RuleRow

	// Exponent p of best rate = c·batch^p, least squares over the logarithms of
	// those batches whose best rate is neither the highest nor the lowest tried
	// and whose quality is not below the smallest batch's; NaN without two.
	Exponent Span
	Rule     string // one of the Rate constants; empty where the runs do not decide
	How      string // "best rates" or "quality", by which it was decided; empty where it was not
	// Good is the largest batch up to which the quality at the best rate tried is
	// not below the smallest batch's beyond noise, Falls the first at which it is
	// (0: none).
	Good, Falls int
	Sentence    string
	Problems    []string

	// Launch is how the command of Next begins; empty: by the name of the config
	// that the runs had, without what was set in it.
	Launch string

	higher bool // is better, of the measure
	fitted []int
	edge   float64 // share of the resamples in which a fitted batch's best rate is at an end
	next   sweep
	rule   Rule
}

// ScalingRule finds the rule from runs at several global batches, at best with
// several learning rates at each, such as
//
//	lockstep launch --seeds 1,2,3 --vary batch=4,8,16 --vary optimizer.learning_rate=0.001,0.002,0.004,0.008
//
// leaves. The series do not matter: runs belong together by their global batch
// and their learning rate, the initial one scaled to the workers. The measure is
// one of those of Quality; "" takes the first that most runs tell.
//
// Intervals are bootstrapped over the runs of each batch and rate (seeds); a
// rate with one run borrows the deviation that the others have. Where fewer than
// two batches tell a best rate of their own, the rules are compared by the
// quality at the rates that they predict. Epochs are what the runs had: a larger
// batch makes fewer steps in them. It is an error that the runs had one batch,
// or tell no learning rate.
func (s *Study) ScalingRule(measure string) (*BatchRule, error) {
	out := &BatchRule{rule: s.Rule}
	of, err := out.choose(s.Runs, measure)
	if err != nil {
		return nil, fmt.Errorf("find scaling rule: %w", err)
	}
	out.collect(s, of)
	var batches []int
	for _, t := range out.Tried {
		batches = append(batches, t.GlobalBatch)
	}
	if batches = slices.Compact(batches); len(batches) < 2 {
		what := "no run tells its global batch, its learning rate and its " + out.Measure
		if len(batches) == 1 {
			what = fmt.Sprintf("all runs have the global batch %d", batches[0])
		}
		return nil, fmt.Errorf("find scaling rule: %s: run at least two batches, for example lockstep launch --seeds 1,2,3 --vary batch=4,8,16 --vary optimizer.learning_rate=0.001,0.002,0.004,0.008", what)
	}
	draws := out.draws(s)
	if err := out.rates(s, batches, draws); err != nil {
		return nil, fmt.Errorf("find scaling rule: %w", err)
	}
	out.fit(draws)
	out.compareRules(s)
	out.decide()
	out.advise()
	out.Sentence = out.say()
	return out, nil
}

// choose is the measure of quality.
func (o *BatchRule) choose(all []runs.Run, measure string) (func(runs.Run) float64, error) {
	var names []string
	for _, q := range qualities() {
		known := 0
		for _, r := range all {
			if finite(q.of(r)) {
				known++
			}
		}
		if measure == q.name || measure == "" && 2*known > len(all) {
			if known == 0 {
				return nil, fmt.Errorf("no run tells its %s", measure)
			}
			o.Measure, o.higher = q.name, q.higher
			return q.of, nil
		}
		names = append(names, q.name)
	}
	if measure != "" {
		return nil, fmt.Errorf("measure %q is not known: use %s", measure, strings.Join(names, ", "))
	}
	return nil, errors.New("most runs tell no quality: no IoU, accuracy or loss")
}

// collect gathers the runs by batch and rate.
func (o *BatchRule) collect(s *Study, of func(runs.Run) float64) {
	type seeded struct {
		batch int
		rate  float64
		seed  int64
	}
	seen := map[seeded]string{}
	unknown := 0
	var counted []runs.Run
	for _, r := range s.Runs {
		if failed(r) {
			o.problem("%s %s and does not count", runName(r), r.Info.Status)
			continue
		}
		_, batch := batches(r)
		rate, quality, diverged := learningRate(r), of(r), diverged(r) != ""
		if batch < 1 || !(rate > 0) || !diverged && !finite(quality) {
			unknown++
			continue
		}
		rate = o.sameRate(batch, rate)
		// The same seed gives the same run, on any number of workers.
		at := seeded{batch, rate, r.Info.Seed}
		if first, twice := seen[at]; twice && r.Info.Seed != 0 {
			o.problem("%s has the batch, the learning rate and the seed of %s, so that it tells nothing new and does not count", runName(r), first)
			continue
		}
		seen[at] = runName(r)
		counted = append(counted, r)
		i := slices.IndexFunc(o.Tried, func(t TriedRate) bool { return t.GlobalBatch == batch && t.LearningRate == rate })
		if i < 0 {
			i, o.Tried = len(o.Tried), append(o.Tried, TriedRate{GlobalBatch: batch, LearningRate: rate})
		}
		t := &o.Tried[i]
		t.Runs++
		t.places = append(t.places, r)
		if diverged {
			t.Diverged++
		} else {
			t.values = append(t.values, quality)
		}
	}
	if unknown > 0 {
		o.problem("%s of %s tell no batch, learning rate or %s and do not count", plural(unknown, "run"), plural(len(s.Runs), "run"), o.Measure)
	}
	for i := range o.Tried {
		t := &o.Tried[i]
		if t.Quality = nothing(); t.Diverged == 0 {
			t.Quality = s.span(t.values, false)
		}
	}
	slices.SortFunc(o.Tried, func(a, b TriedRate) int {
		if a.GlobalBatch != b.GlobalBatch {
			return a.GlobalBatch - b.GlobalBatch
		}
		if a.LearningRate < b.LearningRate {
			return -1
		}
		return 1
	})
	o.differences(counted)
}

// sameRate is a rate that was tried at the batch already where rate is that but
// for its rounding.
func (o *BatchRule) sameRate(batch int, rate float64) float64 {
	for _, t := range o.Tried {
		if t.GlobalBatch == batch && math.Abs(t.LearningRate-rate) < 1e-6*rate {
			return t.LearningRate
		}
	}
	return rate
}

// learningRate is the initial learning rate of a run, scaled to its workers as
// its config says, or the highest that its log has; 0 where unknown.
func learningRate(r runs.Run) float64 {
	optimizer, _ := r.Info.Config["optimizer"].(map[string]any)
	if rate, ok := optimizer["learning_rate"].(float64); ok {
		schedule, _ := r.Info.Config["schedule"].(map[string]any)
		factor := float64(r.Info.Workers)
		if base, _ := schedule["base_batch"].(float64); base > 0 {
			_, global := batches(r)
			factor = float64(global) / base
		}
		switch schedule["scaling"] {
		case RateLinear:
			return rate * factor
		case RateSqrt:
			return rate * math.Sqrt(factor)
		}
		return rate
	}
	highest := 0.0
	for _, e := range r.Epochs {
		if finite(e.LearningRate) {
			highest = max(highest, e.LearningRate)
		}
	}
	return highest
}

// differences names what else than batch, rate and workers differs between the
// runs: their quality is then no effect of these alone.
func (o *BatchRule) differences(all []runs.Run) {
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
			text := without(r, c.key, c.omit...)
			switch {
			case text == "":
			case first == "":
				first, where = text, r
			case text != first:
				o.problem("%s differs between runs (%s and %s): their quality is then no effect of batch and rate alone; leave some out with --series", c.key, runName(where), runName(r))
			}
			if text != "" && text != first {
				break
			}
		}
	}
}

// without is document less some of its keys.
func without(r runs.Run, key string, omit ...string) string {
	part, ok := r.Info.Config[key].(map[string]any)
	if !ok {
		return document(r, key)
	}
	kept := map[string]any{}
	for k, v := range part {
		if !slices.Contains(omit, k) {
			kept[k] = v
		}
	}
	r.Info.Config = map[string]any{key: kept}
	return document(r, key)
}

func (o *BatchRule) problem(format string, a ...any) {
	o.Problems = append(o.Problems, fmt.Sprintf(format, a...))
}
