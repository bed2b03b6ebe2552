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

// Values of Result.How.
const (
	HowRates   = "best rates"
	HowQuality = "quality"
)

// maxEdgeShare is the largest share of resamples in which the best rate may be the highest
// or the lowest tried. Above it, the interval of the exponent is truncated and unreliable.
const maxEdgeShare = 0.05

// decideRule sets Rule and How if the runs support one rule and contradict the others.
func (o *Result) decideRule() {
	if !math.IsNaN(o.Exponent.Value) {
		left := o.rulesInInterval()
		switch {
		case math.IsNaN(o.Exponent.Low) || o.edgeShare > maxEdgeShare || len(left) > 1:
		case len(left) == 1:
			o.Rule, o.How = left[0].name, HowRates
		default:
			o.Rule, o.How = RuleOther, HowRates
		}
		return
	}
	left, rejected := o.divideRules()
	if len(left) == 1 && len(rejected) > 0 {
		o.Rule, o.How = left[0].Rule, HowQuality
	}
}

// rulesInInterval returns the rules whose exponent is in the interval of the fitted
// exponent.
func (o *Result) rulesInInterval() []rateRule {
	return slices.DeleteFunc(rateRules(), func(r rateRule) bool {
		return r.exponent < o.Exponent.Low || r.exponent > o.Exponent.High
	})
}

// divideRules divides the rules whose rates were tried into those whose loss of quality
// is within noise (left) and the others (rejected).
func (o *Result) divideRules() (left, rejected []RuleRow) {
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

// summarize describes the result in a sentence.
func (o *Result) summarize() string {
	text := []string{o.describeRule(), o.describeGoodBatches()}
	if o.Rule == "" {
		text = append(text, "the runs do not decide: "+strings.Join(o.next.why, "; "))
	}
	return strings.Join(text, "; ") + "."
}

// describeRule describes which rule the runs support.
func (o *Result) describeRule() string {
	switch {
	case !math.IsNaN(o.Exponent.Value):
		text := fmt.Sprintf("the best learning rate is proportional to the global batch to the power %s", english.Number(o.Exponent.Value))
		if !math.IsNaN(o.Exponent.Low) {
			text += " " + o.Exponent.FormatInterval()
		}
		text += fmt.Sprintf(" (batches %s)", english.List(formatInts(o.fitted)))
		var left []string
		for _, r := range o.rulesInInterval() {
			left = append(left, r.words)
		}
		switch {
		case o.Rule == RuleOther:
			return text + ", which is not the exponent of the constant rate (0), the square-root rule (1/2) or the linear rule (1)"
		case o.Rule != "":
			return fmt.Sprintf("%s holds: %s", left[0], text)
		case len(left) > 1:
			return text + ", which is consistent with " + english.Either(left)
		}
		return text
	case o.Rule != "":
		left, rejected := o.divideRules()
		return fmt.Sprintf("%s is the best of those tried: %s", ruleName(left[0].Rule), o.describeRejected(rejected))
	}
	left, rejected := o.divideRules()
	switch {
	case len(left)+len(rejected) == 0:
		return "no batch has enough learning rates to determine the best one, and no rate that a rule predicts was tried at a batch above the smallest"
	case len(left) == 0:
		return "every rule that was tried loses quality: " + o.describeRejected(rejected)
	}
	var names []string
	for _, r := range left {
		names = append(names, ruleName(r.Rule))
	}
	text := fmt.Sprintf("%s is the only rule whose rates were tried", names[0])
	if len(names) > 1 {
		text = english.List(names) + " do equally well within noise"
	}
	if len(rejected) > 0 {
		text += "; " + o.describeRejected(rejected)
	}
	return text
}

// ruleName returns the name of a rule in sentences.
func ruleName(rule string) string {
	for _, r := range rateRules() {
		if r.name == rule {
			return r.words
		}
	}
	return rule
}

// describeRejected describes how much quality the rejected rules lose.
func (o *Result) describeRejected(rows []RuleRow) string {
	var text []string
	for _, r := range rows {
		if math.IsInf(r.Worst.Value, 0) {
			text = append(text, fmt.Sprintf("%s diverges at batch %d", ruleName(r.Rule), r.WorstBatch))
			continue
		}
		text = append(text, fmt.Sprintf("%s changes the %s at batch %d by %s %s", ruleName(r.Rule), o.Measure, r.WorstBatch, english.Number(r.Worst.Value), r.Worst.FormatInterval()))
	}
	return english.List(text)
}

// describeGoodBatches describes up to which global batch the quality is maintained.
func (o *Result) describeGoodBatches() string {
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
			o.Measure, o.Good, o.Falls, first.GlobalBatch, english.Number(first.Quality.Value), english.Number(r.Quality.Value), english.Number(r.Change.Value), r.Change.FormatInterval())
	}
	last := at(o.Good)
	text := fmt.Sprintf("at no batch up to the largest, %d, is the %s worse by more than the noise (%s at %d, %s at %d",
		o.Good, o.Measure, english.Number(first.Quality.Value), first.GlobalBatch, english.Number(last.Quality.Value), last.GlobalBatch)
	if math.IsNaN(last.Change.Low) {
		return text + "; single runs do not show the noise)"
	}
	return text + fmt.Sprintf(", a change of %s %s)", english.Number(last.Change.Value), last.Change.FormatInterval())
}

