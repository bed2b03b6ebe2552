package figure

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/recorder"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/scaling"
)

// seriesNames are names of series as long as those of published studies.
func seriesNames(n int) []string {
	return []string{
		"PyTorch native", "PyTorch Horovod", "TensorFlow native", "TensorFlow Horovod", "ddp",
		"ring, bucket 25 MB", "parameter server", "local SGD", "mirrored",
	}[:n]
}

// paperSizes are one column and the full width of a paper, in inches.
func paperSizes() [][2]float64 { return [][2]float64{{3.5, 2.4}, {7, 3}} }

// withLegend are the figures of a study of runs that have a legend.
func withLegend() []string {
	return []string{
		"epoch_time", "throughput", "speedup", "efficiency", "speedup_iou", "iou", "loss_by_epoch", "loss_by_time",
		"learning_rate", "train_test_time", "fit", "pareto", "quality",
	}
}

// eachPaperFigure calls check with each figure that has a legend, at the sizes of a paper
// and with 1, 4 and 9 series.
func eachPaperFigure(t *testing.T, check func(t *testing.T, label string, f *Figure)) {
	t.Helper()
	draw := func(name string, n int, study *scaling.Study) {
		for _, size := range paperSizes() {
			f, err := Options{WidthInches: size[0], HeightInches: size[1]}.Make(name, study)
			if err != nil {
				t.Errorf("%s of %d series: %v", name, n, err)
				continue
			}
			check(t, fmt.Sprintf("%d-%s-%g", n, name, size[0]), f)
		}
	}
	for _, n := range []int{1, 4, 9} {
		study := synthetic(t, seriesNames(n), []int{1, 2, 4, 8, 16}, 3, 20)
		for _, name := range withLegend() {
			draw(name, n, study)
		}
	}
	draw("weak_scaling", 7, published(t, "sc21-weak-scaling.csv"))
	draw("overhead", 2, published(t, "sc21-weak-scaling.csv"))
	draw("trials", 1, published(t, "sc21-trials.csv"))
	draw("time_use", 1, traced(t))
	draw("timeline", 1, traced(t))
	draw("timelines", 2, tracedSeries(t))
}

// TestPaperSizes: at the size of a paper the data keep a good part of the
// picture, every thing that the legend names is drawn inside it, the legend
// covers no data, and no two labels of an axis cover each other.
func TestPaperSizes(t *testing.T) {
	eachPaperFigure(t, func(t *testing.T, label string, f *Figure) {
		whole := vg.Rectangle{Max: vg.Point{X: f.Width, Y: f.Height}}
		a := f.layOut(whole)
		if a.problem != "" {
			t.Errorf("%s: %s", label, a.problem)
		}
		data := element.ScaleRectangle(a.data, a.zoom)
		if share := float64(data.Size().X * data.Size().Y / (f.Width * f.Height)); share < minDataShare {
			t.Errorf("%s: the data have %.0f %% of the picture", label, 100*share)
		}
		marks := recorded(f, whole)
		for _, e := range f.legend {
			if !slices.ContainsFunc(iconMarks(e, a.zoom), func(want mark) bool { return marks.inside(data, want) }) {
				t.Errorf("%s: nothing is drawn of %q", label, e.Name)
			}
		}
		if len(f.legend) > 0 {
			corner := a.corner
			legend := element.ScaleRectangle(vg.Rectangle{Min: vg.Point{X: corner.X, Y: corner.Y - a.legend.Size.Y}, Max: vg.Point{X: corner.X + a.legend.Size.X, Y: corner.Y}}, a.zoom)
			if overlap(legend, data) {
				t.Errorf("%s: the legend at %v covers the data at %v", label, legend, data)
			}
			if !within(legend, whole) {
				t.Errorf("%s: the legend at %v reaches out of the picture", label, legend)
			}
		}
		for _, text := range marks.texts {
			if !within(text, vg.Rectangle{Min: vg.Point{X: -0.5, Y: -0.5}, Max: whole.Max.Add(vg.Point{X: 0.5, Y: 0.5})}) {
				t.Errorf("%s: a text at %v reaches out of the picture", label, text)
			}
		}
		for _, r := range []element.LabelMeasurer{{Axis: &a.plot.X, Length: a.data.Size().X, Vertical: false}, {Axis: &a.plot.Y, Length: a.data.Size().Y, Vertical: true}} {
			ticks := r.Axis.Tick.Marker.Ticks(r.Axis.Min, r.Axis.Max)
			if r.HasOverlap(ticks) {
				t.Errorf("%s: labels of an axis cover each other: %v", label, ticks)
			}
			if len(ticks) < 2 && label != "1-time_use-3.5" && label != "1-time_use-7" { // it has one bar
				t.Errorf("%s: an axis has the ticks %v", label, ticks)
			}
		}
		if a.plot.X.Tick.Label.Font.Size*a.zoom < minTextSize || a.legend.Style.Font.Size*a.zoom < minTextSize {
			t.Errorf("%s: text of less than %g points", label, float64(minTextSize))
		}
	})
}

