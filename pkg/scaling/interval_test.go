package scaling

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestIntervalCoverage draws studies with a known ratio: of 95 % intervals
// about 95 % must hold it. The runs vary by 5 %, log-normally, as times do.
// With 400 studies the share itself is uncertain by ±2 % (two standard
// errors). The bootstrap of a median of few runs is known to be on the safe
// side (2000 studies gave 0.97 to 0.98), so that its upper bound is wider.
func TestIntervalCoverage(t *testing.T) {
	const truth, studies = 3.0, 400
	for _, c := range []struct {
		repeats        string
		top, bottom    int
		spread         float64
		least, highest float64
	}{
		{Mean, 3, 3, 0.05, 0.92, 0.98},
		{Mean, 5, 5, 0.05, 0.92, 0.98},
		{Mean, 8, 4, 0.30, 0.92, 0.98},
		{Median, 3, 3, 0.05, 0.93, 0.998},
		{Median, 5, 5, 0.05, 0.93, 0.998},
		{Median, 4, 10, 0.05, 0.93, 0.998},
	} {
		rng := rand.New(rand.NewPCG(7, 11))
		draw := func(n int, middle float64) []float64 {
			v := make([]float64, n)
			for i := range v {
				v[i] = middle * math.Exp(c.spread*rng.NormFloat64())
			}
			return v
		}
		boot := (&Study{Rule: Rule{Repeats: c.repeats}, dice: newDice()}).intervals(true)
		held := 0
		for range studies {
			if low, high := boot.ratio(draw(c.top, truth), draw(c.bottom, 1)); low <= truth && truth <= high {
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

// TestIntervalsRepeat holds because the draws are the same in every study: the same
// runs give the same digits, a unit changes nothing, and a ratio turned over
// has the interval turned over (but for the draws, which are others).
func TestIntervalsRepeat(t *testing.T) {
	s := &Study{Rule: DefaultRule(), dice: newDice()}
	a, b := []float64{10, 10.4, 9.9, 10.2}, []float64{5, 5.1, 4.8}
	first, again := s.ratioSpan(a, b), s.ratioSpan(a, b)
	if first != again {
		t.Errorf("%v, then %v", first, again)
	}
	turned := s.ratioSpan(b, a)
	if math.Abs(turned.Low*first.High-1) > 0.02 || math.Abs(turned.High*first.Low-1) > 0.02 {
		t.Errorf("%v, turned over %v", first, turned)
	}
	one := s.ratioSpan(a[:1], b)
	if !math.IsNaN(one.Low) || !math.IsNaN(s.ratioSpan(a, b[:1]).High) || one.N != 1 {
		t.Errorf("one run has the interval %v", one)
	}
	if same := s.span([]float64{2, 2, 2}, true); same.Low != 2 || same.High != 2 {
		t.Errorf("equal runs have the interval %v", same)
	}
	if bad := s.span([]float64{math.NaN(), 3}, true); bad.N != 1 || bad.Value != 3 {
		t.Errorf("a run without the value counts: %v", bad)
	}
}

// TestMiddleOf compares with the middle of the sorted values.
func TestMiddleOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-3, 3), 1, 200).Draw(t, "values")
		if rapid.Bool().Draw(t, "ties") {
			for i, v := range values {
				values[i] = math.Round(v)
			}
		}
		sorted := slices.Sorted(slices.Values(values))
		n := len(sorted)
		lo, hi := middleOf(values)
		if lo != sorted[(n-1)/2] || hi != sorted[n/2] {
			t.Fatalf("the middle of %v is %v, %v", sorted, lo, hi)
		}
		slices.Sort(values)
		if !slices.Equal(values, sorted) {
			t.Fatal("values were lost")
		}
	})
}

// TestMeanAndDeviation: with Repeats "mean" the table shows mean ± standard
// deviation. Of 10, 11 and 14 s these are 35/3 and √(13/3): the deviations
// from the mean are −5/3, −2/3 and 7/3, their squares 78/9, over n−1 = 2.
func TestMeanAndDeviation(t *testing.T) {
	s := study(t, seeds("ddp", 1, 10, 11, 14), seeds("ddp", 2, 7))
	if text := s.String(); strings.Contains(text, "±") {
		t.Errorf("medians have no ±:\n%s", text)
	}
	rule := DefaultRule()
	rule.Repeats = Mean
	s, err := s.WithRule(rule)
	check(t, err)
	near(t, "mean", s.Points[0].EpochSeconds.Value, 35.0/3)
	near(t, "deviation", s.Points[0].EpochSeconds.Std, math.Sqrt(13.0/3))
	if !math.IsNaN(s.Points[1].EpochSeconds.Std) || s.Points[0].Speedup.Std != 0 {
		t.Errorf("one run, or a ratio, has a deviation: %+v", s.Points[1].EpochSeconds)
	}
	if text := s.String(); !strings.Contains(text, "11.67 ± 2.08") || !strings.Contains(text, "mean ± standard deviation over repeated runs") || !strings.Contains(text, " 7.000 ") {
		t.Error(text)
	}
	var b bytes.Buffer
	check(t, s.Write(&b, FormatCSV))
	header, _, _ := strings.Cut(b.String(), "\n")
	if !strings.Contains(header, "threads_per_worker,epoch_seconds_std,throughput_std,iou_std") || strings.Contains(b.String(), "±") {
		t.Error(b.String())
	}
	for _, c := range []struct {
		span Span
		want string
	}{
		{Span{Value: 12.3456, Std: 0.00789}, "12.3456 ± 0.0079"},
		{Span{Value: 1234.5, Std: 66}, "1234 ± 66"},
		{Span{Value: 5, Std: 0}, "5.000 ± 0.000"},
		{Span{Value: 0.91, Std: math.NaN()}, "0.910"},
	} {
		if got := c.span.withDeviation(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.span, got, c.want)
		}
	}
}
