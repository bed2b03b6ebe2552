package scaling

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// rated returns runs of one series with the given throughput in samples per second; an epoch
// has 100 samples per worker.
func rated(rates map[int]float64, repeats int) []runs.Run {
	var all []runs.Run
	for n, rate := range rates {
		times := make([]float64, repeats)
		for i := range times {
			times[i] = 100 * float64(n) / rate
		}
		all = append(all, seeds("ddp", n, times...)...)
	}
	return all
}

// TestLawNeedsCounts checks that a law is not fitted to few worker counts: with as many counts
// as it has parameters, or one more, any law fits. A report once contained "66.3 % of the
// ideal" and, in the next line, "every further worker buys as much as the first".
func TestLawNeedsCounts(t *testing.T) {
	two := study(t, rated(map[int]float64{1: 100, 2: 132.6}, 3))
	if _, err := two.Fit("ddp"); !errors.Is(err, ErrTooFew) || !strings.Contains(err.Error(), "got 6 runs at 2") {
		t.Errorf("two counts: error %v", err)
	}
	three, err := study(t, rated(map[int]float64{1: 100, 2: 199, 4: 396}, 3)).Fit("ddp")
	check(t, err)
	if n := three.SupportedLaw(); n == nil || n.Law != LawLinear || len(three.Rows) != 1 {
		t.Errorf("three counts can tell one parameter:\n%s", three)
	}
	wantLine(t, []string{three.Sentence}, "the linear law", "every additional worker adds about as much throughput as the first")
	for law, counts := range map[string]int{LawLinear: 3, LawAmdahl: 4, LawGustafson: 4, LawUSL: 5} {
		rates := map[int]float64{}
		for n := 1; n < counts; n++ {
			rates[n] = 100 * usl(0.05, 1e-3)(float64(n))
		}
		f, err := study(t, rated(rates, 3)).Fit("ddp")
		if err == nil && f.Law(law) != nil {
			t.Errorf("%s was fitted to %d counts:\n%s", law, counts-1, f)
		}
		rates[counts] = 100 * usl(0.05, 1e-3)(float64(counts))
		if f, err = study(t, rated(rates, 3)).Fit("ddp"); err != nil || f.Law(law) == nil {
			t.Errorf("%s was not fitted to %d counts: %v\n%s", law, counts, err, f)
		}
	}
}

// TestLawContradicted checks that the sentence names no law, but the reason, if the data
// contradict every law.
func TestLawContradicted(t *testing.T) {
	for _, c := range []struct {
		name  string
		rates map[int]float64
		says  string
	}{
		{"two thirds of the ideal at three counts", map[int]float64{1: 100, 2: 165, 4: 264}, "from 1 to 4 workers, the measured speed-up is 2.640, but the law predicts 4.000"},
		{"slower with every worker, three counts", map[int]float64{1: 100, 2: 80, 4: 50}, "R² is -"},
		{"superlinear", map[int]float64{1: 100, 2: 240, 4: 560, 8: 1300}, "from 1 to 8 workers, the measured speed-up is 13.00, but the law predicts 8.000"},
		{"one count off", map[int]float64{1: 100, 2: 190, 4: 180, 8: 720, 16: 1420}, "the measured speed-up is"},
		{"the same at every count", map[int]float64{1: 100, 2: 100, 4: 100, 8: 100}, "throughput is the same at every count"},
	} {
		f, err := study(t, rated(c.rates, 2)).Fit("ddp")
		check(t, err)
		says := "ddp: no law describes the measurements: "
		if len(c.rates) < 5 { // too few for the universal scalability law
			says = "does not describe the measurements: "
		}
		if f.SupportedLaw() != nil || !strings.Contains(f.Sentence, says) || !strings.Contains(f.Sentence, c.says) {
			t.Errorf("%s: expected no law, %q and %q:\n%s", c.name, says, c.says, f)
		}
		untried := map[int]string{
			3: fmt.Sprintf("the only law that was tried, %s", says), 4: "the universal scalability law, which needs 6 runs at 5 different worker counts.",
		}[len(c.rates)]
		if !strings.Contains(f.Sentence, untried) || strings.Contains(f.Sentence, "not tried with") != (untried != "") {
			t.Errorf("%s: expected %q: %s", c.name, untried, f.Sentence)
		}
	}
}

// TestLawTrend checks that a small misfit that grows with the worker count, as if the law
// lacked a parameter, excludes the law at 6 or more counts, but not at fewer.
func TestLawTrend(t *testing.T) {
	rates := func(counts ...int) map[int]float64 {
		out := map[int]float64{}
		for _, n := range counts { // 0.5 % more than ideal for each doubling
			out[n] = 100 * math.Pow(float64(n), 1.007)
		}
		return out
	}
	five, err := study(t, rated(rates(1, 2, 4, 8, 16), 2)).Fit("ddp")
	check(t, err)
	if five.SupportedLaw() == nil {
		t.Errorf("5 counts say nothing of a trend: %s", five)
	}
	six, err := study(t, rated(rates(1, 2, 4, 8, 16, 32), 2)).Fit("ddp")
	check(t, err)
	if six.SupportedLaw() != nil || !strings.Contains(six.Sentence, "residuals have a trend over the worker counts (Spearman's ρ = 1.000, p < 0.0001)") {
		t.Errorf("6 counts with a trend: %s", six)
	}
}

// TestBudgetNeedsALaw checks that Budget predicts nothing by a law that the data contradict.
func TestBudgetNeedsALaw(t *testing.T) {
	var all []runs.Run
	for n, rate := range map[int]float64{1: 100, 2: 180, 8: 360} {
		for _, r := range seeds("ddp", n, 800/rate, 800/rate) {
			for i := range r.Epochs { // strong scaling: 800 samples of an epoch in all
				r.Epochs[i].Samples = 800
			}
			all = append(all, r)
		}
	}
	s := study(t, all)
	f, err := s.Fit("ddp")
	check(t, err)
	if f.SupportedLaw() != nil {
		t.Fatalf("%s", f)
	}
	b, err := s.Budget(1000)
	check(t, err)
	for _, r := range b.Rows {
		if r.Predicted {
			t.Errorf("predicted without a law: %s", r.Sentence)
		}
	}
}
