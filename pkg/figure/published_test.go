package figure

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/scaling"
)

func parsed(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	check(t, err)
	return v
}

// cell is a number of a figure's table at a series and number of workers.
func cell(t *testing.T, f *Figure, column, series string, workers int) string {
	t.Helper()
	table := f.Table()
	for i := range table.Nrow() {
		n, err := table.Col("workers").Elem(i).Int()
		check(t, err)
		if table.Col("series").Elem(i).String() == series && n == workers {
			return fmt.Sprintf("%.3f", table.Col(column).Elem(i).Float())
		}
	}
	t.Fatalf("%s has no row of %s at %d", f.Name(), series, workers)
	return ""
}

// TestPublishedFigures compares with what the studies publish (see
// logs/published/README.md): the figures' tables are what their authors
// conclude.
func TestPublishedFigures(t *testing.T) {
	unet := published(t, "unet2d-v100.csv")
	f, err := SpeedupIoU(unet)
	check(t, err)
	for series, want := range map[string][2]string{
		"PyTorch native": {"11.970", "0.924"}, "PyTorch Horovod": {"6.013", "0.902"},
		"TensorFlow native": {"11.237", "0.486"}, "TensorFlow Horovod": {"13.453", "0.888"},
	} {
		// The table has the seconds to 1 ms, of 2.786 s at the least: 0.0005/2.786 of 13.453 is 0.0024.
		const rounding = 0.0025
		if got := cell(t, f, "speedup", series, 14); math.Abs(parsed(t, got)-parsed(t, want[0])) > rounding {
			t.Errorf("%s at 14: speed-up %s, published %s", series, got, want[0])
		}
		if got := cell(t, f, "iou", series, 14); got != want[1] {
			t.Errorf("%s at 14: IoU %s, published %s", series, got, want[1])
		}
	}
	if f.right.Plot.Y.Min != 0 || f.right.Plot.Y.Max != 1 {
		t.Errorf("the right axis is from %g to %g, published 0 to 1", f.right.Plot.Y.Min, f.right.Plot.Y.Max)
	}
	booster, err := Speedup(published(t, "resnet50-booster.csv"))
	check(t, err)
	if got := cell(t, booster, "speedup", "ResNet-50", 128); got != "71.214" {
		t.Errorf("speed-up at 128 is %s, published 71.214", got)
	}
	weak := published(t, "sc21-weak-scaling.csv")
	over, err := Overhead(weak)
	check(t, err)
	for series, want := range map[string]string{"synthetic, batch 64": "0.253", "synthetic, batch 128": "0.120"} { // 25 % and 12 %
		if got := cell(t, over, "overhead", series, 128); got != want {
			t.Errorf("overhead of %s is %s, published %s", series, got, want)
		}
	}
	trials, err := Trials(published(t, "sc21-trials.csv"))
	check(t, err)
	if got := cell(t, trials, "full", "baseline", 1); got != "89.971" {
		t.Errorf("FULL of the baseline is %s, published 89.971", got)
	}
}

func TestAllOfThePublishedTables(t *testing.T) {
	for file, want := range map[string][]string{
		"unet2d-v100.csv":       {"epoch_time", "speedup", "efficiency", "speedup_iou", "iou", "train_test_time", "weak_scaling", "strong_scaling", "fit", "pareto", "quality"},
		"sc21-weak-scaling.csv": {"throughput", "speedup", "efficiency", "weak_scaling", "overhead", "fit"},
		"sc21-trials.csv":       {"trials"},
		"sc21-base.csv":         {"loss_by_epoch"},
	} {
		figures, err := All(published(t, file))
		check(t, err)
		got := namesOf(figures)
		for _, name := range want {
			if name != "weak_scaling" && !slices.Contains(got, name) && name != "strong_scaling" {
				t.Errorf("%s: no figure %s, only %v", file, name, got)
			}
		}
	}
}

// TestFitCaption: a caption has room for what few series say. The table of weak
// scaling has seven series, and a law fits six of them; the table of single GPUs has no series that a law could
// fit.
func TestFitCaption(t *testing.T) {
	var one Options
	f, err := one.Fit(published(t, "sc21-weak-scaling.csv"))
	check(t, err)
	if n := strings.Count(f.Caption(), "additional worker"); n != 6 || strings.Contains(f.Caption(), "Not fitted") {
		t.Errorf("%d laws in the caption %q", n, f.Caption())
	}
	if said := joinSentences([]string{"a.", "b.", "c.", "d.", "e.", "f.", "g.", "h."}); said != "a. b. c. d. e. f. The laws of 2 more series are in the table." {
		t.Error(said)
	}
	failed := map[string]error{"b": errors.New("too few"), "a": errors.New("no time")}
	if said := listUnfittedSeries(failed); said != " Not fitted: no time; too few." {
		t.Error(said)
	}
	failed["d"], failed["c"] = errors.New(""), errors.New("y")
	if said := listUnfittedSeries(failed); said != " Not fitted (lockstep scaling --show fit shows the reasons): a, b, c, d." {
		t.Error(said)
	}
	if _, err := one.Fit(published(t, "sc21-one-gpu.csv")); err == nil || !strings.Contains(err.Error(), "too few worker counts to fit a law") {
		t.Error(err)
	}
}

