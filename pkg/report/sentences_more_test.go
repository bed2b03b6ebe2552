package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

func atoi(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return math.MinInt
	}
	return n
}

func number64(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return v
}

// pooledSentence checks a comparison over all worker counts against the ratios
// of the medians; p is counted over all ways to sign the ranks.
func (v *smallStudy) pooledSentence(text string) bool {
	m := said(`^(.+) runs (\S+) times as fast as (.+?) in the median of (\d+) worker counts \((\S+) to (\S+)\); paired test over the counts \(Wilcoxon's signed-rank\), p (= \S+|< 0\.0001)\. (.+)$`, text)
	if same := said(`^(.+) is as fast as (.+) at each of (\d+) worker counts\. (.+)$`, text); same != nil {
		m = []string{"", same[1], "1", same[2], same[3], "1", "1", "", same[4]}
	}
	if m == nil {
		return false
	}
	a, b, verdict := m[1], m[3], m[8]
	var ratios []float64
	up, down := 0, 0
	for _, n := range v.counts(a) {
		if !slices.Contains(v.counts(b), n) {
			continue
		}
		ratio := v.speed(a, n) / v.speed(b, n)
		if math.Abs(ratio-1) < 1e-12 {
			ratio = 1
		}
		ratios = append(ratios, ratio)
		if ratio > 1 {
			up++
		} else if ratio < 1 {
			down++
		}
	}
	if len(ratios) != atoi(m[4]) || m[7] == "" && up+down > 0 || !near(m[2], median(ratios)) || !near(m[5], slices.Min(ratios)) || !near(m[6], slices.Max(ratios)) {
		v.failf("%q, but the ratios are %v", text, ratios)
		return true
	}
	p := math.NaN()
	if m[7] != "" {
		p = signedRankP(ratios)
		if printed := number64(strings.TrimPrefix(m[7], "= ")); m[7] != "< 0.0001" && math.Abs(printed-p) > 0.06*p {
			v.failf("%q, but p of %v is %g", text, ratios, p)
		}
	}
	shown := v.shownAt(a, b)
	switch {
	case verdict == fmt.Sprintf("Yes: %s is faster, at %d of %d counts.", a, up, len(ratios)):
		v.kinds["pooled faster"]++
		if !(median(ratios) > 1) || up <= down || !(p < 0.05) && shown[scaling.VerdictFaster] < len(ratios) || shown[scaling.VerdictSlower] > 0 {
			v.failf("%q, but the ratios are %v, p %g, and each alone says %v", text, ratios, p, shown)
		}
	case verdict == fmt.Sprintf("No: %s is slower, at %d of %d counts.", a, down, len(ratios)):
		v.kinds["pooled slower"]++
		if !(median(ratios) < 1) || down <= up || !(p < 0.05) && shown[scaling.VerdictSlower] < len(ratios) || shown[scaling.VerdictFaster] > 0 {
			v.failf("%q, but the ratios are %v, p %g, and each alone says %v", text, ratios, p, shown)
		}
	case verdict == "The worker counts together show no difference beyond chance.":
		v.kinds["pooled none"]++
		if shown[scaling.VerdictFaster]+shown[scaling.VerdictSlower] > 0 {
			v.failf("%q, but each alone says %v", text, shown)
		}
	case strings.HasPrefix(verdict, "So few worker counts cannot show a difference"):
		v.kinds["pooled unknown"]++
		if len(ratios) >= 6 && up+down >= 6 || shown[scaling.VerdictUnknown] != len(ratios) {
			v.failf("%q, but there are %d counts, and each alone says %v", text, len(ratios), shown)
		}
	default:
		v.kinds["pooled mixed"]++
		d := said(`^It depends on the worker count: beyond chance, (.+) is faster at (\d+) and slower at (\d+) of the counts\.$`, verdict)
		if d == nil || atoi(d[2]) != shown[scaling.VerdictFaster] || atoi(d[3]) != shown[scaling.VerdictSlower] {
			v.failf("%q, but each alone says %v", text, shown)
		}
	}
	return true
}

