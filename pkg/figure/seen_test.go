package figure

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/recorder"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/notebook"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// TestCaptionIsSeen checks that a notebook shows the caption under the figure. The method, which is the same
// for all figures of a study, is behind a fold.
func TestCaptionIsSeen(t *testing.T) {
	f, err := Speedup(synthetic(t, []string{"ddp"}, []int{1, 2, 4}, 3, 4))
	check(t, err)
	page := f.HTML()
	before, fold, ok := strings.Cut(page, "<details>")
	_, caption, seen := strings.Cut(before, "<figcaption")
	if !ok || !seen {
		t.Fatal(page)
	}
	for _, want := range []string{"Speed-up", "n = 3 runs per point.", "95 % confidence intervals over repeated runs."} {
		if !strings.Contains(caption, want) {
			t.Errorf("the caption lacks %q: %s", want, caption)
		}
	}
	for _, want := range []string{"Rule: mean over the epochs of a run, the first left out", "bootstrap"} {
		if strings.Contains(caption, want) || !strings.Contains(fold, want) || !strings.Contains(f.Method(), want) {
			t.Errorf("%q is not only behind the fold:\n%s", want, page)
		}
	}
	if !strings.Contains(page, `<img alt="Speed-up (cells)" src="data:image/svg+xml;base64,`) {
		t.Error(page[:200])
	}
	if text := f.String(); text != f.Caption()+" "+f.Method() {
		t.Error(text)
	}
}

// TestPanelsShareSentences checks that a page of panels says once what all its panels have in common.
func TestPanelsShareSentences(t *testing.T) {
	study := synthetic(t, []string{"ddp"}, []int{1, 2, 4}, 3, 4)
	a, err := EpochTime(study)
	check(t, err)
	b, err := Speedup(study)
	check(t, err)
	page, err := Panels("Both", a, b)
	check(t, err)
	want := "(a) Training time per epoch against the number of workers; median over repeated runs. Bars: 95 % confidence intervals over repeated runs. " +
		"(b) Speed-up over the baseline of the series; median over repeated runs. Bands: 95 % confidence intervals over repeated runs. " +
		"All panels: n = 3 runs per point."
	if page.Caption() != want {
		t.Errorf("%q, want %q", page.Caption(), want)
	}
	if one, err := Panels("One", a); err != nil || one.Caption() != "(a) "+a.Caption() {
		t.Errorf("%q, %v", one.Caption(), err)
	}
}

// TestClippedBarsHaveArrows checks that a bar that leaves the plot ends in an arrow at the edge, and that
// other ends have caps.
func TestClippedBarsHaveArrows(t *testing.T) {
	p := element.NewPlot("", "", "")
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 4, 0, 10
	bars := element.ErrorBars{
		Style: draw.LineStyle{Color: color.Black, Width: 1},
		At:    []element.Interval{{X: 1, Lo: 2, Hi: 3}, {X: 2, Lo: 5, Hi: 20}, {X: 3, Lo: -5, Hi: 20}},
	}
	var drawn recorder.Canvas
	bars.Plot(draw.NewCanvas(&drawn, 100, 100), p)
	arrows, lines := 0, 0
	for _, a := range drawn.Actions {
		switch a := a.(type) {
		case *recorder.Fill:
			arrows++
			if tip := a.Path[0].Pos.Y; tip != 0 && tip != 100 {
				t.Errorf("an arrow ends at %g", tip)
			}
			if back := a.Path[1].Pos.Y; back <= 0 || back >= 100 {
				t.Errorf("an arrow begins outside of the plot, at %g", back)
			}
		case *recorder.Stroke:
			lines++
		}
	}
	if arrows != 3 || lines != 3+3 { // three bars, three caps
		t.Errorf("%d arrows and %d lines, want 3 and 6", arrows, lines)
	}
}

// colors returns the color of each series in a figure's legend.
func colors(f *Figure) map[string]color.Color {
	out := map[string]color.Color{}
	for _, e := range f.legend {
		switch icon := e.Icons[0].(type) {
		case element.LegendKey:
			out[e.Name] = icon.Line.Color
			if icon.Line.Width == 0 {
				out[e.Name] = icon.Glyph.Color
			}
		case element.DataRectangles:
			out[e.Name] = icon.Fill
		}
	}
	return out
}

// TestSeriesKeepsItsColor draws series in other orders and without the others: each keeps its color.
func TestSeriesKeepsItsColor(t *testing.T) {
	study := published(t, "unet2d-v100.csv")
	all, err := Speedup(study)
	check(t, err)
	want := colors(all)
	pair := []string{"PyTorch native", "PyTorch Horovod"}
	for _, name := range []string{"speedup", "epoch_time", "speedup_iou", "iou", "loss_by_epoch", "pareto", "train_test_time", "quality"} {
		for _, series := range [][]string{pair, {pair[1], pair[0]}, pair[:1]} {
			f, err := Options{Series: series, Workers: []int{8}}.Make(name, study)
			if err != nil {
				continue // the study has no data for it
			}
			got := colors(f)
			for _, s := range series {
				if got[s] != want[s] {
					t.Errorf("%s of %q: %s is %v, want %v", name, series, s, got[s], want[s])
				}
			}
		}
	}
	only, err := study.Only(pair...)
	check(t, err)
	fit, err := Fit(only)
	check(t, err)
	for name, c := range colors(fit) {
		if series, _, ok := strings.Cut(name, ":"); ok && want[series] != nil && c != want[series] {
			t.Errorf("fit: %s is %v", name, c)
		}
	}
}