// rateSweep contains the settings of the runs to start next.
type rateSweep struct {
	study   string
	config  string
	workers int
	each    int      // global batch divided by the config's batch: workers × accumulation
	fixed   []string // overrides that all runs share, as arguments of --set
	batches []int
	rates   []float64
	seeds   []int64
	why     []string // the reasons why these runs are needed
}

// Smallest and largest number of seeds that planSweep recommends.
const (
	minSeeds = 3
	maxSeeds = 12
)

// planSweep plans the runs that would decide between the rules, and stores their settings
// in the field next.
func (o *Result) planSweep() {
	if o.Rule != "" {
		return
	}
	n := &o.next
	o.copySettings(n)
	low, high := math.Inf(1), 0.0
	for _, r := range o.Rows {
		n.batches = append(n.batches, r.GlobalBatch)
	}
	for _, t := range o.Tried {
		low, high = min(low, t.LearningRate), max(high, t.LearningRate)
		if !slices.ContainsFunc(n.rates, func(v float64) bool { return math.Abs(v-t.LearningRate) < 1e-6*v }) {
			n.rates = append(n.rates, t.LearningRate)
		}
	}
	o.addRates(n, low, high)
	o.addSeeds(n)
	slices.Sort(n.rates)
	slices.Sort(n.batches)
}

// addRates adds learning rates to the sweep n, so that the best rate becomes neither the
// lowest nor the highest tried. low and high are the lowest and the highest rate tried.
func (o *Result) addRates(n *rateSweep, low, high float64) {
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
	if len(few) > 0 {
		n.why = append(n.why, fmt.Sprintf("%s %s fewer than three learning rates, too few to determine the best one", formatBatches(few), hasOrHave(few)))
		first := o.Rows[0]
		reach := float64(o.Rows[len(o.Rows)-1].GlobalBatch) / float64(first.GlobalBatch)
		_, at, _ := o.findBestRate(first.GlobalBatch, func(k int) float64 { return o.Tried[k].Quality.Value })
		best := o.Tried[at].LearningRate
		n.rates = n.rates[:0] // replace all rates, so that every batch has the same ones
		for rate := best / 2; rate < 2.1*reach*best; rate *= 2 {
			n.rates = append(n.rates, rate)
		}
		return
	}
	if len(above) > 0 {
		n.why = append(n.why, fmt.Sprintf("the best rate of %s is the highest tried, so a higher one may be better", formatBatches(above)))
		n.rates = append(n.rates, 2*high, 4*high)
	}
	if len(below) > 0 {
		n.why = append(n.why, fmt.Sprintf("the best rate of %s is the lowest tried, so a lower one may be better", formatBatches(below)))
		n.rates = append(n.rates, low/2, low/4)
	}
	if len(above)+len(below) == 0 && o.edgeShare > maxEdgeShare {
		n.why = append(n.why, fmt.Sprintf("in %s of the resamples a best rate is the highest or the lowest tried", english.Percent(math.Round(100*o.edgeShare)/100)))
		n.rates = append(n.rates, low/2, 2*high)
	}
}

// formatBatches formats a list of batches: "batch 4" or "batches 4 and 8".
func formatBatches(names []string) string {
	if len(names) == 1 {
		return "batch " + names[0]
	}
	return "batches " + english.List(names)
}

// hasOrHave returns "has" for one name and "have" for several.
func hasOrHave(names []string) string {
	if len(names) == 1 {
		return "has"
	}
	return "have"
}

