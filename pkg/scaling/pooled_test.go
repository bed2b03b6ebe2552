package scaling

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/runs"
)

// TestPooledPublished compares PyTorch with and without Horovod in the U-Net study, which has
// one run each: 8 worker counts together answer what no single count can. By the published
// seconds, native is 194.466/194.188 = 1.001 times as fast at 1 worker and
// 174.883/103.436 = 1.691 times at 2. The median of the 8 ratios is the mean of 1.967 (at 10
// workers) and 1.994 (at 14).
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
	if strings.Count(text, "may be due to chance") != 1 || !strings.Contains(text, "PyTorch native runs 1.980 times as fast as PyTorch Horovod in the median of 8 worker counts") || !strings.Contains(text, "p = 0.0078. Yes: PyTorch native is faster, at 8 of 8 counts.") {
		t.Error(text)
	}
	if c, err = s.CompareSeries("PyTorch Horovod", "PyTorch native"); err != nil || c.Pooled[0].Verdict != VerdictSlower || !strings.Contains(c.Pooled[0].Sentence, "PyTorch Horovod is slower, at 8 of 8 counts.") {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestGateOfItself checks that a folder passes the gate against itself, with single runs and
// with runs that vary, also through a symbolic link. A copy with other times does not pass.
func TestGateOfItself(t *testing.T) {
	root := t.TempDir()
	write := func(place string, factor float64) {
		for _, r := range []runs.Run{weak(1, 1, 20, 10, 10), weak(2, 1, 20, 12, 12), weak(2, 2, 20, 19, 19)} {
			w, err := runs.Create(filepath.Join(root, place, r.Dir), r.Info)
			check(t, err)
			for _, e := range r.Epochs {
				e.Seconds *= factor
				check(t, w.AppendEpoch(e))
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
		if g.Outcome != OutcomePass || !strings.Contains(g.String(), "ddp at 2 workers: the baseline and the candidate contain the same 2 runs") {
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
	if len(c.Pooled) != 0 || c.Rows[0].Verdict != VerdictNone || !strings.Contains(c.String(), "contain the same 2 runs at 2 workers.") {
		t.Error(c)
	}
}