// TestManySeriesAreNamedAtTheirEnds checks that in a figure of more than eight series, the names are to the
// right in the order of the lines' ends, and none covers another.
func TestManySeriesAreNamedAtTheirEnds(t *testing.T) {
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprintf("series %d", i))
	}
	f, err := Speedup(synthetic(t, names, []int{1, 2, 4, 8}, 1, 3))
	check(t, err)
	a := f.layOut(vg.Rectangle{Max: vg.Point{X: f.Width, Y: f.Height}})
	if a.legend.Position != LegendRight {
		t.Fatalf("the legend is at %q", a.legend.Position)
	}
	var drawn recorder.Canvas
	a.draw(draw.NewCanvas(&drawn, f.Width, f.Height))
	var at []vg.Length
	for _, name := range names { // the first is the fastest
		for _, action := range drawn.Actions {
			if text, ok := action.(*recorder.FillString); ok && text.String == name {
				at = append(at, text.Point.Y)
			}
		}
	}
	if len(at) != len(names) {
		t.Fatalf("%d of %d names", len(at), len(names))
	}
	for i := 1; i < len(at); i++ {
		if at[i-1]-at[i] < a.legend.RowHeight()-1e-6 {
			t.Errorf("%s is at %g, %s at %g", names[i-1], at[i-1], names[i], at[i])
		}
	}
	if at[0] > f.Height || at[len(at)-1] < 0 {
		t.Errorf("names from %g to %g in a figure of height %g", at[0], at[len(at)-1], f.Height)
	}
}

// TestOneIdealLine checks that series with different baselines, and many series, have one ideal line, and
// that the figure says whose it is.
func TestOneIdealLine(t *testing.T) {
	count := func(f *Figure) (names []string) {
		for _, e := range f.legend {
			if strings.HasPrefix(e.Name, "ideal") {
				names = append(names, e.Name)
			}
		}
		return names
	}
	study := synthetic(t, []string{"a", "b", "c"}, []int{1, 2, 4, 8}, 1, 3)
	all := slices.Clone(study.Runs)
	all = slices.DeleteFunc(all, func(r runs.Run) bool { return r.Info.Series == "c" && r.Info.Workers < 2 })
	mixed, err := scaling.FromRuns(all)
	check(t, err)
	f, err := Speedup(mixed)
	check(t, err)
	if names := count(f); !slices.Equal(names, []string{"ideal over 1"}) || !strings.Contains(f.Caption(), "The ideal line does not apply to c over 2.") {
		t.Errorf("%q; %s", names, f.Caption())
	}
	if f, err = Throughput(synthetic(t, []string{"a", "b", "c", "d", "e"}, []int{1, 2, 4}, 1, 3)); err != nil {
		t.Fatal(err)
	}
	if names := count(f); !slices.Equal(names, []string{"ideal"}) || !strings.Contains(f.Caption(), "Ideal line: of a.") {
		t.Errorf("%q; %s", names, f.Caption())
	}
	if f, err = Speedup(study); err != nil || !slices.Equal(count(f), []string{"ideal"}) {
		t.Errorf("%q, %v", count(f), err)
	}
}

// TestSharedCoresAreMarked checks that figures of times mark points whose workers shared cores, and that
// the caption says so.
func TestSharedCoresAreMarked(t *testing.T) {
	all := slices.Clone(synthetic(t, []string{"ddp"}, []int{1, 2, 4}, 1, 3).Runs)
	for i := range all {
		all[i].Info.Nodes, all[i].Info.Host.Cores = 1, 2
	}
	study, err := scaling.FromRuns(all)
	check(t, err)
	for name, marked := range map[string]bool{"speedup": true, "epoch_time": true, "iou": false} {
		f, err := Make(name, study)
		check(t, err)
		if got := strings.Contains(f.SVG(), "workers shared cores"); got != marked {
			t.Errorf("%s: marked %t, want %t", name, got, marked)
		}
		if !strings.Contains(f.Caption(), "4 workers shared 2 cores.") {
			t.Errorf("%s: %s", name, f.Caption())
		}
	}
	if math.IsNaN(study.Points[0].Speedup.Value) {
		t.Error("no speed-up")
	}
}

// TestNotebookKeepsColors draws several studies in a notebook: a series keeps the color of its first figure,
// and the series of one study have different colors.
func TestNotebookKeepsColors(t *testing.T) {
	notebook.SetHook(notebook.Hook{Context: t.Context, Display: func(any, string, bool) error { return nil }})
	defer func() {
		notebook.SetHook(notebook.Hook{})
		notebookSeriesStyles.indices = nil
	}()
	draw := func(names ...string) map[string]color.Color {
		f, err := Speedup(synthetic(t, names, []int{1, 2}, 1, 3))
		check(t, err)
		return colors(f)
	}
	first := draw("native", "ring")
	second := draw("amp", "native")
	if second["native"] != first["native"] || second["amp"] == second["native"] {
		t.Errorf("%v, then %v", first, second)
	}
	if again := draw("ring", "amp"); again["ring"] != first["ring"] || again["amp"] != second["amp"] {
		t.Errorf("%v, then %v", second, again)
	}
}