// TestSaveAll: a path without extension is a file of each kind, the same each
// time.
func TestSaveAll(t *testing.T) {
	study := published(t, "unet2d-v100.csv")
	var last []string
	for range 2 {
		f, err := Options{Series: []string{"PyTorch native"}}.Fit(study)
		check(t, err)
		dir := t.TempDir()
		check(t, f.Save(filepath.Join(dir, "fig1")))
		entries, err := os.ReadDir(dir)
		check(t, err)
		var files []string
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			check(t, err)
			files = append(files, e.Name(), string(b))
			if e.Name() == "fig1.txt" && (!strings.Contains(string(b), "n = 1 run a point") || !strings.Contains(string(b), "least squares")) {
				t.Errorf("the caption %q does not say method and n", b)
			}
		}
		if len(entries) != len(Formats()) {
			t.Errorf("%d files, expected %v", len(entries), f.Files("fig1"))
		}
		if last != nil && !slices.Equal(files, last) {
			t.Error("two savings of one figure differ")
		}
		last = files
	}
}

func TestTeX(t *testing.T) {
	f, err := Speedup(synthetic(t, []string{`50% of a_b & {c} \d`}, []int{1, 2}, 1, 4))
	check(t, err)
	text := f.TeX()
	for _, part := range []string{
		`50\% of a\_b \& \{c\} \textbackslash{}d & 1 & 1 & 1 & 1 \\`, // series, workers, runs, speed-up, efficiency
		`series & workers & runs & speedup & efficiency \\`, `\begin{tabular}{lrrrr}`, `\label{tab:speedup}`,
	} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in:\n%s", part, text)
		}
	}
	for v, want := range map[float64]string{0: "0", 12: "12", 1.23456: "1.235", -0.5: "$-0.5000$", 123456.7: "123457", 2.5e-5: `$2.500\cdot10^{-5}$`, 3e9: `$3.000\cdot10^{9}$`} {
		if got := formatTeXNumber(v); got != want {
			t.Errorf("%g is %s, expected %s", v, got, want)
		}
	}
}

// TestManySeries: eleven series look different, each from each.
func TestManySeries(t *testing.T) {
	for i := range 28 {
		for j := range i {
			a, b := element.NewSeriesStyle(i), element.NewSeriesStyle(j)
			if a.Line.Color == b.Line.Color && i%len(element.Glyphs()) == j%len(element.Glyphs()) && i%len(element.DashPatterns()) == j%len(element.DashPatterns()) {
				t.Errorf("series %d and %d look the same", i, j)
			}
		}
	}
}

// TestLegendCoversNothing: no entry of the legend reaches into the plot, or
// out of the picture.
func TestLegendCoversNothing(t *testing.T) {
	names := []string{"a", "a rather long name of a series, with a comma", "synthetic, batch 128, no communication", "b", "c", "PyTorch Horovod", ""}
	for n := range names {
		var entries []element.LegendEntry
		for _, name := range names[:n+1] {
			entries = append(entries, element.LegendEntry{Name: name})
		}
		const width = 380
		l := element.NewLegend(entries, LegendTop, width, width, 1)
		for i, name := range l.Names {
			left := l.Columns[i%len(l.Columns)]
			right := left + l.IconWidth() + l.Style.Width(name)
			if right > width {
				t.Errorf("%d entries: %q ends at %g of %d", n+1, name, right.Points(), width)
			}
			if k := i%len(l.Columns) + 1; k < len(l.Columns) && right > l.Columns[k] {
				t.Errorf("%d entries: %q covers its neighbour", n+1, name)
			}
		}
	}
}

func TestWorkerAxis(t *testing.T) {
	f, err := Options{Scale: Log2}.Speedup(synthetic(t, []string{"ddp"}, []int{1, 2, 4}, 1, 4))
	check(t, err)
	a := f.plot.X
	if at := a.Norm(2) - (a.Norm(1)+a.Norm(4))/2; at > 1e-9 || at < -1e-9 {
		t.Errorf("2 lies %g from the middle of 1 and 4 on a log2 axis", at)
	}
	if f, err = (Options{Scale: Linear}).Speedup(published(t, "resnet50-booster.csv")); err != nil || f.plot.X.Norm(64.5) < 0.45 || f.plot.X.Norm(64.5) > 0.55 {
		t.Errorf("64.5 of 1 to 128 lies at %g of a linear axis (%v)", f.plot.X.Norm(64.5), err)
	}
	study, err := published(t, "resnet50-booster.csv").WithRule(scaling.Rule{Per: scaling.PerNode})
	check(t, err)
	if f, err = Speedup(study); err != nil || f.plot.X.Label.Text != "nodes" {
		t.Errorf("the axis is called %q, expected nodes (%v)", f.plot.X.Label.Text, err)
	}
}

