package figure

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// TestAccuracyInPerCent: programs log accuracies from 0 to 100 too; an axis from
// 0 to 1 would show none of them.
func TestAccuracyInPerCent(t *testing.T) {
	all := synthetic(t, []string{"ddp"}, []int{1, 2, 4}, 3, 4).Runs
	for i := range all {
		all[i].Info.Test = nil
		for e := range all[i].Epochs {
			all[i].Epochs[e].Accuracy = 70 + float64(i)
		}
	}
	study, err := scaling.FromRuns(all)
	check(t, err)
	for _, name := range []string{"accuracy", "quality", "speedup_iou"} {
		f, err := Make(name, study)
		check(t, err)
		y := f.plot.Y
		if f.right != nil {
			y = f.right.Plot.Y
		}
		if y.Min != 0 || y.Max < 78 {
			t.Errorf("%s: the axis is from %g to %g, and the values are up to 78", name, y.Min, y.Max)
		}
	}
	for i := range all {
		for e := range all[i].Epochs {
			all[i].Epochs[e].Accuracy /= 100
		}
	}
	if study, err = scaling.FromRuns(all); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"accuracy", "quality", "speedup_iou"} {
		f, err := Make(name, study)
		check(t, err)
		y := f.plot.Y
		if f.right != nil {
			y = f.right.Plot.Y
		}
		if y.Min != 0 || y.Max != 1 {
			t.Errorf("%s: the axis is from %g to %g, expected 0 to 1", name, y.Min, y.Max)
		}
	}
}

// TestCutBarsAreTold: two runs that differ widely have an interval that goes far
// beyond the axis, which the caption says.
func TestCutBarsAreTold(t *testing.T) {
	const told = "continues beyond the axis"
	study := synthetic(t, []string{"ddp"}, []int{1, 2}, 2, 4)
	f, err := EpochTime(study)
	check(t, err)
	if strings.Contains(f.Caption(), told) {
		t.Errorf("nothing is cut, and the caption says %q", f.Caption())
	}
	all := study.Runs
	for i := range all {
		if all[i].Info.Seed == 2 {
			for e := range all[i].Epochs {
				all[i].Epochs[e].Seconds *= 3
			}
		}
	}
	study, err = scaling.FromRuns(all)
	check(t, err)
	if f, err = EpochTime(study); err != nil || !strings.Contains(f.Caption(), told) {
		t.Errorf("%v: the caption does not say that bars are cut: %q", err, f.Caption())
	}
}

// TestWhiskersStayInside: a bar that lies outside of the axis is not drawn over
// what stands below it.
func TestWhiskersStayInside(t *testing.T) {
	f, err := EpochTime(synthetic(t, []string{"ddp"}, []int{1, 2}, 1, 4))
	check(t, err)
	before := f.SVG()
	f.plot.Add(element.ErrorBars{At: []element.Interval{{X: 1, Lo: -8, Hi: -5}, {X: 2, Lo: 50, Hi: 90}}, Style: element.NewSeriesStyle(0).Line})
	if f.SVG() != before {
		t.Error("bars outside of the axis are drawn")
	}
	f.plot.Add(element.ErrorBars{At: []element.Interval{{X: 1, Lo: -8, Hi: 1}}, Style: element.NewSeriesStyle(0).Line})
	if f.SVG() == before {
		t.Error("a bar that lies partly inside is not drawn")
	}
}

// TestConstantCurve: the labels of an axis differ, for a learning rate that
// never changes too.
func TestConstantCurve(t *testing.T) {
	f, err := LearningRate(synthetic(t, []string{"ddp"}, []int{1}, 1, 6))
	check(t, err)
	seen := map[string]bool{}
	for _, tick := range f.plot.Y.Tick.Marker.Ticks(f.plot.Y.Min, f.plot.Y.Max) {
		if tick.Label != "" && seen[tick.Label] {
			t.Errorf("the label %s stands at several values from %g to %g", tick.Label, f.plot.Y.Min, f.plot.Y.Max)
		}
		seen[tick.Label] = true
	}
	if len(seen) < 3 {
		t.Errorf("%d labels", len(seen))
	}
}

// TestLinesOfRanks: where each rank logged a curve, n is of the runs and not of
// the lines.
func TestLinesOfRanks(t *testing.T) {
	all := synthetic(t, []string{"ddp"}, []int{2, 4}, 2, 4).Runs
	for i := range all {
		for rank := range 2 {
			all[i].Curves = append(all[i].Curves, runs.Curve{Name: "tps", Rank: rank, Steps: []int64{1, 2, 3}, Values: []float64{7, 8, 9}})
		}
	}
	study, err := scaling.FromRuns(all)
	check(t, err)
	f, err := Options{}.Curve(study, "tps", scaling.AxisStep)
	check(t, err)
	if want := "one line per run and rank, n = 4 runs."; !strings.Contains(f.Caption(), want) {
		t.Errorf("caption %q, expected %q", f.Caption(), want)
	}
	if f, err = LearningRate(study); err != nil || !strings.Contains(f.Caption(), "one line per run, n = 4 runs.") {
		t.Errorf("%v: caption %q", err, f.Caption())
	}
}

// TestTwelveSeries: of twelve series a curve each, and no heap of texts on the
// laws.
func TestTwelveSeries(t *testing.T) {
	names := make([]string, 12)
	for i := range names {
		names[i] = "series " + strconv.Itoa(i)
	}
	study := synthetic(t, names, []int{1, 2, 4, 8, 16}, 1, 4)
	f, err := LossByEpoch(study)
	check(t, err)
	if n := len(f.legend); n != len(names)+2 { // training and validation
		t.Errorf("the legend has %d entries, expected a curve a series", n)
	}
	for i, e := range f.legend[:len(names)] {
		if want := fmt.Sprintf("series %d, 16 workers", i); e.Name != want {
			t.Errorf("curve %d is of %s, expected %s", i, e.Name, want)
		}
	}
	if !strings.Contains(f.Caption(), "12 of 60 curves are drawn") {
		t.Error(f.Caption())
	}
	if _, err := (Options{Law: scaling.LawUSL}).Fit(study); err == nil || !strings.Contains(err.Error(), "series 3: usl has 3 parameters and needs 6 runs") {
		t.Errorf("error %v, expected one that says what the law needs", err)
	}
	if _, err := (Options{Law: "moore"}).Fit(study); err == nil || !strings.Contains(err.Error(), "use linear, amdahl, gustafson or usl") {
		t.Errorf("error %v, expected one that names the laws", err)
	}
	for _, c := range []struct {
		series int
		named  bool
	}{{12, false}, {2, true}} {
		some, err := study.Only(names[:c.series]...)
		check(t, err)
		if f, err = (Options{Law: scaling.LawAmdahl, Beyond: 4000}).Fit(some); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(f.SVG(), "half from"); got != c.named {
			t.Errorf("of %d series the marks are named: %t", c.series, got)
		}
	}
}
