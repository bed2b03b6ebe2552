package lrscaling

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling/internal/observe"
)

// Values of Result.How: what the choice of the rule is based on.
const (
	HowRates   = "best rates"
	HowQuality = "quality"
)

// maxBoundaryOptimumFraction is the largest fraction of resamples in which the best rate may be the
// highest or the lowest tried. Above it, the exponent's interval is truncated and unreliable.
const maxBoundaryOptimumFraction = 0.05

// decideRateRule sets Rule and How if the runs support one rule and contradict the others.
func (o *Result) decideRateRule() {
	if !math.IsNaN(o.Exponent.Value) {
		left := o.rateRulesInInterval()
		switch {
		case math.IsNaN(o.Exponent.Low) || o.edgeShare > maxBoundaryOptimumFraction || len(left) > 1:
		case len(left) == 1:
			o.Rule, o.How = left[0].name, HowRates
		default:
			o.Rule, o.How = RuleOther, HowRates
		}
		return
	}
	left, rejected := o.splitRejectedRules()
	if len(left) == 1 && len(rejected) > 0 {
		o.Rule, o.How = left[0].Rule, HowQuality
	}
}

// rateRulesInInterval returns the rules whose exponent is within the confidence interval of the fitted
// exponent.
func (o *Result) rateRulesInInterval() []rateRule {
	return slices.DeleteFunc(rateRules(), func(r rateRule) bool {
		return r.exponent < o.Exponent.Low || r.exponent > o.Exponent.High
	})
}

// splitRejectedRules divides the rules whose predicted rates were tried. left contains the rules
// that lose no quality beyond noise, rejected the others.
func (o *Result) splitRejectedRules() (left, rejected []RuleRow) {
	for _, r := range o.Rules {
		switch {
		case len(r.Batches) == 0:
		case r.Rejected:
			rejected = append(rejected, r)
		default:
			left = append(left, r)
		}
	}
	return left, rejected
}

func (o *Result) summarize() string {
	text := []string{o.describeRateRule(), o.describeBatchLimit()}
	if o.Rule == "" {
		text = append(text, "the runs do not decide: "+strings.Join(o.undecidedReasons(), "; "))
	}
	return strings.Join(text, "; ") + "."
}

func (o *Result) describeRateRule() string {
	switch {
	case !math.IsNaN(o.Exponent.Value):
		text := fmt.Sprintf("the best learning rate is proportional to the global batch to the power %s", english.FormatNumber(o.Exponent.Value))
		if !math.IsNaN(o.Exponent.Low) {
			text += " " + o.Exponent.FormatInterval()
		}
		text += fmt.Sprintf(" (batches %s)", english.JoinAnd(formatInts(o.fitted)))
		var left []string
		for _, r := range o.rateRulesInInterval() {
			left = append(left, r.words)
		}
		switch {
		case o.Rule == RuleOther:
			return text + ", which is not the exponent of the constant rate (0), the square-root rule (1/2) or the linear rule (1)"
		case o.Rule != "":
			return fmt.Sprintf("%s holds: %s", left[0], text)
		case len(left) > 1:
			return text + ", which is consistent with " + english.JoinOr(left)
		}
		return text
	case o.Rule != "":
		left, rejected := o.splitRejectedRules()
		return fmt.Sprintf("%s is the best of those tried: %s", left[0].words, o.describeRejectedRules(rejected))
	}
	left, rejected := o.splitRejectedRules()
	switch {
	case len(left)+len(rejected) == 0:
		return "no batch has enough learning rates to determine the best one, and no rate that a rule predicts was tried at a batch above the smallest"
	case len(left) == 0:
		return "every rule that was tried loses quality: " + o.describeRejectedRules(rejected)
	}
	var names []string
	for _, r := range left {
		names = append(names, r.words)
	}
	text := fmt.Sprintf("%s is the only rule whose rates were tried", names[0])
	if len(names) > 1 {
		text = english.JoinAnd(names) + " do equally well within noise"
	}
	if len(rejected) > 0 {
		text += "; " + o.describeRejectedRules(rejected)
	}
	return text
}

func (o *Result) describeRejectedRules(rows []RuleRow) string {
	var text []string
	for _, r := range rows {
		if math.IsInf(r.Worst.Value, 0) {
			text = append(text, fmt.Sprintf("%s diverges at batch %d", r.words, r.WorstBatch))
			continue
		}
		text = append(text, fmt.Sprintf("%s changes the %s at batch %d by %s %s", r.words, o.Measure, r.WorstBatch, english.FormatNumber(r.Worst.Value), r.Worst.FormatInterval()))
	}
	return english.JoinAnd(text)
}