// TestPaperImages keeps some of them as pictures; the others are alike.
func TestPaperImages(t *testing.T) {
	eachPaperFigure(t, func(t *testing.T, label string, f *Figure) {
		for _, kept := range []string{"speedup-", "loss_by_epoch", "train_test_time", "trials", "timeline", "speedup_iou"} {
			if strings.Contains(label, kept) {
				compareImage(t, "paper-"+label, f)
				return
			}
		}
	})
}

func overlap(a, b vg.Rectangle) bool {
	return a.Min.X < b.Max.X && b.Min.X < a.Max.X && a.Min.Y < b.Max.Y && b.Min.Y < a.Max.Y
}

func within(a, whole vg.Rectangle) bool {
	return a.Min.X >= whole.Min.X && a.Max.X <= whole.Max.X && a.Min.Y >= whole.Min.Y && a.Max.Y <= whole.Max.Y
}

// mark is a path that was drawn: its color and dashes, its form up to its
// place and size, and where it is.
type mark struct {
	color color.NRGBA
	form  string
	at    vg.Rectangle
}

// marks is what was drawn.
type marks struct {
	all   []mark
	texts []vg.Rectangle
}

// inside reports whether a mark of the same color and form as want has a part
// in a rectangle.
func (m marks) inside(r vg.Rectangle, want mark) bool {
	return slices.ContainsFunc(m.all, func(x mark) bool {
		return x.color == want.color && (x.form == want.form || want.form == "") && overlap(grownBy(x.at, 0.1), r)
	})
}

func grownBy(r vg.Rectangle, by vg.Length) vg.Rectangle {
	return vg.Rectangle{Min: r.Min.Sub(vg.Point{X: by, Y: by}), Max: r.Max.Add(vg.Point{X: by, Y: by})}
}

// recorded draws the figure on a canvas that notes what is drawn.
func recorded(f *Figure, whole vg.Rectangle) marks {
	var c recorder.Canvas
	f.draw(draw.Canvas{Canvas: &c, Rectangle: whole})
	return marksOf(&c)
}

func marksOf(c *recorder.Canvas) marks {
	var m marks
	var pen color.NRGBA
	turned := 0
	add := func(kind string, path vg.Path) {
		at := vg.Rectangle{Min: vg.Point{X: 1e9, Y: 1e9}, Max: vg.Point{X: -1e9, Y: -1e9}}
		form := kind
		for _, p := range path {
			form += fmt.Sprintf(" %d", p.Type)
			if p.Type == vg.CloseComp {
				continue
			}
			form += fmt.Sprintf("(%.1f,%.1f,%.1f)", p.Pos.X-path[0].Pos.X, p.Pos.Y-path[0].Pos.Y, p.Radius)
			at.Min = vg.Point{X: min(at.Min.X, p.Pos.X-p.Radius), Y: min(at.Min.Y, p.Pos.Y-p.Radius)}
			at.Max = vg.Point{X: max(at.Max.X, p.Pos.X+p.Radius), Y: max(at.Max.Y, p.Pos.Y+p.Radius)}
		}
		m.all = append(m.all, mark{pen, form, at})
	}
	for _, a := range c.Actions {
		switch a := a.(type) {
		case *recorder.SetColor:
			pen, _ = color.NRGBAModel.Convert(a.Color).(color.NRGBA)
		case *recorder.Stroke:
			add("stroke", a.Path)
		case *recorder.Fill:
			add("fill", a.Path)
		case *recorder.Push:
			turned++
		case *recorder.Pop:
			turned--
		case *recorder.FillString:
			if turned == 0 {
				width := element.TextStyle(a.Size).Width(a.String)
				m.texts = append(m.texts, vg.Rectangle{Min: a.Point, Max: a.Point.Add(vg.Point{X: width, Y: a.Size / 2})})
			}
		}
	}
	return m
}

