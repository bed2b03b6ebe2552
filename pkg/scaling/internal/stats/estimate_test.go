package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestIntervalCoverage simulates studies with a known ratio: about 95 % of the 95 % intervals
// must contain it. The runs vary log-normally by 5 %, as times do. With 400 studies, the share
// itself is uncertain by ±2 % (two standard errors). The bootstrap of a median of few runs is
// known to be conservative (2000 studies gave 0.97 to 0.98), so its upper limit is larger.
func TestIntervalCoverage(t *testing.T) {
	const truth, studies = 3.0, 400
	for _, c := range []struct {
		repeats        string
		top, bottom    int
		spread         float64
		least, highest float64
	}{
		{"mean", 3, 3, 0.05, 0.92, 0.98},
		{"mean", 5, 5, 0.05, 0.92, 0.98},
		{"mean", 8, 4, 0.30, 0.92, 0.98},
		{"median", 3, 3, 0.05, 0.93, 0.998},
		{"median", 5, 5, 0.05, 0.93, 0.998},
		{"median", 4, 10, 0.05, 0.93, 0.998},
	} {
		rng := rand.New(rand.NewPCG(7, 11))
		draw := func(n int, middle float64) []float64 {
			v := make([]float64, n)
			for i := range v {
				v[i] = middle * math.Exp(c.spread*rng.NormFloat64())
			}
			return v
		}
		by := Estimator{Level: 0.95, Mean: c.repeats == "mean", Cache: NewResampleCache()}
		held := 0
		for range studies {
			if r := by.Ratio(draw(c.top, truth), draw(c.bottom, 1)); r.Low <= truth && truth <= r.High {
				held++
			}
		}
		share := float64(held) / studies
		t.Logf("%s, %d over %d runs: %.3f of the intervals hold the ratio", c.repeats, c.top, c.bottom, share)
		if share < c.least || share > c.highest {
			t.Errorf("%s, %d over %d runs: %.3f of the 95 %% intervals hold the ratio, expected %.2f to %.3f", c.repeats, c.top, c.bottom, share, c.least, c.highest)
		}
	}
}

// TestIntervalsRepeat checks that intervals are reproducible, because the draws are the same
// in every study: the same runs give the same digits in any unit, and the interval of an
// inverted ratio is the inverted interval, except that the sides use other draws.
func TestIntervalsRepeat(t *testing.T) {
	by := Estimator{Level: 0.95, Cache: NewResampleCache()}
	a, b := []float64{10, 10.4, 9.9, 10.2}, []float64{5, 5.1, 4.8}
	first, again := by.Ratio(a, b), by.Ratio(a, b)
	if first != again {
		t.Errorf("%v, then %v", first, again)
	}
	turned := by.Ratio(b, a)
	if math.Abs(turned.Low*first.High-1) > 0.02 || math.Abs(turned.High*first.Low-1) > 0.02 {
		t.Errorf("%v, turned over %v", first, turned)
	}
	one := by.Ratio(a[:1], b)
	if !math.IsNaN(one.Low) || !math.IsNaN(by.Ratio(a, b[:1]).High) || one.N != 1 {
		t.Errorf("one run has the interval %v", one)
	}
	if same := by.Estimate([]float64{2, 2, 2}, true); same.Low != 2 || same.High != 2 {
		t.Errorf("equal runs have the interval %v", same)
	}
	if bad := by.Estimate([]float64{math.NaN(), 3}, true); bad.N != 1 || bad.Value != 3 {
		t.Errorf("a run without the value counts: %v", bad)
	}
}

// TestMiddleTwo compares middleTwo with the two middle elements of the sorted values.
func TestMiddleTwo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-3, 3), 1, 200).Draw(t, "values")
		if rapid.Bool().Draw(t, "ties") {
			for i, v := range values {
				values[i] = math.Round(v)
			}
		}
		sorted := slices.Sorted(slices.Values(values))
		n := len(sorted)
		lo, hi := middleTwo(values)
		if lo != sorted[(n-1)/2] || hi != sorted[n/2] {
			t.Fatalf("the middle of %v is %v, %v", sorted, lo, hi)
		}
		slices.Sort(values)
		if !slices.Equal(values, sorted) {
			t.Fatal("values were lost")
		}
	})
}
