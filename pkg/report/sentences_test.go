package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// TestSentencesAgreeWithTheirTables makes 500 small studies as people have them
// (few worker counts, few seeds, noise, flat and superlinear speed-ups, missing
// values, unequal numbers of epochs, padding, shared cores, disturbed runs) and reads every sentence that the program says of them as a person
// would: who is faster, by how much, which law, how much of the ideal. Each
// claim is compared with the median over the seeds of the runs that the study
// was made of. A sentence that no pattern knows fails too, so that a new one
// cannot go unchecked.
func TestSentencesAgreeWithTheirTables(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	kinds := map[string]int{}
	const studies = 500
	for seed := range uint64(studies) {
		v := &smallStudy{t: t, rng: rand.New(rand.NewPCG(seed, 6)), seed: seed, kinds: kinds}
		v.make()
		v.check()
	}
	// Each kind of claim must have been met, or the test proves nothing.
	for _, kind := range []string{
		"speed-up", "not distinguishable", "speed", "shared cores", "disturbed", "linear", "amdahl", "gustafson", "usl", "no law", "too few counts", "half", "peak",
		"pooled faster", "pooled slower", "pooled none", "pooled unknown", "pooled mixed", "faster", "slower", "no difference", "single runs",
		"quality", "quality at one count", "worse", "input", "computation", "unclear", "impossible", "communication", "communication of trials", "no cost",
		"pass", "regression", "cannot tell", "cost", "budget", "predicted", "time to", "problems", "weak", "strong",
	} {
		if kinds[kind] == 0 {
			t.Errorf("no study of %d led to a sentence of the kind %q", studies, kind)
		}
	}
	t.Logf("sentences by kind: %v", kinds)
}

// smallStudy is a study made at random, with its own reckoning of what it shows.
type smallStudy struct {
	t     *testing.T
	rng   *rand.Rand
	seed  uint64
	kinds map[string]int

	all   []runs.Run
	study *scaling.Study

	epochs  int // most epochs of a run; at least 3
	padding int // samples of padding per epoch
	cores   int // of the machine; 0: unknown
}

func (v *smallStudy) failf(format string, a ...any) {
	v.t.Helper()
	v.t.Errorf("study %d: %s", v.seed, fmt.Sprintf(format, a...))
}

// make makes one to three series.
func (v *smallStudy) make() {
	names := []string{"ddp", "ddp without communication", "PyTorch Horovod"}[:1+v.rng.IntN(3)]
	counts := []int{1, 2, 3, 4, 6, 8, 12, 16}
	v.rng.Shuffle(len(counts), func(i, j int) { counts[i], counts[j] = counts[j], counts[i] })
	counts = counts[:1+v.rng.IntN(8)]
	slices.Sort(counts)
	seeds := 1 + v.rng.IntN(5)
	noise := []float64{0, 0.005, 0.03, 0.2}[v.rng.IntN(4)]
	strong, measured, trials := v.rng.IntN(2) == 0, v.rng.IntN(4), v.rng.IntN(3) == 0
	v.epochs = []int{3, 3, 5}[v.rng.IntN(3)]
	v.padding = []int{0, 0, 2, 40}[v.rng.IntN(4)]
	v.cores = []int{0, 2, 4, 16}[v.rng.IntN(4)]
	for k, name := range names {
		law := v.law()
		factor := []float64{1, 1, 1.02, 1.5, 0.7}[v.rng.IntN(5)]
		iou := -0.1 + 0.2*v.rng.Float64() // for each doubling
		for _, n := range counts {
			if len(counts) > 2 && v.rng.IntN(12) == 0 {
				continue // a series that lacks a count
			}
			for s := range seeds {
				samples := 4800
				if !strong {
					samples = 240 * n
				}
				rate := 100 * factor * law(float64(n)) * math.Exp(noise*v.rng.NormFloat64())
				r := v.run(name, n, s+1, samples, rate, measured)
				r.Dir = fmt.Sprintf("run-%d-n%d-s%d", k, n, s+1)
				r.Info.BatchPerWorker = 4
				if strong {
					r.Info.BatchPerWorker, r.Info.GlobalBatch = 0, 48
				}
				if v.rng.IntN(3) > 0 {
					last := &r.Epochs[len(r.Epochs)-1]
					last.IoU = min(1, max(0, 0.7+iou*math.Log2(float64(n))+0.02*v.rng.NormFloat64()))
				}
				if trials {
					r.Trials = v.trials()
				}
				v.all = append(v.all, r)
			}
		}
	}
	study, err := scaling.FromRuns(v.all)
	check(v.t, err)
	v.study = study
}