// shownAt counts the verdicts of the table's rows.
func (v *smallStudy) shownAt(a, b string) map[string]int {
	c, err := v.study.CompareSeries(a, b)
	check(v.t, err)
	out := map[string]int{}
	for _, r := range c.Rows {
		out[r.Verdict]++
	}
	return out
}

// signedRankP is the exact p of the signed-rank test, by trying all signs.
func signedRankP(ratios []float64) float64 {
	var d []float64
	for _, r := range ratios {
		if r != 1 {
			d = append(d, math.Log(r))
		}
	}
	rank := make([]float64, len(d))
	for i, x := range d {
		for _, y := range d {
			switch gap := math.Abs(y) - math.Abs(x); {
			case math.Abs(gap) < 1e-12:
				rank[i] += 0.5
			case gap < 0:
				rank[i]++
			}
		}
		rank[i] += 0.5
	}
	expected := float64(len(d)*(len(d)+1)) / 4
	sum := 0.0
	for i, x := range d {
		if x > 0 {
			sum += rank[i]
		}
	}
	far := 0
	for signs := range 1 << len(d) {
		s := 0.0
		for i := range d {
			if signs>>i&1 == 1 {
				s += rank[i]
			}
		}
		if math.Abs(s-expected) >= math.Abs(sum-expected)-1e-9 {
			far++
		}
	}
	return float64(far) / float64(int(1)<<len(d))
}

// pairSentence checks a comparison at one worker count.
func (v *smallStudy) pairSentence(text string) bool {
	m := said(`^(.+) runs (\S+) times as fast as (.+) at (\d+) workers? \((throughput|seconds per epoch)\), (.+)$`, text)
	if m == nil {
		return false
	}
	n := atoi(m[4])
	ratio := v.speed(m[1], n) / v.speed(m[3], n)
	if !near(m[2], ratio) {
		v.failf("%q, but it is %g", text, ratio)
	}
	seedsA, seedsB := len(v.rates(m[1], n)), len(v.rates(m[3], n))
	if d := said(`^but with (\d+) runs? of .+ and (\d+) runs? of .+ the difference may be due to chance: run at least 3 seeds of each\.$`, m[6]); d != nil {
		v.kinds["single runs"]++
		if atoi(d[1]) != seedsA || atoi(d[2]) != seedsB || min(seedsA, seedsB) > 1 {
			v.failf("%q, but there are %d and %d runs", text, seedsA, seedsB)
		}
		return true
	}
	d := said(`^95 % interval \[(\S+), (\S+)\], n = (\d+) and (\d+); Welch's t-test of the logarithms, p (?:= \S+|< 0\.0001)(?:; exact .+?\))?\. (.+)$`, m[6])
	if d == nil || atoi(d[3]) != seedsA || atoi(d[4]) != seedsB || min(seedsA, seedsB) < 2 {
		v.failf("no pattern knows %q", text)
		return true
	}
	low, high := number64(d[1]), number64(d[2])
	if !(low <= ratio || near(d[1], ratio)) || !(ratio <= high || near(d[2], ratio)) {
		v.failf("%q: outside of its interval", text)
	}
	switch d[5] {
	case "Yes: " + m[1] + " is faster.":
		v.kinds["faster"]++
		if !(ratio > 1 && low >= 1) {
			v.failf("%q, but the ratio is %g", text, ratio)
		}
	case "No: " + m[1] + " is slower.":
		v.kinds["slower"]++
		if !(ratio < 1 && high <= 1) {
			v.failf("%q, but the ratio is %g", text, ratio)
		}
	case "The runs show no difference: the interval contains 1.":
		v.kinds["no difference"]++
		if low > 1 || high < 1 {
			v.failf("%q, but the interval excludes 1", text)
		}
	case "The runs show no difference: the interval excludes 1, but by the test the difference may be due to chance.":
		v.kinds["no difference by the test"]++
		if low < 1 && high > 1 {
			v.failf("%q, but the interval contains 1", text)
		}
	default:
		v.failf("no pattern knows %q", text)
	}
	return true
}