func (o *Result) describeBatchLimit() string {
	first := o.Rows[0]
	at := func(batch int) RateRow {
		return o.Rows[slices.IndexFunc(o.Rows, func(r RateRow) bool { return r.GlobalBatch == batch })]
	}
	if o.Falls > 0 {
		r := at(o.Falls)
		if !observe.IsFinite(r.Quality.Value) {
			return fmt.Sprintf("the %s is maintained up to batch %d: at batch %d, every rate diverged", o.Measure, o.Good, o.Falls)
		}
		return fmt.Sprintf("the %s is maintained up to batch %d: at batch %d, it is worse than at batch %d by more than the noise (%s to %s, a change of %s %s)",
			o.Measure, o.Good, o.Falls, first.GlobalBatch, english.FormatNumber(first.Quality.Value), english.FormatNumber(r.Quality.Value), english.FormatNumber(r.Change.Value), r.Change.FormatInterval())
	}
	last := at(o.Good)
	text := fmt.Sprintf("at no batch up to the largest, %d, is the %s worse by more than the noise (%s at %d, %s at %d",
		o.Good, o.Measure, english.FormatNumber(first.Quality.Value), first.GlobalBatch, english.FormatNumber(last.Quality.Value), last.GlobalBatch)
	if math.IsNaN(last.Change.Low) {
		return text + "; single runs do not show the noise)"
	}
	return text + fmt.Sprintf(", a change of %s %s)", english.FormatNumber(last.Change.Value), last.Change.FormatInterval())
}

func (o *Result) undecidedReasons() (why []string) {
	var few, above, below []string
	for _, r := range o.Rows {
		name := strconv.Itoa(r.GlobalBatch)
		switch {
		case r.Rates < 3:
			few = append(few, name)
		case r.Bound == BoundHighest:
			above = append(above, name)
		case r.Bound == BoundLowest:
			below = append(below, name)
		}
	}
	switch {
	case len(few) > 0:
		why = append(why, fmt.Sprintf("%s %s fewer than three learning rates, too few to determine the best one", formatBatches(few), hasOrHave(few)))
	case len(above)+len(below) > 0:
		if len(above) > 0 {
			why = append(why, fmt.Sprintf("the best rate of %s is the highest tried, so a higher one may be better", formatBatches(above)))
		}
		if len(below) > 0 {
			why = append(why, fmt.Sprintf("the best rate of %s is the lowest tried, so a lower one may be better", formatBatches(below)))
		}
	case o.edgeShare > maxBoundaryOptimumFraction:
		why = append(why, fmt.Sprintf("in %s of the resamples a best rate is the highest or the lowest tried", english.FormatPercent(math.Round(100*o.edgeShare)/100)))
	}
	runs := o.Tried[0].Runs // of the batch and rate with the fewest
	for _, t := range o.Tried {
		runs = min(runs, t.Runs)
	}
	switch {
	case runs < 2:
		why = append(why, "single runs do not show the noise")
	case len(why) > 0: // other rates are needed first
	case o.Exponent.High > o.Exponent.Low:
		why = append(why, fmt.Sprintf("%s for each batch and rate are too few to determine the exponent", english.FormatCount(runs, "seed")))
	default:
		why = append(why, fmt.Sprintf("%s for each batch and rate show no difference", english.FormatCount(runs, "seed")))
	}
	return why
}

func formatBatches(names []string) string {
	if len(names) == 1 {
		return "batch " + names[0]
	}
	return "batches " + english.JoinAnd(names)
}

func hasOrHave(names []string) string {
	if len(names) == 1 {
		return "has"
	}
	return "have"
}

// FormatRate formats a learning rate for sentences.
func FormatRate(v float64) string {
	text := strconv.FormatFloat(v, 'g', 4, 64)
	exact, err := strconv.ParseFloat(text, 64)
	if err != nil || math.Abs(v) >= 1e-4 && math.Abs(v) < 1e6 {
		return strconv.FormatFloat(exact, 'f', -1, 64)
	}
	return text
}

func formatInts(values []int) []string {
	var out []string
	for _, v := range values {
		out = append(out, strconv.Itoa(v))
	}
	return out
}