// law is one of the shapes that throughput has over the workers.
func (v *smallStudy) law() func(float64) float64 {
	s, k := 0.3*v.rng.Float64(), 0.01*v.rng.Float64()
	return []func(float64) float64{
		func(n float64) float64 { return n },
		func(n float64) float64 { return n / (1 + s*(n-1)) },
		func(n float64) float64 { return n - 2*s*(n-1) },
		func(n float64) float64 { return n / (1 + s*(n-1) + k*n*(n-1)) },
		func(float64) float64 { return 1 },
		func(n float64) float64 { return math.Pow(n, 1.3) },
		func(n float64) float64 { return math.Pow(n, 0.66) },
		func(n float64) float64 { return math.Pow(n, -0.3) },
	}[v.rng.IntN(8)]
}

func (v *smallStudy) run(series string, workers, seed, samples int, rate float64, measured int) runs.Run {
	nan := math.NaN()
	r := runs.Run{Kind: "run folder", Info: runs.Info{Study: "small", Series: series, Workers: workers, Seed: int64(seed), Status: runs.StatusDone}}
	if v.rng.IntN(25) == 0 {
		r.Info.Status, r.Info.Error = runs.StatusFailed, "rank 1 was killed"
	}
	r.Info.Nodes, r.Info.ThreadsPerWorker, r.Info.Host.Cores = 1, 1, v.cores
	disturbed := 0.0
	if v.rng.IntN(8) == 0 {
		disturbed = 0.5
	}
	for e := 1; e <= 3+v.rng.IntN(v.epochs-2); e++ {
		if disturbed > 0 || v.rng.IntN(4) == 0 { // many runs have not recorded the load
			r.Loads = append(r.Loads, runs.Load{Epoch: e, Seconds: 10, Cores: 16, OtherSeconds: 10 * disturbed})
		}
		epoch := runs.Epoch{
			Epoch: e, Seconds: float64(samples) / rate, Samples: samples + v.padding, PaddingSamples: v.padding, TrainLoss: 1 / float64(e) * (1 + 0.1*v.rng.Float64()), ValLoss: nan, IoU: nan, Dice: nan,
			SamplesPerSecond: nan, ValSeconds: nan, LearningRate: nan, Accuracy: nan, ValAccuracy: nan,
		}
		if e == 1 {
			epoch.Seconds *= 2 // the first pays for the start
		}
		if measured == 0 { // the logs contain no numbers of samples
			epoch.Samples, epoch.PaddingSamples = 0, 0
		}
		if v.rng.IntN(30) == 0 {
			epoch.Seconds = nan
		}
		r.Epochs = append(r.Epochs, epoch)
	}
	return r
}

func (v *smallStudy) trials() []runs.Trial {
	rate := func(mean float64) runs.Trial {
		spread := 0.1 * v.rng.Float64()
		var rates []float64
		for range 3 {
			rates = append(rates, mean*(1+spread*v.rng.NormFloat64()))
		}
		return runs.Trial{Rate: (rates[0] + rates[1] + rates[2]) / 3, Rates: rates, Spread: math.NaN()}
	}
	io, synthetic := rate(50+100*v.rng.Float64()), rate(50+100*v.rng.Float64())
	full := rate(min(io.Rate, synthetic.Rate) * (0.5 + 0.7*v.rng.Float64()))
	io.Name, synthetic.Name, full.Name = "IO", "SYNTHETIC", "FULL"
	return []runs.Trial{io, synthetic, full}
}

// rates returns the throughput of the runs of a series at a worker count, computed here
// from the epochs. If the logs contain no numbers of samples, it returns epochs per second.
func (v *smallStudy) rates(series string, workers int) []float64 {
	var out []float64
	for _, r := range v.all {
		if r.Info.Series != series || r.Info.Workers != workers || r.Info.Status == runs.StatusFailed {
			continue
		}
		seconds, samples := 0.0, 0.0
		for _, e := range r.Epochs[1:] {
			if e.Seconds > 0 {
				seconds += e.Seconds
				samples += max(1, float64(e.Samples-e.PaddingSamples))
			}
		}
		if seconds > 0 {
			out = append(out, samples/seconds)
		}
	}
	return out
}

