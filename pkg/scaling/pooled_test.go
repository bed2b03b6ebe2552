package scaling

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// TestSignedRanks compares with scipy.stats.wilcoxon(mode="exact") of SciPy
// 1.10.1; the first row is Darwin's maize, the example of its documentation.
// SciPy has no exact p with ties or zeros: the last two are the shares of all
// 2ⁿ ways to sign the ranks of scipy.stats.rankdata, counted in Python.
func TestSignedRanks(t *testing.T) {
	for _, c := range []struct {
		d      []float64
		sum, p float64
	}{
		{[]float64{6, 8, 14, 16, 23, 24, 28, 29, 41, -48, 49, 56, 60, -67, 75}, 120 - 24, 0.041259765625},
		{[]float64{.1, .2, .3, .4, .5, .6}, 21, 0.03125},
		{[]float64{.1, .2, .3, .4, .5}, 15, 0.0625},
		{[]float64{-.1, .2, .3, .4, .5, .6, .7, .8}, 35, 0.015625},
		{[]float64{-.3, .1, .2, .45, .5, -.6, .7, .85}, 27, 0.25},
		{[]float64{1, 1, 1, -1, 2, 2, 3, 0}, 25.5, 0.078125},
		{[]float64{1, 1, 2, 2, -1, 3, 3, 3}, 34, 0.03125},
	} {
		sum, expected, p := signedRanks(c.d)
		n := 0.0
		for _, v := range c.d {
			if v != 0 {
				n++
			}
		}
		if sum != c.sum || math.Abs(p-c.p) > 1e-15 || expected != n*(n+1)/4 {
			t.Errorf("%v: sum %g of %g, p %.12g, expected %g and %.12g", c.d, sum, expected, p, c.sum, c.p)
		}
	}
	if _, _, p := signedRanks([]float64{0, 0}); !math.IsNaN(p) {
		t.Errorf("p of no difference is %g", p)
	}
	if _, _, p := signedRanks(make([]float64, 0)); !math.IsNaN(p) {
		t.Errorf("p of nothing is %g", p)
	}
}