// comparisons checks each row of each pair of series.
func (v *smallStudy) comparisons() {
	for _, a := range v.study.Series() {
		for _, b := range v.study.Series() {
			if a == b {
				continue
			}
			c, err := v.study.CompareSeries(a, b)
			if err != nil {
				continue // nothing in common
			}
			for _, r := range c.Rows {
				if !v.pairSentence(r.Sentence) {
					v.failf("no pattern knows %q", r.Sentence)
				}
			}
			for _, p := range c.Pooled {
				if !v.pooledSentence(p.Sentence) {
					v.failf("no pattern knows %q", p.Sentence)
				}
			}
		}
	}
}

func (v *smallStudy) bottleneckSentence(text string) {
	m := said(`^(.+) at (\d+) workers?: (.+)\.$`, text)
	if m == nil {
		v.failf("no pattern knows %q", text)
		return
	}
	b, err := v.study.Bottleneck()
	check(v.t, err)
	i := slices.IndexFunc(b.Rows, func(r scaling.BottleneckRow) bool { return r.Sentence == text })
	r := b.Rows[i]
	io, synthetic, full := r.IO.Value, r.Synthetic.Value, r.Full.Value
	slower, faster := min(io, synthetic), max(io, synthetic)
	if d := said(`^(the input|the computation) is the limit: FULL reaches (\S+ %) of the (\S+) samples/s that (?:the input|the computation) alone allows(.*)$`, m[3]); d != nil {
		v.kinds[strings.TrimPrefix(d[1], "the ")]++
		if (d[1] == "the input") != (io < synthetic) || r.Bound == scaling.BoundUnclear || !near(d[3], slower) || !near(d[2], full/slower) {
			v.failf("%q, but input %g, computation %g, both %g", text, io, synthetic, full)
		}
		if strings.Contains(d[4], "gains nothing") == strings.Contains(d[4], "interfere with each other") {
			v.failf("%q gives two advices or none", text)
		}
		if h := said(`training would be at most (\S+) times as fast$`, d[4]); h != nil && (!near(h[1], faster/full) || !(faster > full)) {
			v.failf("%q, but the faster is %g", text, faster)
		}
		return
	}
	switch {
	case strings.Contains(m[3], "which is impossible"):
		v.kinds["impossible"]++
		if !(full > slower) || r.Bound != scaling.BoundUnclear {
			v.failf("%q, but FULL is %g of %g", text, full, slower)
		}
	case strings.Contains(m[3], "neither is clearly the limit"):
		v.kinds["unclear"]++
		if r.Bound != scaling.BoundUnclear || r.IO.Max < r.Synthetic.Min || r.Synthetic.Max < r.IO.Min {
			v.failf("%q, but the trials are apart: %v and %v", text, r.IO, r.Synthetic)
		}
	default:
		v.failf("no pattern knows %q", text)
	}
}

func (v *smallStudy) communicationSentence(text string) {
	m := said(`^(.+?): communication costs (?:no speed at (\d+) workers?: with it the series is (\S+ %) faster than without|(\S+ %) of the speed at (\d+) workers?)(?: \((\S+ %) to (\S+ %)(: the runs do not show that it costs anything)?\))?(?:, and (none|\S+ %) at (\d+) workers)?\. Compared: (throughput|seconds per epoch|the trials SYNTHETIC, which train on data in memory)\.$`, text)
	if m == nil {
		v.failf("no pattern knows %q", text)
		return
	}
	speed, compared := v.speed, "seconds per epoch"
	switch {
	case len(v.all[0].Trials) > 0:
		speed, compared = v.synthetic, "the trials SYNTHETIC, which train on data in memory"
		v.kinds["communication of trials"]++
	case v.all[0].Epochs[0].Samples > 0:
		compared = "throughput"
	}
	if m[11] != compared {
		v.failf("%q, but %s was compared", text, compared)
	}
	cost := func(n int) float64 {
		return 1 - speed(m[1], n)/speed(m[1]+" without communication", n)
	}
	switch {
	case m[2] != "":
		v.kinds["no cost"]++
		if c := cost(atoi(m[2])); !near(m[3], -c) || c > 0 {
			v.failf("%q, but it costs %g", text, c)
		}
	case !near(m[4], cost(atoi(m[5]))) || cost(atoi(m[5])) < 0:
		v.failf("%q, but it costs %g", text, cost(atoi(m[5])))
	default:
		v.kinds["communication"]++
	}
	if low, high := number64(strings.TrimSuffix(m[6], " %")), number64(strings.TrimSuffix(m[7], " %")); m[6] != "" && (low <= 0 && high >= 0) != (m[8] != "") {
		v.failf("%q: the interval does not fit", text)
	}
	if c := cost(atoi(m[10])); m[10] != "" && (m[9] == "none") != (c < 0) || m[9] != "" && c >= 0 && !near(m[9], c) {
		v.failf("%q, but it costs %g", text, cost(atoi(m[10])))
	}
}

