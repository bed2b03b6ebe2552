package scaling

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// lawStudy is a series whose throughput is 100·g(n) samples per second, times
// exp(noise·N(0,1)).
func lawStudy(t *testing.T, g func(n float64) float64, noise float64, seed uint64, workers ...int) *Study {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	var groups [][]runs.Run
	for _, n := range workers {
		rate := 100 * g(float64(n)) * math.Exp(noise*rng.NormFloat64())
		groups = append(groups, seeds("ddp", n, 100*float64(n)/rate)) // 100 samples a worker
	}
	return study(t, groups...)
}

func usl(sigma, kappa float64) func(float64) float64 {
	return func(n float64) float64 { return n / (1 + sigma*(n-1) + kappa*n*(n-1)) }
}

// TestFitRecovers makes data by each law and asks for its parameters back.
func TestFitRecovers(t *testing.T) {
	for _, c := range []struct {
		law        string
		g          func(float64) float64
		parameters []float64
	}{
		{LawLinear, func(n float64) float64 { return n }, nil},
		{LawAmdahl, usl(0.05, 0), []float64{0.05}},
		{LawGustafson, func(n float64) float64 { return n - 0.22*(n-1) }, []float64{0.22}},
		{LawUSL, usl(0.03, 4e-4), []float64{0.03, 4e-4}},
	} {
		f, err := lawStudy(t, c.g, 0, 1, 1, 2, 4, 8, 16, 32, 64).Fit("")
		check(t, err)
		best := f.Best()
		if best.Law != c.law || best.Delta != 0 || len(f.Rows) != 4 {
			t.Errorf("%s: the best is %s of %d:\n%s", c.law, best.Law, len(f.Rows), f)
			continue
		}
		for i, want := range append([]float64{100}, c.parameters...) {
			p := best.Parameters[i]
			if math.Abs(p.Value-want) > 1e-4*want || !(p.Low <= p.Value && p.Value <= p.High) {
				t.Errorf("%s: %s is %v, the data have %g", c.law, p.Name, p, want)
			}
		}
		if !(best.R2 > 0.999999) {
			t.Errorf("%s: R² %g", c.law, best.R2)
		}
		near := best.Band([]int{1, 64, 128})
		for _, b := range near {
			if want := c.g(float64(b.Size)); math.Abs(b.Speedup-want) > 1e-3*want || b.Beyond != (b.Size > 64) {
				t.Errorf("%s: predicts %+v at %d, the law says %g", c.law, b, b.Size, want)
			}
		}
	}
}

// TestFitSentences says where another worker buys less than half of itself.
// Of Amdahl's law with σ = 0.05 worker n+1 adds
// (1−σ)/((1+σn)(1+σ(n−1))) < 1/2 from n = 8: 0.95/(1.4·1.35) = 0.5026 at 8,
// 0.95/(1.45·1.4) = 0.468 at 9. The peak of the USL is at √((1−σ)/κ):
// √(0.97/4e-4) = 49.2.
func TestFitSentences(t *testing.T) {
	amdahl, err := lawStudy(t, usl(0.05, 0), 0, 1, 1, 2, 4, 8, 16, 32, 64).Fit("ddp")
	check(t, err)
	if n, ok := amdahl.Best().Half(); n != 9 || !ok {
		t.Errorf("half at %d, %t", n, ok)
	}
	wantLine(t, []string{amdahl.Sentence}, "ddp scales by Amdahl's law, σ = 0.0500", "beyond 9 workers another worker buys less than half of itself")
	if _, ok := amdahl.Best().Peak(); ok {
		t.Error("Amdahl's law has a peak")
	}
	u, err := lawStudy(t, usl(0.03, 4e-4), 0, 1, 1, 2, 4, 8, 12, 14).Fit("ddp")
	check(t, err)
	if n, ok := u.Law(LawUSL).Peak(); n != 49 || !ok {
		t.Errorf("peak at %d, %t", n, ok)
	}
	wantLine(t, []string{u.Sentence}, "the universal scalability law", "throughput is highest at 49 workers and falls beyond, if the law holds so far")
	g, err := lawStudy(t, func(n float64) float64 { return n - 0.22*(n-1) }, 0, 1, 1, 2, 4, 8, 16, 32).Fit("ddp")
	check(t, err)
	wantLine(t, []string{g.Sentence}, "Gustafson's law", "every further worker buys 78 % of itself")
	for _, part := range []string{"amdahl", "σ", "chosen by AICc", "delta method", "X(n) = λ·n / (1 + σ·(n−1))"} {
		if !strings.Contains(amdahl.String(), part) {
			t.Errorf("the table does not say %q:\n%s", part, amdahl)
		}
	}
	if table := amdahl.Table(); table.Err != nil || table.Nrow() != 1+2+2+3 {
		t.Error(table)
	}
}

