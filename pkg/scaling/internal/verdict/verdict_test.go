package verdict

import (
	"math"
	"strings"
	"testing"

	"lockstep/pkg/scaling/internal/observe"
	"lockstep/pkg/scaling/internal/stats"
)

// TestPooledVerdicts checks the verdict over several worker counts.
func TestPooledVerdicts(t *testing.T) {
	at := func(verdict string, ratios ...float64) []Comparison {
		var out []Comparison
		for i, r := range ratios {
			out = append(out, Comparison{A: "a", B: "b", Workers: i + 1, Ratio: stats.Estimate{Value: r}, Verdict: verdict})
		}
		return out
	}
	join := func(parts ...[]Comparison) (out []Comparison) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	for name, c := range map[string]struct {
		rows    []Comparison
		verdict string
		says    string
	}{
		"six of eight, twice as fast":      {at(VerdictUnknown, 0.99, 0.98, 2, 2.1, 1.9, 2.2, 2, 2), VerdictFaster, "a runs 2.000 times as fast as b in the median of 8 worker counts (0.980 to 2.200)"},
		"three counts of one run":          {at(VerdictUnknown, 2, 2.1, 1.9), VerdictUnknown, "So few worker counts cannot show a difference (p is at least 0.25)"},
		"equal counts":                     {at(VerdictUnknown, 1, 1, 1), VerdictUnknown, "a is as fast as b at each of 3 worker counts"},
		"noise at many":                    {at(VerdictUnknown, 1.01, 0.99, 1.02, 0.98, 1.03, 0.97, 1.001), VerdictNone, "show no difference"},
		"seeds at each of two":             {at(VerdictFaster, 1.5, 1.4), VerdictFaster, "Yes: a is faster, at 2 of 2 counts."},
		"slower at each of two":            {at(VerdictSlower, 0.5, 0.4), VerdictSlower, "0.450 times as fast as b in the median of 2 worker counts (0.400 to 0.500)"},
		"faster at few, slower at many":    {join(at(VerdictFaster, 1.5), at(VerdictSlower, 0.5)), VerdictMixed, "faster at 1 and slower at 1 of the counts"},
		"shown at one of two":              {join(at(VerdictFaster, 1.5), at(VerdictNone, 1.01)), VerdictMixed, "faster at 1 and slower at 0 of the counts"},
		"mostly faster, shown once slower": {join(at(VerdictSlower, 0.99), at(VerdictUnknown, 2, 2, 2, 2, 2, 2, 2, 2)), VerdictMixed, "faster at 0 and slower at 1 of the counts"},
	} {
		p, ok := poolComparisons(c.rows, 0.95)
		if !ok || p.Verdict != c.verdict || !strings.Contains(p.Sentence, c.says) {
			t.Errorf("%s: %s, expected %s and %q: %s", name, p.Verdict, c.verdict, c.says, p.Sentence)
		}
	}
	if _, ok := poolComparisons(at(VerdictFaster, 2), 0.95); ok {
		t.Error("one worker count was pooled")
	}
}

// TestVerdictNeedsBoth checks that a verdict needs both an interval that excludes 1 and a
// significant test.
func TestVerdictNeedsBoth(t *testing.T) {
	m := observe.SpeedMeasures()[0]
	for _, c := range []struct {
		low, high, p float64
		verdict      string
	}{{1.01, 1.2, 0.01, VerdictFaster}, {1.01, 1.2, 0.2, VerdictNone}, {0.99, 1.2, 0.01, VerdictNone}} {
		x := Comparison{A: "a", B: "b", Workers: 2, RunsA: 3, RunsB: 3, Ratio: stats.Estimate{Value: 1.1, Low: c.low, High: c.high, N: 3}, P: c.p, PermutationP: math.NaN()}
		x.setVerdict(m, 0.95)
		if x.Verdict != c.verdict {
			t.Errorf("from %g to %g with p %g: %s, expected %s", c.low, c.high, c.p, x.Verdict, c.verdict)
		}
	}
}