func (v *smallStudy) qualitySentence(text string) {
	if m := said(`^(.+): iou (\S+) at (\d+) workers?(?: \(global batch \d+\))?\.$`, text); m != nil {
		v.kinds["quality at one count"]++
		if !near(m[2], v.iou(m[1], atoi(m[3]))) {
			v.failf("%q, but it is %g", text, v.iou(m[1], atoi(m[3])))
		}
		return
	}
	if strings.Contains(text, "train_loss") { // no two points have an IoU
		return
	}
	m := said(`^(.+): iou goes from (\S+) at (\d+) workers?(?: \(global batch (\d+)\))? to (\S+) at (\d+) workers?(?: \(global batch (\d+)\))?(?: \(single runs: [^)]*\))?(?:, a change of (\S+) \[(\S+), (\S+)\]( that may be due to chance)?)?(?:; the largest loss is from (\d+) to (\d+) workers? \((\S+) to (\S+)\))?\.$`, text)
	if m == nil {
		v.failf("no pattern knows %q", text)
		return
	}
	v.kinds["quality"]++
	from, to := v.iou(m[1], atoi(m[3])), v.iou(m[1], atoi(m[6]))
	if !near(m[2], from) || !near(m[5], to) {
		v.failf("%q, but it goes from %g to %g", text, from, to)
	}
	if m[8] != "" {
		low, high := number64(m[9]), number64(m[10])
		onEdge := low == 0 || high == 0 // an end that was rounded to 0 may be on either side
		if !near(m[8], to-from) || !onEdge && (low < 0 && high > 0) != (m[11] != "") {
			v.failf("%q, but the change is %g", text, to-from)
		}
	}
	worst, at, next := 0.0, 0, 0
	previous := 0
	for _, n := range v.countsWithIoU(m[1]) {
		if step := v.iou(m[1], n) - v.iou(m[1], previous); previous > 0 && step < worst {
			worst, at, next = step, previous, n
		}
		previous = n
	}
	if (m[12] != "") != (at > 0) || at > 0 && (atoi(m[12]) != at || atoi(m[13]) != next || !near(m[14], v.iou(m[1], at)) || !near(m[15], v.iou(m[1], next))) {
		v.failf("%q, but the worst step is from %d to %d (%g)", text, at, next, worst)
	} else if at > 0 {
		v.kinds["worse"]++
	}
}