// addSeeds adds seeds to the sweep n. Their number is chosen so that the interval of the
// exponent becomes narrow enough to exclude all rules but one, provided that the spread
// stays the same.
func (o *Result) addSeeds(n *rateSweep) {
	now := 0
	for _, t := range o.Tried {
		if now == 0 || t.Runs < now {
			now = t.Runs
		}
	}
	want := now
	switch half := (o.Exponent.High - o.Exponent.Low) / 2; {
	case now < 2:
		n.why = append(n.why, "single runs do not show the noise")
		want = minSeeds
	case len(n.why) > 0: // other rates are needed first
	case half > 0:
		const enough = 0.2 // half-width of an interval that contains only one of exponents 1/2 apart
		want = min(maxSeeds, max(now+1, int(math.Ceil(float64(now)*(half/enough)*(half/enough)))))
		n.why = append(n.why, fmt.Sprintf("%s for each batch and rate are too few to determine the exponent", english.Count(now, "seed")))
		if want == maxSeeds {
			n.why = append(n.why, "a wider range of batches determines it better than many more seeds")
			n.batches = append(n.batches, o.chooseWiderBatch(n.each))
		}
	default:
		n.why = append(n.why, fmt.Sprintf("%s for each batch and rate show no difference", english.Count(now, "seed")))
		want = min(maxSeeds, 2*now)
	}
	for seed := int64(1); len(n.seeds) < want; seed++ {
		if !slices.Contains(n.seeds, seed) {
			n.seeds = append(n.seeds, seed)
		}
	}
	slices.Sort(n.seeds)
}

// chooseWiderBatch returns a batch outside the range of the measured batches. It is half
// the smallest batch if the quality decreases at large batches and half the smallest
// batch is divisible by divisor; otherwise it is twice the largest batch.
func (o *Result) chooseWiderBatch(divisor int) int {
	if half := o.Rows[0].GlobalBatch / 2; o.Falls > 0 && half >= divisor && half%divisor == 0 {
		return half
	}
	return 2 * o.Rows[len(o.Rows)-1].GlobalBatch
}

// copySettings copies the study, config, workers and seeds of the existing runs to n.
func (o *Result) copySettings(n *rateSweep) {
	scaled := false
	for _, t := range o.Tried {
		for _, r := range t.places {
			if r.Info.Seed > 0 && !slices.Contains(n.seeds, r.Info.Seed) {
				n.seeds = append(n.seeds, r.Info.Seed)
			}
			if n.study == "" {
				n.study, n.config = r.Info.Study, r.Info.Study
				if name, ok := r.Info.Config["name"].(string); ok {
					n.config = name
				}
			}
			if n.workers == 0 || r.Info.Workers < n.workers {
				n.workers = r.Info.Workers
			}
			optimizer, _ := r.Info.Config["optimizer"].(map[string]any)
			if given, ok := optimizer["learning_rate"].(float64); ok && math.Abs(given-t.LearningRate) > 1e-6*given {
				scaled = true
			}
			accumulate, _ := r.Info.Config["accumulate"].(float64)
			n.each = max(n.each, int(accumulate))
		}
	}
	n.workers, n.each = max(1, n.workers), max(1, n.each)
	n.each *= n.workers
	for _, r := range o.Rows {
		if r.GlobalBatch%n.each != 0 {
			n.workers, n.each = 1, 1
			n.fixed = append(n.fixed, "accumulate=1")
			break
		}
	}
	if scaled { // the command gives the rates after scaling, so scaling is switched off
		n.fixed = append(n.fixed, "schedule.scaling=none")
		n.study += "-rates"
	}
}

// NextCommand returns the command that starts the runs still needed to decide between the
// rules, or "" if the existing runs decide. launch is the beginning of the command, such as
// "lockstep launch --config X"; if it is empty, the command names the config of the runs.
// The command skips existing runs (--resume).
func (o *Result) NextCommand(launch string) string {
	n := o.next
	if o.Rule != "" || len(n.batches) == 0 {
		return ""
	}
	command := launch
	if command == "" {
		command = "lockstep launch"
		if n.config != "" {
			command += " --config " + n.config
		}
	}
	for _, kv := range n.fixed {
		command += " --set " + kv
	}
	if n.study != "" {
		command += " --study " + n.study
	}
	batches := make([]int, len(n.batches))
	for i, b := range n.batches {
		batches[i] = b / n.each
	}
	var seeds, rates []string
	for _, s := range n.seeds {
		seeds = append(seeds, strconv.FormatInt(s, 10))
	}
	for _, r := range n.rates {
		rates = append(rates, FormatRate(r))
	}
	return fmt.Sprintf("%s --workers %d --seeds %s --vary batch=%s --vary optimizer.learning_rate=%s --resume",
		command, n.workers, strings.Join(seeds, ","), strings.Join(formatInts(batches), ","), strings.Join(rates, ","))
}

// FormatRate formats a learning rate for sentences and for commands.
func FormatRate(v float64) string {
	text := strconv.FormatFloat(v, 'g', 4, 64)
	exact, err := strconv.ParseFloat(text, 64)
	if err != nil || math.Abs(v) >= 1e-4 && math.Abs(v) < 1e6 {
		return strconv.FormatFloat(exact, 'f', -1, 64)
	}
	return text
}

// formatInts formats integers in decimal.
func formatInts(values []int) []string {
	var out []string
	for _, v := range values {
		out = append(out, strconv.Itoa(v))
	}
	return out
}