// iconMarks are what the data show of an entry of the legend: its glyph, else
// anything of its color.
func iconMarks(e element.LegendEntry, zoom vg.Length) []mark {
	var out []mark
	for _, icon := range e.Icons {
		k, ok := icon.(element.LegendKey)
		var c recorder.Canvas
		at := draw.Canvas{Canvas: &c, Rectangle: vg.Rectangle{Max: vg.Point{X: 40, Y: 40}}}
		on := element.NewZoomCanvas(at, zoom)
		if ok && k.Glyph.Shape != nil && k.Line.Color != element.Gray() && k.Glyph.Color != element.Gray() {
			on.DrawGlyph(k.Glyph, on.Center())
			out = append(out, marksOf(&c).all...)
			continue
		}
		icon.Thumbnail(&on)
		for _, m := range marksOf(&c).all {
			m.form = ""                          // a bar or a line has another length there
			if ok && m.color == element.Gray() { // it stands for several series
				continue
			}
			out = append(out, m)
		}
	}
	if len(out) == 0 { // of lines in grey, which explain those in color
		out = append(out, mark{color: element.NewSeriesStyle(0).Line.Color.(color.NRGBA)})
	}
	return out
}

// TestPaperSizesCanFail: the search for what the legend names finds no series
// that is not drawn.
func TestPaperSizesCanFail(t *testing.T) {
	f, err := Options{WidthInches: 3.5, HeightInches: 2.4}.Speedup(synthetic(t, seriesNames(4), []int{1, 2, 4}, 1, 5))
	check(t, err)
	whole := vg.Rectangle{Max: vg.Point{X: f.Width, Y: f.Height}}
	a := f.layOut(whole)
	drawn, data := recorded(f, whole), element.ScaleRectangle(a.data, a.zoom)
	for i := range 9 {
		want := iconMarks(element.LegendEntry{Icons: []plot.Thumbnailer{element.LegendKey(element.NewSeriesStyle(i))}}, a.zoom)[0]
		if got := drawn.inside(data, want); got != (i < 4) {
			t.Errorf("series %d of 4 found: %t", i, got)
		}
	}
	if !overlap(data, vg.Rectangle{Min: data.Min, Max: whole.Max}) || overlap(data, vg.Rectangle{Min: vg.Point{X: data.Min.X, Y: data.Max.Y}, Max: whole.Max}) {
		t.Error("overlap is not what its name says")
	}
}

// TestTooSmall: a size at which nobody can read a figure is an error that says
// the smallest one, at which it can be drawn.
func TestTooSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for n, name := range map[int]string{1: "speedup", 4: "train_test_time", 9: "loss_by_epoch"} {
		study := synthetic(t, seriesNames(n), []int{1, 2, 4, 8, 16}, 3, 20)
		for _, size := range [][2]float64{{1, 0.7}, {3.5, 0.6}, {0.9, 4}} {
			o := Options{WidthInches: size[0], HeightInches: size[1]}
			_, err := o.Make(name, study)
			var small *SizeError
			if !errors.As(err, &small) {
				t.Fatalf("%s at %v: error %v, expected a SizeError", name, size, err)
			}
			want := fmt.Sprintf("use at least %.1f × %.1f inches", small.LeastWidth, small.LeastHeight)
			if !strings.HasPrefix(err.Error(), "draw figure "+name+": ") || !strings.Contains(err.Error(), want) {
				t.Errorf("%s at %v: %v", name, size, err)
			}
			o.WidthInches, o.HeightInches = small.LeastWidth, small.LeastHeight
			if _, err := o.Make(name, study); err != nil {
				t.Errorf("%s cannot be drawn at the smallest size: %v", name, err)
			}
		}
	}
	f, err := Speedup(synthetic(t, seriesNames(4), []int{1, 2, 4}, 1, 5))
	check(t, err)
	f.Width, f.Height = vg.Inch, vg.Inch/2 // by the caller
	var small *SizeError
	if err := f.Save(t.TempDir() + "/f.png"); !errors.As(err, &small) {
		t.Errorf("error %v, expected a SizeError", err)
	}
	if _, err := (Options{WidthInches: 1, HeightInches: 1}).All(synthetic(t, seriesNames(4), []int{1, 2, 4}, 1, 5)); !errors.As(err, &small) {
		t.Errorf("All: error %v, expected a SizeError", err)
	}
	page, err := Panels("page", f, f)
	check(t, err)
	page.Width, page.Height = 2*vg.Inch, 2*vg.Inch
	if err := page.Save(t.TempDir() + "/p.png"); !errors.As(err, &small) || !strings.Contains(err.Error(), "panel (a)") {
		t.Errorf("page: error %v, expected a SizeError that names the panel", err)
	}
}