func (v *smallStudy) countsWithIoU(series string) []int {
	var out []int
	for _, r := range v.all {
		if n := r.Info.Workers; r.Info.Series == series && !slices.Contains(out, n) && !math.IsNaN(v.iou(series, n)) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

func (v *smallStudy) costSentence(text string) {
	c, err := v.study.Cost(0)
	if err != nil {
		return // the sentence is the error
	}
	v.kinds["cost"]++
	row := func(series, workers string) scaling.CostRow {
		i := slices.IndexFunc(c.Rows, func(r scaling.CostRow) bool { return r.Series == series && r.Workers == atoi(workers) })
		if i < 0 {
			v.failf("%q, but there is no such row", text)
			return c.Rows[0]
		}
		return c.Rows[i]
	}
	fastest, cheapest := c.Rows[0], c.Rows[0]
	for _, r := range c.Rows {
		if r.Hours.Value < fastest.Hours.Value {
			fastest = r
		}
		if r.DeviceHours.Value < cheapest.DeviceHours.Value {
			cheapest = r
		}
	}
	m := said(`^(.+) at (\d+) workers? is the fastest and the cheapest \(.*\)\.$`, text)
	if m != nil {
		if r := row(m[1], m[2]); r.Hours.Value > fastest.Hours.Value || r.DeviceHours.Value > cheapest.DeviceHours.Value {
			v.failf("%q, but %s at %d is the fastest", text, fastest.Series, fastest.Workers)
		}
		return
	}
	m = said(`^(.+) at (\d+) workers? is the fastest \(.*?\), and (.+) at (\d+) workers? is the cheapest \(.*?\); basis: .*\. The fastest is (\S+) times as fast and costs (\S+) times as many device-hours\.$`, text)
	if m == nil {
		v.failf("no pattern knows %q", text)
		return
	}
	f, ch := row(m[1], m[2]), row(m[3], m[4])
	if f.Hours.Value > fastest.Hours.Value || ch.DeviceHours.Value > cheapest.DeviceHours.Value ||
		!near(m[5], ch.Hours.Value/f.Hours.Value) || !near(m[6], f.DeviceHours.Value/ch.DeviceHours.Value) {
		v.failf("%q does not fit its table", text)
	}
}

// projectBudget is the budget of the project, in device-hours.
const projectBudget = 0.03

// budgetSentence checks a budget for a project of as many epochs as a run has, and as many seeds as one worker
// count has.
func (v *smallStudy) budgetSentence(text string) {
	c, err := v.study.Cost(0)
	if err != nil {
		return
	}
	v.kinds["budget"]++
	seeds := 0.0
	for _, p := range v.study.Points {
		seeds = max(seeds, float64(p.Runs))
	}
	epochs := 0.0
	for _, run := range v.all {
		if run.Info.Status != runs.StatusFailed {
			epochs = max(epochs, float64(len(run.Epochs)))
		}
	}
	m := said(`^(.+): with 0\.030\S* device-hours, use (\d+) workers? \(measured: (\S+) h, (\S+) device-hours\) for ([345]) epochs with (1 seed|each of \d+ seeds), both assumed from the logs\.(?: According to (.+?), (\d+) workers? would take (\S+) h and (\S+) device-hours\.)?$`, text)
	if m == nil {
		if !strings.Contains(text, "device-hours are not enough") {
			v.failf("no pattern knows %q", text)
		}
		return
	}
	for _, r := range c.Rows {
		project := epochs * seeds
		if c.Rows[0].Basis != "an epoch" {
			project = seeds
		}
		if r.Series == m[1] && r.DeviceHours.Value*project <= projectBudget && r.Hours.Value*project < number64(m[3])*0.99 {
			v.failf("%q, but %d workers take %g h", text, r.Workers, r.Hours.Value*project)
		}
		if r.Series == m[1] && r.Workers == atoi(m[2]) && math.Abs(number64(m[3])-r.Hours.Value*project) > 0.01*number64(m[3]) {
			v.failf("%q, but they take %g h", text, r.Hours.Value*project)
		}
	}
	if want := fmt.Sprintf("each of %g seeds", seeds); m[6] != want && !(seeds == 1 && m[6] == "1 seed") || number64(m[5]) != epochs {
		v.failf("%q, but the logs have %g epochs and %g seeds", text, epochs, seeds)
	}
	if m[7] != "" {
		v.kinds["predicted"]++
		fits, err := v.study.Fit(m[1])
		if err != nil || fits.SupportedLaw() == nil || !strings.Contains(fits.Sentence, m[7]) || number64(m[10]) > 1.01*projectBudget {
			v.failf("%q by a law that is not named: %v", text, err)
		}
	}
}

func (v *smallStudy) problemSentence(text string) {
	v.kinds["problems"]++
	failed := 0
	for _, r := range v.all {
		if r.Info.Status == runs.StatusFailed {
			failed++
		}
	}
	m := said(`^(\d+) things? could not be used or must be known(?:; (\d+) runs? failed or were cancelled and do not count)?(?:; the loss of (\d+) runs? is no number)?\.$`, text)
	if m == nil || m[2] != "" && atoi(m[2]) != failed || m[2] == "" && failed > 0 || m[3] != "" {
		v.failf("%q, but %d runs failed", text, failed)
	}
}

// gates holds a copy of the study, as fast, slower or faster, to its gate.
func (v *smallStudy) gates() {
	factor := []float64{1, 1.3, 0.8}[v.rng.IntN(3)]
	var all []runs.Run
	for _, r := range v.all {
		r.Dir += "-again"
		r.Epochs = slices.Clone(r.Epochs)
		for i := range r.Epochs {
			r.Epochs[i].Seconds *= factor
		}
		all = append(all, r)
	}
	candidate, err := scaling.FromRuns(all)
	check(v.t, err)
	g, err := scaling.Gate(v.study, candidate, 0.05)
	if err != nil {
		return // no run has a time
	}
	v.kinds[g.Outcome]++
	if factor > 1 && g.Outcome == scaling.OutcomePass || factor <= 1 && g.Outcome == scaling.OutcomeRegression {
		v.failf("%q, but the candidate's times are %g times as long", g.Sentence, factor)
	}
	for _, r := range g.Rows {
		m := said(`^(.+) at (\d+) workers?: (\S+ %) (slower|faster)(?:, (?:between (\S+ %) (slower|faster) and (\S+ %) (slower|faster): (.+)|from .+))?$`, r.Sentence)
		wrong := m == nil || !near(m[3], math.Abs(1-1/factor)) || factor != 1 && (m[4] == "slower") != (factor > 1)
		switch {
		case wrong:
		case r.Outcome == scaling.OutcomeRegression:
			wrong = factor < 1.05 || !strings.Contains(m[9], "more than the allowed 5 %")
		case r.Outcome == scaling.OutcomePass:
			wrong = factor > 1.05 || !strings.Contains(m[9], "within the allowed 5 %")
		}
		if wrong {
			v.failf("%s: %q, but the candidate's times are %g times as long", r.Outcome, r.Sentence, factor)
		}
	}
}

func (v *smallStudy) timeTo() {
	x, err := v.study.TimeTo("train_loss", 0.52)
	if err != nil {
		return
	}
	v.kinds["time to"]++
	m := said(`^train_loss ≤ 0\.520: reached by (\d+) of (\d+) runs?(?:, soonest by (.+) at (\d+) workers?: (\S+) s(?: \[(\S+), (\S+)\])?, n = (\d+))?$`, x.Sentence)
	if m == nil {
		v.failf("no pattern knows %q", x.Sentence)
		return
	}
	reached, all := 0, 0
	byPoint := map[string][]float64{}
	whole := map[string]bool{}
	for _, r := range v.all {
		if r.Info.Status == runs.StatusFailed {
			continue
		}
		all++
		key := r.Info.Series + " at " + strconv.Itoa(r.Info.Workers)
		if _, ok := whole[key]; !ok {
			whole[key] = true
		}
		seconds, there := 0.0, false
		for _, e := range r.Epochs {
			seconds += e.Seconds
			if e.TrainLoss <= 0.52 {
				there = true
				break
			}
		}
		if there {
			reached++
		}
		if there && !math.IsNaN(seconds) {
			byPoint[key] = append(byPoint[key], seconds)
		} else {
			whole[key] = false
		}
	}
	best, where := math.Inf(1), ""
	for key, times := range byPoint {
		if whole[key] && median(times) < best {
			best, where = median(times), key
		}
	}
	if atoi(m[1]) != reached || atoi(m[2]) != all {
		v.failf("%q, but %d of %d reached it", x.Sentence, reached, all)
	}
	if (m[3] != "") != (where != "") || where != "" && (!near(m[5], best)) {
		v.failf("%q, but %s is the soonest with %g s", x.Sentence, where, best)
	}
}