// TestWeakScalingOfBenchy: from benchy's files of the SC21 tutorial, weak_scale_<nodes>.json, come the three
// curves of its figure over nodes, with one kind of ideal line. The rates are read off the published plot.
func TestWeakScalingOfBenchy(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, ranks int, rates map[string]float64) {
		doc := map[string]any{"nranks": ranks}
		for trial, v := range rates {
			doc[trial] = map[string]any{"trial_throughput": []float64{0.99 * v, 1.01 * v}}
		}
		text, err := json.Marshal(doc)
		check(t, err)
		check(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	write("weak_scale_1.json", 4, map[string]float64{"IO": 2653, "SYNTHETIC": 2701, "FULL": 2061})
	write("weak_scale_8.json", 32, map[string]float64{"IO": 21049, "SYNTHETIC": 17770, "FULL": 13190})
	write("weak_scale_32.json", 128, map[string]float64{"IO": 82200, "SYNTHETIC": 67800, "FULL": 51620})
	study, err := scaling.Read(dir)
	check(t, err)
	f, err := WeakScaling(study)
	check(t, err)
	for series, want := range map[string][2]string{"IO": {"82200.000", "0.968"}, "SYNTHETIC": {"67800.000", "0.784"}, "FULL": {"51620.000", "0.783"}} {
		if got := [2]string{cell(t, f, "throughput", series, 128), cell(t, f, "efficiency", series, 128)}; got != want {
			t.Errorf("%s: throughput and efficiency %v, want %v", series, got, want)
		}
	}
	var legend []string
	for _, e := range f.legend {
		legend = append(legend, e.Name)
	}
	if want := []string{"FULL", "SYNTHETIC", "IO", "ideal"}; !slices.Equal(legend, want) {
		t.Errorf("legend %v, want %v", legend, want)
	}
	if c := colors(f); c["FULL"] == c["SYNTHETIC"] || c["FULL"] == c["IO"] || c["SYNTHETIC"] == c["IO"] {
		t.Errorf("colors %v", c)
	}
	x, y := f.plot.X, f.plot.Y
	if x.Label.Text != "nodes" || math.Abs(x.Norm(8)-0.6*x.Norm(32)-0.4*x.Norm(1)) > 1e-9 || math.Abs(y.Norm(10000)-(y.Norm(5000)+y.Norm(20000))/2) > 1e-9 {
		t.Errorf("axis %q; the axes are not logarithmic", x.Label.Text)
	}
	for _, want := range []string{"SYNTHETIC: training on data in memory", "Nodes of 3 runs assumed from file names"} {
		if !strings.Contains(f.Caption(), want) {
			t.Errorf("no %q in the caption %q", want, f.Caption())
		}
	}
	figures, err := All(study)
	check(t, err)
	if !slices.Contains(namesOf(figures), "weak_scaling") {
		t.Errorf("figures %v", namesOf(figures))
	}

	// A stated unit counts, and runs without communication are dashed in the color of those with it.
	write("weak_scale_noddp_1.json", 4, map[string]float64{"SYNTHETIC": 2860, "FULL": 2100})
	write("weak_scale_noddp_32.json", 128, map[string]float64{"SYNTHETIC": 90760, "FULL": 60000})
	study, err = scaling.Read(dir)
	check(t, err)
	study, err = study.WithRule(scaling.Rule{Per: scaling.PerWorker})
	check(t, err)
	if f, err = WeakScaling(study); err != nil || f.plot.X.Label.Text != "workers" {
		t.Fatalf("axis %q, error %v", f.plot.X.Label.Text, err)
	}
	keys := map[string]element.LegendKey{}
	for _, e := range f.legend {
		keys[e.Name] = e.Icons[0].(element.LegendKey)
	}
	with, without := keys["weak-scale, SYNTHETIC"], keys["weak-scale-noddp, SYNTHETIC"]
	if with.Line.Color == nil || with.Line.Color != without.Line.Color || with.Line.Dashes != nil || without.Line.Dashes == nil {
		t.Errorf("%v and %v", with.Line, without.Line)
	}
	over, err := Overhead(study)
	check(t, err)
	if got := cell(t, over, "overhead", "weak-scale", 128); got != "0.253" { // published: 25 %
		t.Errorf("overhead %s", got)
	}
	if !strings.Contains(over.Caption(), "Compared: the trials SYNTHETIC") {
		t.Error(over.Caption())
	}
}