// TestPooledPublished compares PyTorch with and without Horovod in the U-Net
// study, one run each: 8 worker counts answer what none of them can alone. By
// the published seconds native is 194.466/194.188 = 1.001 times as fast at 1 and
// 174.883/103.436 = 1.691 at 2; the median of the 8 ratios is that of 1.967 and
// 1.994 at 10 and 14.
func TestPooledPublished(t *testing.T) {
	s, err := Read(filepath.Join("..", "..", "logs", "published", "unet2d-v100.csv"))
	check(t, err)
	c, err := s.CompareSeries("PyTorch native", "PyTorch Horovod")
	check(t, err)
	if len(c.Pooled) != 1 || len(c.Rows) != 8 {
		t.Fatalf("%+v", c.Pooled)
	}
	p := c.Pooled[0]
	if p.Verdict != VerdictFaster || p.Faster != 8 || p.Slower != 0 || p.P != 2.0/256 {
		t.Errorf("%+v", p)
	}
	if want := (43.397/22.060 + 32.340/16.223) / 2; math.Abs(p.Median-want) > 2e-3 || math.Abs(p.Min-194.466/194.188) > 1e-9 {
		t.Errorf("median %g, expected %g; least %g", p.Median, want, p.Min)
	}
	text := c.String()
	if strings.Count(text, "cannot tell a difference from chance") != 1 || !strings.Contains(text, "PyTorch native is faster than PyTorch Horovod at 8 of 8 worker counts, 1.98") || !strings.Contains(text, "p = 0.0078. Yes: PyTorch native is faster.") {
		t.Error(text)
	}
	if c, err = s.CompareSeries("PyTorch Horovod", "PyTorch native"); err != nil || c.Pooled[0].Verdict != VerdictSlower || !strings.Contains(c.Pooled[0].Sentence, "slower than PyTorch native at 8 of 8") {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestPooledVerdicts: what the worker counts together say.
func TestPooledVerdicts(t *testing.T) {
	at := func(verdict string, ratios ...float64) []Comparison {
		var out []Comparison
		for i, r := range ratios {
			out = append(out, Comparison{A: "a", B: "b", Workers: i + 1, Ratio: Span{Value: r}, Verdict: verdict})
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
		"six of eight, twice as fast":      {at(VerdictUnknown, 0.99, 0.98, 2, 2.1, 1.9, 2.2, 2, 2), VerdictFaster, "faster than b at 6 of 8 worker counts, 2.000 times as fast in the median (0.980 to 2.200)"},
		"three counts of one run":          {at(VerdictUnknown, 2, 2.1, 1.9), VerdictUnknown, "So few counts cannot tell (p is 0.25 at best)"},
		"equal counts":                     {at(VerdictUnknown, 1, 1, 1), VerdictUnknown, "a is as fast as b at each of 3 worker counts"},
		"noise at many":                    {at(VerdictUnknown, 1.01, 0.99, 1.02, 0.98, 1.03, 0.97, 1.001), VerdictNone, "show no difference"},
		"seeds at each of two":             {at(VerdictFaster, 1.5, 1.4), VerdictFaster, "Yes: a is faster."},
		"slower at each of two":            {at(VerdictSlower, 0.5, 0.4), VerdictSlower, "slower than b at 2 of 2 worker counts, 0.450 times as fast"},
		"faster at few, slower at many":    {join(at(VerdictFaster, 1.5), at(VerdictSlower, 0.5)), VerdictMixed, "faster at 1 and slower at 1 of them"},
		"shown at one of two":              {join(at(VerdictFaster, 1.5), at(VerdictNone, 1.01)), VerdictMixed, "faster at 1 and slower at 0 of them"},
		"mostly faster, shown once slower": {join(at(VerdictSlower, 0.99), at(VerdictUnknown, 2, 2, 2, 2, 2, 2, 2, 2)), VerdictMixed, "faster at 0 and slower at 1 of them"},
	} {
		p, ok := pool(c.rows, 0.95)
		if !ok || p.Verdict != c.verdict || !strings.Contains(p.Sentence, c.says) {
			t.Errorf("%s: %s, expected %s and %q: %s", name, p.Verdict, c.verdict, c.says, p.Sentence)
		}
	}
	if _, ok := pool(at(VerdictFaster, 2), 0.95); ok {
		t.Error("one worker count was pooled")
	}
}

// TestGateOfItself: a folder passes its own gate, with single runs and with
// runs that scatter, also through a link; a copy with other times does not.
func TestGateOfItself(t *testing.T) {
	root := t.TempDir()
	write := func(place string, factor float64) {
		for _, r := range []runs.Run{weak(1, 1, 20, 10, 10), weak(2, 1, 20, 12, 12), weak(2, 2, 20, 19, 19)} {
			w, err := runs.Create(filepath.Join(root, place, r.Dir), r.Info)
			check(t, err)
			for _, e := range r.Epochs {
				e.Seconds *= factor
				check(t, w.Epoch(e))
			}
			check(t, w.Finish(runs.StatusDone, nil))
		}
	}
	write("main", 1)
	write("other", 1.001)
	check(t, os.Symlink(filepath.Join(root, "main"), filepath.Join(root, "linked")))
	read := func(place string) *Study {
		s, err := Read(filepath.Join(root, place))
		check(t, err)
		return s
	}
	for _, place := range []string{"main", "linked"} {
		g, err := Gate(read("main"), read(place), 0)
		check(t, err)
		if g.Outcome != OutcomePass || !strings.Contains(g.String(), "ddp at 2 workers: 2 runs, the same in baseline and candidate") {
			t.Errorf("main against %s: %s", place, g)
		}
	}
	g, err := Gate(read("main"), read("other"), 0.05)
	check(t, err)
	if g.Outcome != OutcomeUnknown {
		t.Errorf("single runs of another folder: %s", g)
	}
	c, err := CompareStudies(read("main"), read("main"))
	check(t, err)
	if len(c.Pooled) != 0 || c.Rows[0].Verdict != VerdictNone || !strings.Contains(c.String(), "hold the same 2 runs at 2 workers.") {
		t.Error(c)
	}
}
