package report

import (
	"math"
	"strings"
	"testing"

	"lockstep/pkg/scaling"
)

// read is a table of logs/published.
func read(t *testing.T, name string) *scaling.Study {
	t.Helper()
	s, err := scaling.Read("../../logs/published/" + name)
	check(t, err)
	return s
}

// at is a series at a number of workers.
func at(t *testing.T, s *scaling.Study, series string, workers int) scaling.Point {
	t.Helper()
	for _, p := range s.Points {
		if p.Series == series && p.Workers == workers {
			return p
		}
	}
	t.Fatalf("no run of %s at %d", series, workers)
	return scaling.Point{}
}

// TestSourceBelowTheTitle: a report of published numbers states who published them below its title, and not again in
// the notes.
func TestSourceBelowTheTitle(t *testing.T) {
	const want = "3 runs at 1, 2, 4 workers; published by the hands-on exercises for the CTE-POWER cluster of the Barcelona Supercomputing Center (torres.ai)"
	r, err := New(read(t, "resnet-cifar10-power.csv"), Options{})
	check(t, err)
	if r.page.Subtitle != want || strings.Contains(strings.Join(r.page.Notes, "\n"), "published by") {
		t.Errorf("got the subtitle %q and the notes %q", r.page.Subtitle, r.page.Notes)
	}
}

// TestPublishedConclusions computes what the papers and courses concluded from
// their tables, as printed there: to half of the last digit. They are named in
// the tables' first lines.
func TestPublishedConclusions(t *testing.T) {
	near := func(what string, got, want, within float64) {
		t.Helper()
		if !(math.Abs(got-want) <= within) {
			t.Errorf("%s: computed %.5g, published %.5g", what, got, want)
		}
	}
	unet := read(t, "unet2d-v100.csv")
	for series, want := range map[string]struct{ speedup, digits, exact, efficiency float64 }{
		"PyTorch native":     {12.0, 0.05, 11.970, 85.5},
		"PyTorch Horovod":    {6.01, 0.005, 6.013, 43.0},
		"TensorFlow native":  {11.2, 0.05, 11.237, 80.3},
		"TensorFlow Horovod": {13.5, 0.05, 13.453, 96.1},
	} {
		p := at(t, unet, series, 14)
		near(series+" speed-up at 14", p.Speedup.Value, want.speedup, want.digits)
		near(series+" speed-up at 14", p.Speedup.Value, want.exact, 2e-3) // the seconds are rounded to 1e-3 of 2.786
		near(series+" efficiency at 14", 100*p.Efficiency.Value, want.efficiency, 0.06)
	}
	near("IoU of TensorFlow native at 14", at(t, unet, "TensorFlow native", 14).IoU.Value, 0.485779, 0)

	booster := read(t, "resnet50-booster.csv")
	for n, want := range map[int]float64{4: 3.833, 16: 13.797, 32: 25.966, 64: 49.301, 128: 71.214} {
		near("ResNet-50 speed-up", at(t, booster, "ResNet-50", n).Speedup.Value, want, 6e-4)
	}

	cifar := read(t, "resnet-cifar10-power.csv")
	for n, want := range map[int][3]float64{1: {45, 1111, 1}, 2: {24, 2083, 1.875}, 4: {12, 4167, 3.75}} {
		p := at(t, cifar, "ResNet50V2", n)
		near("CIFAR-10 epoch", p.EpochSeconds.Value, want[0], 0)
		near("CIFAR-10 images/s", p.Throughput.Value, want[1], 0.5)
		near("CIFAR-10 speed-up", p.Speedup.Value, want[2], 1e-12)
	}

	rule := scaling.DefaultRule()
	rule.Per = scaling.PerNode
	weak, err := read(t, "sc21-weak-scaling.csv").WithRule(rule)
	check(t, err)
	for batch, want := range map[string]struct{ efficiency, overhead float64 }{"64": {78, 25}, "128": {89, 12}} {
		p := at(t, weak, "real data, batch "+batch, 128)
		if p.Size != 32 || p.Baseline != 1 {
			t.Errorf("128 GPUs count as %d nodes over %d", p.Size, p.Baseline)
		}
		near("efficiency at 32 nodes, batch "+batch, 100*p.Efficiency.Value, want.efficiency, 0.5)
		with := "synthetic, batch " + batch
		o, err := weak.Overhead(with, with+", no communication")
		check(t, err)
		last := o.Rows[len(o.Rows)-1]
		if last.Workers != 128 {
			t.Errorf("the last row is of %d GPUs", last.Workers)
		}
		near("overhead at 32 nodes, batch "+batch, 100*last.Overhead.Value, want.overhead, 0.5)
	}

	trials, err := read(t, "sc21-trials.csv").Bottleneck()
	check(t, err)
	bound := map[string]string{"baseline": scaling.BoundInput, "8 workers": scaling.BoundInput, "GPU loader": scaling.BoundCompute, "AMP": scaling.BoundCompute, "all": scaling.BoundCompute}
	for _, row := range trials.Rows {
		if row.Bound != bound[row.Series] {
			t.Errorf("%s is bound by %s", row.Series, row.Bound)
		}
	}
	if len(trials.Rows) != len(bound) {
		t.Errorf("%d rows of trials", len(trials.Rows))
	}
}

// TestPublishedCounts: a row without the number of an epoch is of the run as a
// whole, and a row of epoch 5 has left out the first already: both count.
func TestPublishedCounts(t *testing.T) {
	for name, runs := range map[string]int{"unet2d-v100.csv": 32, "sc21-weak-scaling.csv": 42, "sc21-ddp.csv": 5, "sc21-one-gpu.csv": 9, "resnet50-booster.csv": 6} {
		s := read(t, name)
		if len(s.Runs) != runs || len(s.Problems) > 0 {
			t.Errorf("%s: %d runs, expected %d; problems %v", name, len(s.Runs), runs, s.Problems)
		}
		for _, p := range s.Points {
			if !isMeasured(p.EpochSeconds.Value) && !isMeasured(p.Throughput.Value) && !isMeasured(p.WallSeconds.Value) {
				t.Errorf("%s: %s at %d has no time that counts", name, p.Series, p.Workers)
			}
		}
	}
}

// TestPublishedPage: the report of the published table says the conclusions,
// and links them to the lines of the table.
func TestPublishedPage(t *testing.T) {
	r, err := New(read(t, "unet2d-v100.csv"), Options{})
	check(t, err)
	page := r.Page()
	for _, want := range []string{
		"PyTorch native is 11.97 times as fast at 14 workers as at 1: 85.5 % of the ideal.",
		`href="#speedup-pytorch-native-14"`, `id="speedup-pytorch-native-14"`,
		"194.188 s / 16.223 s = 11.97", "unet2d-v100.csv:6", "unet2d-v100.csv:13",
		`id="figure-speedup_iou"`, "results table",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}