// TestOptionsOfLooks: title, labels, size of text, place of the legend and the
// order of the series are the caller's.
func TestOptionsOfLooks(t *testing.T) {
	study := synthetic(t, seriesNames(3), []int{1, 2, 4}, 1, 5)
	o := Options{
		Title: "My runs", XLabel: "GPUs", YLabel: "times faster", RightLabel: "overlap", FontSize: 9,
		Series: []string{"TensorFlow native", "PyTorch native"},
	}
	f, err := o.SpeedupIoU(study)
	check(t, err)
	svg := f.SVG()
	for _, want := range []string{">My runs<", ">GPUs<", ">times faster<", ">overlap<", "font-size:9px", "font-size:8.25px"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the picture has no %s", want)
		}
	}
	if first, second := strings.Index(svg, ">TensorFlow native<"), strings.Index(svg, ">PyTorch native<"); first < 0 || second < first {
		t.Errorf("the series are at %d and %d of the picture", first, second)
	}
	if f.legend[0].Name != "TensorFlow native" || strings.Contains(svg, "PyTorch Horovod") {
		t.Error("the series are not those of the options, in their order")
	}
	for _, name := range []string{"loss_by_epoch", "quality", "learning_rate", "pareto", "train_test_time", "throughput", "iou"} {
		f, err := Options{Series: o.Series}.Make(name, study)
		check(t, err)
		i := slices.IndexFunc(f.legend, func(e element.LegendEntry) bool { return strings.HasPrefix(e.Name, "TensorFlow native") })
		j := slices.IndexFunc(f.legend, func(e element.LegendEntry) bool { return strings.HasPrefix(e.Name, "PyTorch native") })
		if i < 0 || j < i {
			t.Errorf("%s: the series are at %d and %d of the legend, expected their order in the options", name, i, j)
		}
	}
	for position, of := range map[string]func(l, d vg.Rectangle) bool{
		LegendTop:    func(l, d vg.Rectangle) bool { return l.Min.Y >= d.Max.Y },
		LegendBottom: func(l, d vg.Rectangle) bool { return l.Max.Y <= d.Min.Y },
		LegendRight:  func(l, d vg.Rectangle) bool { return l.Min.X >= d.Max.X },
	} {
		f, err := Options{Legend: position}.Speedup(study)
		check(t, err)
		a := f.layOut(vg.Rectangle{Max: vg.Point{X: f.Width, Y: f.Height}})
		l := vg.Rectangle{Min: vg.Point{X: a.corner.X, Y: a.corner.Y - a.legend.Size.Y}, Max: vg.Point{X: a.corner.X + a.legend.Size.X, Y: a.corner.Y}}
		if !of(l, a.data) {
			t.Errorf("legend %s: at %v, the data at %v", position, l, a.data)
		}
	}
	if f, err = (Options{Legend: LegendNone}).Speedup(study); err != nil || strings.Contains(f.SVG(), "PyTorch native") {
		t.Errorf("%v: there is a legend", err)
	}
	for _, c := range []struct {
		o    Options
		part string
	}{{Options{Legend: "left"}, "unknown legend position \"left\"; use top, bottom, right, none"}, {Options{FontSize: 2}, "font size is 2 points, want 5.5 to 100"}} {
		if _, err := c.o.Speedup(study); err == nil || !strings.Contains(err.Error(), c.part) {
			t.Errorf("error %v, expected %q", err, c.part)
		}
	}
}