// TestFitBandCoverage predicts, from noisy data up to 16 workers, a run at 64:
// about 95 % of the bands must hold it when the law is the true one.
func TestFitBandCoverage(t *testing.T) {
	g := usl(0.05, 0)
	held, all := 0, 100
	rng := rand.New(rand.NewPCG(5, 5))
	for i := range all {
		f, err := lawStudy(t, g, 0.02, uint64(i+1), 1, 2, 4, 6, 8, 10, 12, 16).Fit("ddp")
		check(t, err)
		b := f.Law(LawAmdahl).Band([]int{64})[0]
		if next := 100 * g(64) * math.Exp(0.02*rng.NormFloat64()); b.RateLow <= next && next <= b.RateHigh {
			held++
		}
	}
	// Two standard errors of a share of 0.95 of 100 are 0.04.
	if share := float64(held) / float64(all); share < 0.90 {
		t.Errorf("%.3f of the 95 %% bands hold the next run", share)
	} else {
		t.Logf("%.3f of the bands hold the next run", share)
	}
}

// TestFitRefuses says what is missing.
func TestFitRefuses(t *testing.T) {
	s := lawStudy(t, usl(0.05, 0), 0, 1, 1, 2, 4)
	_, err := s.Fit("ddp")
	if !errors.Is(err, ErrTooFew) || !strings.Contains(err.Error(), "too few worker counts to name a law: linear has 1 parameter and needs 4 runs at 3 different worker counts, got 3 runs at 3") {
		t.Errorf("error %v", err)
	}
	five, err := lawStudy(t, usl(0.05, 0), 0, 1, 1, 2, 4, 8, 16).Fit("ddp")
	check(t, err)
	if five.Law(LawUSL) != nil || five.Best().Law != LawAmdahl || !strings.Contains(five.String(), "not fitted: usl has 3 parameters and needs 6 runs at 5 different worker counts, got 5 runs at 5") {
		t.Error(five)
	}
	if _, err := s.Fit("native"); err == nil || !strings.Contains(err.Error(), `there are: "ddp"`) {
		t.Errorf("error %v", err)
	}
}

// TestFitPublished fits the published U-Net table. The law with more
// parameters of two nested ones can only be nearer to the data; the band of
// the best holds every published speed-up.
func TestFitPublished(t *testing.T) {
	dir := t.TempDir()
	writePublished(t, dir)
	s, err := Read(dir)
	check(t, err)
	for _, name := range s.Series() {
		f, err := s.Fit(name)
		check(t, err)
		t.Log(f)
		best := f.Best()
		if f.Law(LawUSL).RSS > f.Law(LawAmdahl).RSS*(1+1e-9) || f.Law(LawAmdahl).RSS > f.Law(LawLinear).RSS || best.R2 < 0.98 {
			t.Errorf("%s: %s", name, f)
		}
		for _, p := range s.Points {
			if p.Series != name {
				continue
			}
			if b := best.Band([]int{p.Workers})[0]; p.Speedup.Value < b.Low || p.Speedup.Value > b.High || b.Beyond {
				t.Errorf("%s at %d: speed-up %.3f outside of %+v", name, p.Workers, p.Speedup.Value, b)
			}
		}
	}
	// Horovod on PyTorch has its worst step from 1 to 2 (194 to 175 s).
	f, err := s.Fit("pytorch horovod")
	check(t, err)
	wantLine(t, []string{f.Sentence}, "Gustafson's law", "every further worker buys 42.", "of itself")
}

// TestAICc checks the criterion of each law against its formula (Hurvich and
// Tsai 1989): the parameters are λ, the law's and the variance.
func TestAICc(t *testing.T) {
	f, err := lawStudy(t, func(n float64) float64 { return n / (1 + 0.02*(n-1)) }, 0.05, 1, 1, 2, 4, 8, 16, 32).Fit("")
	check(t, err)
	if len(f.Rows) != 4 {
		t.Fatalf("%s", f)
	}
	for _, r := range f.Rows {
		n, k := float64(r.N), float64(len(r.Parameters)+1)
		if want := n*math.Log(r.RSS/n) + 2*k + 2*k*(k+1)/(n-k-1); math.Abs(r.AICc-want) > 1e-9*math.Abs(want) || !(r.RSS > 1e-6) {
			t.Errorf("%s: AICc %g of %g runs with RSS %g, expected %g", r.Law, r.AICc, n, r.RSS, want)
		}
	}
}