// speed is their middle as the study's rule takes it: of rates the median, of
// seconds the reciprocal of the median of the seconds.
func (v *smallStudy) speed(series string, workers int) float64 {
	rates := v.rates(series, workers)
	if v.all[0].Epochs[0].Samples > 0 {
		return median(rates)
	}
	for i := range rates {
		rates[i] = 1 / rates[i]
	}
	return 1 / median(rates)
}

// synthetic is the median rate of the trials SYNTHETIC of a series at a worker count.
func (v *smallStudy) synthetic(series string, workers int) float64 {
	var rates []float64
	for _, r := range v.all {
		if r.Info.Series == series && r.Info.Workers == workers && r.Info.Status != runs.StatusFailed {
			rates = append(rates, r.Trials[1].Rate)
		}
	}
	return median(rates)
}

// counts are the worker counts at which a series has a speed.
func (v *smallStudy) counts(series string) []int {
	var out []int
	for _, r := range v.all {
		if n := r.Info.Workers; r.Info.Series == series && !slices.Contains(out, n) && len(v.rates(series, n)) > 0 {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// iou is the median of the last IoU.
func (v *smallStudy) iou(series string, workers int) float64 {
	var all []float64
	for _, r := range v.all {
		last := r.Epochs[len(r.Epochs)-1].IoU
		if r.Info.Series == series && r.Info.Workers == workers && r.Info.Status != runs.StatusFailed && !math.IsNaN(last) {
			all = append(all, last)
		}
	}
	return median(all)
}

// said reads a sentence by a pattern and returns its parts, nil if it is not one.
func said(pattern, text string) []string {
	r, ok := patterns[pattern]
	if !ok {
		r = regexp.MustCompile(pattern)
		patterns[pattern] = r
	}
	return r.FindStringSubmatch(text)
}

// patterns are compiled once: there are ten thousand sentences.
var patterns = map[string]*regexp.Regexp{}

// near reports whether a printed number is the value, to the digits printed.
func near(printed string, value float64) bool {
	v, err := strconv.ParseFloat(strings.TrimSuffix(printed, " %"), 64)
	if err != nil {
		return false
	}
	if strings.HasSuffix(printed, " %") {
		return math.Abs(v-100*value) <= 0.0501
	}
	digits := 0
	if _, after, ok := strings.Cut(printed, "."); ok {
		digits = len(after)
	}
	if strings.Contains(printed, "e") { // three digits
		return math.Abs(v-value) <= 0.006*math.Abs(value)
	}
	return math.Abs(v-value) <= 0.501*math.Pow(10, -float64(digits))
}

func (v *smallStudy) check() {
	b := &pageBuilder{study: v.study, options: Options{Costs: true, Budget: projectBudget}, anchors: map[string]string{}}
	b.buildPage(nil)
	var cautions []string
	for i, said := range b.conclusions {
		if said.About == "Caution" {
			cautions = append(cautions, said.Text)
			if len(cautions) != i+1 {
				v.failf("%q is not at the beginning", said.Text)
			}
			continue
		}
		v.sentence(said.About, said.Text)
	}
	v.checkCautions(cautions)
	if odd := said(`(?:^|[^0-9.])1 (?:workers|runs|epochs|threads|seeds|counts|lines|things|samples)\b.*`, v.study.String()); odd != nil {
		v.failf("a number does not agree with its noun: %q", odd[0])
	}
	v.comparisons()
	v.gates()
	v.timeTo()
}

// sentence reads one sentence of the report.
func (v *smallStudy) sentence(about, text string) {
	switch about {
	case "Speed-up", "Speed":
		v.speedSentence(text)
	case "Scaling":
		v.modeSentence(text)
	case "Law":
		v.lawSentence(text)
	case "Comparison":
		if !v.pooledSentence(text) && !v.pairSentence(text) {
			v.failf("no pattern knows %q", text)
		}
	case "Bottleneck":
		v.bottleneckSentence(text)
	case "Communication":
		v.communicationSentence(text)
	case "Quality":
		v.qualitySentence(text)
	case "Cost":
		v.costSentence(text)
	case "Budget":
		v.budgetSentence(text)
	case "Problems":
		v.problemSentence(text)
	default:
		v.failf("nobody checks sentences about %s: %q", about, text)
	}
}

func (v *smallStudy) speedSentence(text string) {
	if m := said(`^(.+) is (\S+) times as fast at (\d+) workers? as at (\d+)(?: \((\S+) to (\S+)\))?: (?:(\S+ %) of the ideal|not distinguishable from the ideal (\S+))\.$`, text); m != nil {
		v.kinds["speed-up"]++
		n, base := atoi(m[3]), atoi(m[4])
		speedup, ideal := v.speed(m[1], n)/v.speed(m[1], base), float64(n)/float64(base)
		inside := m[5] != "" && number64(m[5]) <= ideal && ideal <= number64(m[6])
		switch {
		case !near(m[2], speedup):
			v.failf("%q, but the speed-up is %g", text, speedup)
		case m[7] != "" && (!near(m[7], speedup/ideal) || inside && !near(m[5], ideal) && !near(m[6], ideal)):
			v.failf("%q, but the ideal is %g", text, ideal)
		case m[8] != "":
			v.kinds["not distinguishable"]++
			if !near(m[8], ideal) || !inside && !near(m[5], ideal) && !near(m[6], ideal) {
				v.failf("%q, but the ideal is %g", text, ideal)
			}
		}
		if counts := v.counts(m[1]); n != counts[len(counts)-1] || base != counts[0] {
			v.failf("%q, but the counts are %v", text, counts)
		}
		if m[5] != "" && !(number64(m[5]) <= number64(m[2]) && number64(m[2]) <= number64(m[6])) {
			v.failf("%q: outside of its interval", text)
		}
		return
	}
	v.kinds["speed"]++
	if m := said(`^(.+) trains on (\S+) samples a second at (\d+) workers?\.$`, text); m != nil {
		if !near(m[2], v.speed(m[1], atoi(m[3]))) {
			v.failf("%q, but it is %g", text, v.speed(m[1], atoi(m[3])))
		}
		return
	}
	m := said(`^(.+) takes (\S+) s for an epoch at (\d+) workers?\.$`, text)
	if m == nil || !near(m[2], 1/v.speed(m[1], atoi(m[3]))) {
		v.failf("%q is not what was measured", text)
	}
}

// checkCautions compares the cautions with the runs: which workers had too few cores, and how many counted
// runs were disturbed.
func (v *smallStudy) checkCautions(got []string) {
	var shared, names []string
	for _, series := range v.study.Series() {
		var counts []string
		for _, n := range []int{1, 2, 3, 4, 6, 8, 12, 16} {
			if v.cores > 0 && n > v.cores && slices.ContainsFunc(v.all, func(r runs.Run) bool {
				return r.Info.Series == series && r.Info.Workers == n && r.Info.Status == runs.StatusDone
			}) {
				counts = append(counts, strconv.Itoa(n))
			}
		}
		if len(counts) > 0 {
			shared, names = append(shared, strings.Join(counts, ",")), append(names, series)
		}
	}
	disturbed, counted := 0, 0
	for _, r := range v.all {
		if r.Info.Status != runs.StatusDone {
			continue
		}
		counted++
		if len(r.Loads) > 0 && r.Loads[len(r.Loads)-1].OtherSeconds > 0 {
			disturbed++
		}
	}
	for _, text := range got {
		switch {
		case strings.Contains(text, "shared"):
			v.kinds["shared cores"]++
			for i, name := range names {
				numbers := strings.ReplaceAll(strings.ReplaceAll(text, " and ", ","), ", ", ",")
				if !strings.Contains(numbers, shared[i]+" workers shared "+strconv.Itoa(v.cores)+" cores") || len(names) < len(v.study.Series()) && !strings.Contains(text, name) {
					v.failf("%q does not say that %s workers of %s had %d cores", text, shared[i], name, v.cores)
				}
			}
			if len(names) == 0 {
				v.failf("%q, but no workers had too few cores", text)
			}
			names = nil
		case strings.Contains(text, "disturbed"):
			v.kinds["disturbed"]++
			if m := said(`^(\d+) of (\d+) runs? disturbed by other load: `, text); m == nil || atoi(m[1]) != disturbed || atoi(m[2]) != counted {
				v.failf("%q, but %d of %d runs were disturbed", text, disturbed, counted)
			}
			disturbed = 0
		default:
			v.failf("no pattern knows %q", text)
		}
	}
	if len(names) > 0 || disturbed > 0 {
		v.failf("no caution about %d disturbed runs and shared cores of %q in %q", disturbed, names, got)
	}
}

func (v *smallStudy) modeSentence(text string) {
	strong := v.all[0].Info.GlobalBatch > 0
	switch {
	case strings.Contains(text, "weak scaling") && !strong:
		v.kinds["weak"]++
	case strings.Contains(text, "strong scaling") && strong:
		v.kinds["strong"]++
	default:
		v.failf("%q, but the global batch is fixed: %t", text, strong)
	}
}

// criticalSpearman is where |ρ| becomes significant at 0.05 with n values, by
// Student's t: t/√(n−2+t²) with the quantiles 2.7764, 2.5706 and 2.4469.
var criticalSpearman = map[int]float64{6: 0.8114, 7: 0.7545, 8: 0.7067}

func (v *smallStudy) lawSentence(text string) {
	if m := said(`^(.+): too few worker counts to fit a law: there are (\d+)\.$`, text); m != nil {
		v.kinds["too few counts"]++
		if counts := v.counts(m[1]); len(counts) != atoi(m[2]) || len(counts) > 3 || len(counts) == 3 && len(v.rates(m[1], counts[0]))+len(v.rates(m[1], counts[1]))+len(v.rates(m[1], counts[2])) > 3 {
			v.failf("%q, but the counts are %v", text, counts)
		}
		return
	}
	if m := said(`^(.+): no law describes the measurements: (?:the linear law|Amdahl's law|Gustafson's law|the universal scalability law) fits best, but .+\.$`, text); m != nil {
		v.kinds["no law"]++
		if len(v.counts(m[1])) < 5 {
			v.failf("%q, but not every law was tried", text)
		}
		return
	}
	if m := said(`^(.+): .+, the (?:only law that was|best of the \d laws that were) tried, does not describe the measurements: .+; (not tried with .+)\.$`, text); m != nil {
		v.kinds["no law of those tried"]++
		v.untriedClaim(m[2], m[1])
		return
	}
	m := said(`^(.+) follows (the linear law|Amdahl's law|Gustafson's law|the universal scalability law)(?:, .*?)?(?:, which these runs can hardly distinguish from .*?)?; (.+)\.$`, text)
	if m == nil {
		v.failf("no pattern knows %q", text)
		return
	}
	series, counts := m[1], v.counts(m[1])
	law := map[string]string{"the linear law": scaling.LawLinear, "Amdahl's law": scaling.LawAmdahl, "Gustafson's law": scaling.LawGustafson, "the universal scalability law": scaling.LawUSL}[m[2]]
	v.kinds[law]++
	fits, err := v.study.Fit(series)
	check(v.t, err)
	fit := fits.Law(law)
	if fit == nil || len(counts) < len(fit.Parameters)+2 || !(fit.R2 > 0) {
		v.failf("%q from %d counts, R² %g", text, len(counts), fit.R2)
		return
	}
	first, last := counts[0], counts[len(counts)-1]
	measured := v.speed(series, last) / v.speed(series, first)
	if off := measured / (fit.Rate(float64(last)) / fit.Rate(float64(first))); off > 1.1001 || off < 1/1.1001 {
		v.failf("%q, but from %d to %d the speed-up is %g", text, first, last, measured)
	}
	var residuals []float64
	for _, n := range counts {
		residuals = append(residuals, math.Log(v.speed(series, n)/fit.Rate(float64(n))))
	}
	if spread := slices.Max(residuals) - slices.Min(residuals); spread > math.Log(1.3001) {
		v.failf("%q, but the residuals are %v", text, residuals)
	} else if limit := criticalSpearman[len(counts)]; limit > 0 && spread > 1e-5 && math.Abs(rankCorrelation(residuals)) > limit+1e-4 {
		v.failf("%q, but the residuals have a trend: %v", text, residuals)
	}
	for _, claim := range strings.Split(m[3], "; ") {
		v.lawClaim(text, claim, series, law, fit)
	}
}

// rankCorrelation is Spearman's, of values that do not tie with their places.
func rankCorrelation(values []float64) float64 {
	n, sum := float64(len(values)), 0.0
	for i, a := range values {
		rank := 0.0
		for _, b := range values {
			if b < a {
				rank++
			}
		}
		sum += (rank - float64(i)) * (rank - float64(i))
	}
	return 1 - 6*sum/(n*(n*n-1))
}

// untriedClaim checks which laws were not tried, and how many runs they need: one with p parameters needs p+3
// runs at p+2 counts.
func (v *smallStudy) untriedClaim(claim, series string) {
	v.kinds["laws not tried"]++
	counts, runs := v.counts(series), 0
	for _, n := range counts {
		runs += len(v.rates(series, n))
	}
	var needs []string
	if len(counts) < 4 || runs < 5 {
		needs = append(needs, "Amdahl's law and Gustafson's law, which need 5 runs at 4 different worker counts")
	}
	if len(counts) < 5 || runs < 6 {
		needs = append(needs, "the universal scalability law, which needs 6 runs at 5 different worker counts")
	}
	if want := fmt.Sprintf("not tried with %d runs at %d: %s", runs, len(counts), strings.Join(needs, ", and ")); claim != want {
		v.failf("%q, want %q", claim, want)
	}
}

func (v *smallStudy) lawClaim(text, claim, series, law string, fit *scaling.Fit) {
	if strings.HasPrefix(claim, "not tried with") {
		v.untriedClaim(claim, series)
		return
	}
	counts := v.counts(series)
	best := slices.MaxFunc(counts, func(a, b int) int {
		if v.speed(series, a) < v.speed(series, b) {
			return -1
		}
		return 1
	})
	last := counts[len(counts)-1]
	gain := func(n float64) float64 { return (fit.Rate(n+1) - fit.Rate(n)) / fit.Parameters[0].Value }
	switch {
	case claim == "every additional worker adds about as much throughput as the first":
		ideal := v.speed(series, last) / v.speed(series, counts[0]) * float64(counts[0]) / float64(last)
		if law != scaling.LawLinear || ideal < 0.9 || ideal > 1.11 {
			v.failf("%q, but at %d workers it is %.1f %% of the ideal", text, last, 100*ideal)
		}
	case strings.HasPrefix(claim, "every additional worker adds "):
		m := said(`adds (\S+ %) of the throughput of a single one$`, claim)
		if m == nil || law == scaling.LawLinear || math.Abs(number64(strings.TrimSuffix(m[1], " %"))/100-gain(float64(last))) > 0.002 {
			v.failf("%q, but by the law another worker after %d buys %.4f", text, last, gain(float64(last)))
		}
	case strings.HasPrefix(claim, "even the second worker"):
		if !(gain(1) < 0.5) {
			v.failf("%q, but by the law it buys %g", text, gain(1))
		}
	case strings.HasPrefix(claim, "beyond "):
		v.kinds["half"]++
		m := said(`^beyond (\d+) workers, each additional worker adds less than half the throughput of a single one(?: \(the largest measured count is (\d+)\))?$`, claim)
		if m == nil || !(gain(float64(atoi(m[1]))) < 0.5) || gain(float64(atoi(m[1])-1)) < 0.5 || (m[2] != "") != (atoi(m[1]) > last) {
			v.failf("%q, but by the law it buys %v", text, m)
		}
	case strings.Contains(claim, "throughput is highest at"):
		v.kinds["peak"]++
		v.peakClaim(text, claim, counts, best)
	default:
		if m := said(`^(\d+) runs? are too few for a reliable choice of a law: compare the other laws, or add runs$`, claim); m == nil || atoi(m[1]) >= 8 {
			v.failf("no pattern knows %q in %q", claim, text)
		}
	}
}

func (v *smallStudy) peakClaim(text, claim string, counts []int, best int) {
	last := counts[len(counts)-1]
	if m := said(`^(if the law holds that far, )?throughput is highest at (?:about )?(\d+) workers? and decreases beyond$`, claim); m != nil {
		peak := atoi(m[2])
		beside := slices.ContainsFunc(counts, func(n int) bool { return n > min(best, peak) && n < max(best, peak) })
		if beside || (m[1] != "") != (peak > last) || m[1] == "" && peak < last && best == last {
			v.failf("%q, but it was measured highest at %d of %v", text, best, counts)
		}
		return
	}
	m := said(`^according to the law, throughput is highest at \d+ workers?, but the highest measured throughput is at (\d+)$`, claim)
	if m == nil || atoi(m[1]) != best {
		v.failf("%q, but it was measured highest at %d", text, best)
	}
}