// TestBarsBesideEachOther: error bars of several series at one worker count do
// not cover each other, and bars of a series alone stay where they are.
func TestBarsBesideEachOther(t *testing.T) {
	bars := func(series int) []vg.Length {
		study := synthetic(t, seriesNames(series), []int{1, 2, 4}, 3, 5)
		f, err := Options{Intervals: IntervalsRange}.EpochTime(study)
		check(t, err)
		whole := vg.Rectangle{Max: vg.Point{X: f.Width, Y: f.Height}}
		a := f.layOut(whole)
		var xs []vg.Length
		for _, m := range recorded(f, whole).all {
			size := m.at.Size()
			if size.X < 1e-6 && size.Y > 2 && overlap(grownBy(m.at, 0.1), a.data) && slices.ContainsFunc(element.Palette(), func(c color.NRGBA) bool { return c == m.color }) {
				xs = append(xs, m.at.Min.X)
			}
		}
		slices.Sort(xs)
		return xs
	}
	one := bars(1)
	if len(one) != 3 {
		t.Fatalf("%d bars of one series with 3 worker counts: %v", len(one), one)
	}
	four := bars(4)
	if len(four) != 12 {
		t.Fatalf("%d bars of four series with 3 worker counts: %v", len(four), four)
	}
	for i := 1; i < len(four); i++ {
		if four[i]-four[i-1] < 3 {
			t.Errorf("two bars are %.1f points apart: %v", (four[i] - four[i-1]).Points(), four)
		}
	}
	for i := range 3 { // around the worker count
		if middle := (four[4*i] + four[4*i+3]) / 2; math.Abs(float64(middle-one[i])) > 12 {
			t.Errorf("bars at %v stand around %g, those of one series at %g", four[4*i:4*i+4], middle.Points(), one[i].Points())
		}
	}
	f, err := EpochTime(synthetic(t, seriesNames(4), []int{1, 2, 4}, 3, 5))
	check(t, err)
	if !strings.Contains(f.Caption(), "side by side") {
		t.Errorf("the caption does not say it: %q", f.Caption())
	}
}

// TestMarksOnTheFrame: a mark at the end of an axis is drawn whole, on
// whichever side of it rounding puts it.
func TestMarksOnTheFrame(t *testing.T) {
	for _, name := range []string{"iou", "speedup_iou", "quality"} {
		all := synthetic(t, []string{"ddp"}, []int{1, 2, 3, 5, 7}, 1, 5).Runs
		for i := range all {
			all[i].Info.Test.IoU, all[i].Info.Test.IoUUntrained, all[i].Info.Test.IoUConstant = 1, math.NaN(), math.NaN()
		}
		study, err := scaling.FromRuns(all)
		check(t, err)
		for _, size := range [][2]float64{{0, 0}, {3.5, 2.4}, {3.7, 2.9}, {5.1, 3.3}, {7, 3}} {
			f, err := Options{WidthInches: size[0], HeightInches: size[1]}.Make(name, study)
			check(t, err)
			whole := vg.Rectangle{Max: vg.Point{X: f.Width, Y: f.Height}}
			a := f.layOut(whole)
			look := element.LegendKey(element.NewSeriesStyle(0))
			if name == "speedup_iou" {
				look = element.LegendKey(rightAxisStyle(0))
			}
			want := iconMarks(element.LegendEntry{Icons: []plot.Thumbnailer{look}}, a.zoom)[0]
			n, data := 0, element.ScaleRectangle(a.data, a.zoom)
			for _, m := range recorded(f, whole).all {
				if m.color == want.color && m.form == want.form && math.Abs(float64((m.at.Min.Y+m.at.Max.Y)/2-data.Max.Y)) < 0.5 {
					n++
					if m.at.Max.Y > whole.Max.Y {
						t.Errorf("%s at %v: a mark at %v reaches out of the picture", name, size, m.at)
					}
				}
			}
			if n != 5 {
				t.Errorf("%s at %v: %d of 5 marks are drawn at the end of the axis", name, size, n)
			}
		}
	}
}

// TestTeXCaption: the table has its own caption; that of the figure describes a
// picture.
func TestTeXCaption(t *testing.T) {
	f, err := Options{NoTitle: true}.Speedup(synthetic(t, []string{"ddp"}, []int{1, 2}, 1, 4))
	check(t, err)
	text := f.TeX()
	if strings.Contains(text, escapeTeX(f.Caption())) || !strings.Contains(text, `\caption{Speed-up (cells): the plotted values.}`) {
		t.Error(text)
	}
}
