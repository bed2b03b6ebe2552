package figure

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-gota/gota/dataframe"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling"
)

// barGroupWidth is the width of a group of bars as a fraction of the distance between groups.
const barGroupWidth = 0.8

// barOutlineStyle returns the outline of a bar, which separates it from its neighbors.
func barOutlineStyle() draw.LineStyle { return draw.LineStyle{Color: color.Black, Width: 0.5} }

// barRectangle returns the rectangle of the j-th of n bars in group i. lo and hi are its ends on
// the vertical axis.
func barRectangle(i, j, n int, lo, hi float64) element.DataRectangle {
	w := barGroupWidth / float64(n)
	x := float64(i) - barGroupWidth/2 + float64(j)*w
	return element.DataRectangle{X0: x, Y0: lo, X1: x + w, Y1: hi}
}

// setCategories labels the groups of bars with names, wrapped into as many lines as needed. It
// increases the figure's height for these lines, unless the options set the height.
func (f *Figure) setCategories(names []string) {
	axes := vg.Length(70) // for the vertical axis and the margins
	if f.right != nil {
		axes += f.right.Width()
	}
	beside := 0.3 * float64(max(0, 4-len(names)))
	f.plot.X.Min, f.plot.X.Max = -0.5-beside, float64(len(names))-0.5+beside
	zoom := f.zoomFactor(f.Width, f.natural)
	room := (f.Width/zoom - axes) / vg.Length(f.plot.X.Max-f.plot.X.Min)
	style := f.plot.X.Tick.Label
	ticks := element.NewCategoryTicks(names, room-4, style.Width)
	f.plot.X.Tick.Marker = ticks
	f.plot.X.Tick.Length = 0
	if f.options.HeightInches == 0 {
		lines := 1
		for _, label := range ticks.Lines {
			lines = max(lines, strings.Count(label, "\n")+1)
		}
		f.Height += vg.Length(lines-1) * style.FontExtents().Height * zoom
	}
}

// Trials draws the throughput of the loader alone (IO), of training on data in memory (SYNTHETIC)
// and of both together (FULL), with their spread: one group of bars per run. The slower of IO and
// SYNTHETIC limits FULL.
func (o Options) Trials(study *scaling.Study) (*Figure, error) {
	const name = "trials"
	study, err := o.selectSeries(study, name)
	if err != nil {
		return nil, err
	}
	bottleneck, err := study.Bottleneck()
	if err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	f := o.newFigure(name, "Throughput of parts and whole", "", "throughput ("+study.ThroughputUnit()+")")
	f.table = bottleneck.Table()
	brief := f.table.Drop("sentence").Drop("run")
	f.brief = &brief
	rows, combined := sortByRunOrder(study, bottleneck.Rows), 0
	if hasManySeries(study) {
		rows, combined = combineBottleneckRows(rows), len(study.Series())
	}
	var names []string
	for _, r := range rows {
		label := r.Series
		if combined > 0 {
			names = append(names, english.FormatCount(r.Workers, "worker"))
			continue
		}
		if slices.ContainsFunc(rows, func(x scaling.BottleneckRow) bool { return x.Series == r.Series && x.Workers != r.Workers }) {
			label += " " + english.FormatCount(r.Workers, "worker")
		}
		names = append(names, label)
	}
	f.setCategories(names)
	values, reach := element.EmptyExtent(), element.EmptyExtent()
	for j, trial := range []struct {
		name string
		span func(scaling.BottleneckRow) scaling.Estimate
	}{
		{"IO (loader)", func(r scaling.BottleneckRow) scaling.Estimate { return r.IO }},
		{"SYNTHETIC (training)", func(r scaling.BottleneckRow) scaling.Estimate { return r.Synthetic }},
		{"FULL (both)", func(r scaling.BottleneckRow) scaling.Estimate { return r.Full }},
	} {
		bars := element.DataRectangles{Fill: element.Palette()[[]int{4, 5, 0}[j]], Edge: barOutlineStyle()}
		bounds := element.ErrorBars{Style: draw.LineStyle{Color: color.Black, Width: 1}, Within: barGroupWidth / 3}
		for i, r := range rows {
			v := trial.span(r)
			if !element.IsFinite(v.Value) {
				continue
			}
			at := barRectangle(i, j, 3, 0, v.Value)
			bars.At = append(bars.At, at)
			values.Add(v.Value)
			if lo, hi, _, ok := o.estimateBarRange(v); ok {
				bounds.At = append(bounds.At, element.Interval{X: at.MiddleX(), Lo: lo, Hi: hi})
				reach.Add(lo, hi)
			}
		}
		f.plot.Add(bars, bounds)
		f.legend = append(f.legend, element.LegendEntry{Name: trial.name, Icons: []plot.Thumbnailer{bars}})
	}
	element.SetValueAxis(&f.plot.Y, values, reach, o.LogY, false)
	if o.LogY {
		f.plot.Y.Min = values.Lo / 2
	}
	f.caption = fmt.Sprintf("Throughput of the loader alone (IO), of training on data in memory (SYNTHETIC) and of both together (FULL), n = %s; bars on top: ± the logged spread over the trials.", english.FormatCount(len(rows), "run"))
	if combined > 0 {
		f.caption = "Throughput of the loader alone (IO), of training on data in memory (SYNTHETIC) and of both together (FULL)." +
			strings.Replace(medianNote(combined, "bars on top", "throughput"), "Line", "Bar", 1)
	}
	f.caption += joinBottleneckConclusions(rows)
	return f.finishLayout(study)
}

// sortByRunOrder returns rows in the order of the study's runs.
func sortByRunOrder(study *scaling.Study, rows []scaling.BottleneckRow) []scaling.BottleneckRow {
	at := map[string]int{}
	for i, r := range study.Runs {
		at[r.Info.Series+"\x00"+strconv.Itoa(r.Info.Workers)] = i
	}
	out := slices.Clone(rows)
	slices.SortStableFunc(out, func(a, b scaling.BottleneckRow) int {
		return at[a.Series+"\x00"+strconv.Itoa(a.Workers)] - at[b.Series+"\x00"+strconv.Itoa(b.Workers)]
	})
	return out
}

// joinBottleneckConclusions joins the sentences of rows for a caption. It returns "" for more than three
// rows.
func joinBottleneckConclusions(rows []scaling.BottleneckRow) string {
	const most = 3
	if len(rows) > most {
		return ""
	}
	text := ""
	for _, r := range rows {
		if r.Sentence != "" {
			text += " " + strings.TrimSuffix(r.Sentence, ".") + "."
		}
	}
	return text
}

// TrainTestTime draws the time of the complete training and of the test as bars. Each worker count
// has one group, with one bar per series and the test on top. If the test is much shorter than the
// training, the axis is logarithmic and the test's bar is beside the training's, so that both are
// visible. If the logs contain the IoU on the test set, marks over the bars show it on the right
// axis, as in the U-Net scaling studies (github.com/oekosheri).
func (o Options) TrainTestTime(study *scaling.Study) (*Figure, error) {
	const name = "train_test_time"
	study, err := o.selectSeries(study, name)
	if err != nil {
		return nil, err
	}
	d := timeBars{
		o: o, unit: 1, values: element.EmptyExtent(), reach: element.EmptyExtent(), shortestTest: math.Inf(1), longest: element.EmptyExtent(), iou: element.EmptyExtent(),
		train: func(p scaling.Point) scaling.Estimate { return p.TrainSeconds },
		test:  func(p scaling.Point) scaling.Estimate { return p.TestSeconds },
	}
	fullStudy, combined := study, 0
	if hasManySeries(study) {
		study, combined = combineSeries(study, study.Points, func(p scaling.Point) int { return p.Workers })
	}
	d.collectAxisRanges(study)
	if len(d.sizes) == 0 {
		return nil, fmt.Errorf("draw figure %s: no run has a training time%s", name, explainMissingValues(study, name))
	}
	title := "Training time"
	if d.hasTestTime() {
		title = "Training and test time"
	}
	f := o.newFigure(name, title, "workers", d.axisLabel())
	columns := append([]string{"series", "workers", "runs"}, withIntervalColumns("train_seconds", "test_seconds")...)
	if d.hasIoU() {
		columns = append(columns, withIntervalColumns("iou")...)
		f.setRightAxis(&element.RightAxis{Plot: element.NewPlot("", "", iouLabel(study))}, d.iou)
	}
	f.table = fullStudy.Table().Select(columns)
	names := make([]string, len(d.sizes))
	for i, size := range d.sizes {
		names[i] = strconv.Itoa(size)
	}
	f.setCategories(names)
	for j, s := range study.Series() {
		d.drawSeriesBars(f, study, s, j, len(study.Series()))
	}
	if d.hasTestTime() {
		f.legend = append(f.legend, element.LegendEntry{Name: "test", Icons: []plot.Thumbnailer{element.DataRectangles{Fill: color.White, Edge: barOutlineStyle()}}})
	}
	if d.hasIoU() {
		f.legend = append(f.legend, element.LegendEntry{Name: "IoU (right)", Icons: []plot.Thumbnailer{element.LegendKey{Glyph: iouGlyph(color.White)}}})
		f.alignRightAxis()
	}
	element.SetValueAxis(&f.plot.Y, d.values, d.reach, d.log, false)
	if d.log { // so that the lowest bar is visible
		f.plot.Y.Min = d.values.Lo / 2
	}
	f.caption = d.captionText(study, combined) + failedRunsNote(study)
	return f.finishLayout(study)
}

type timeBars struct {
	o                Options
	log              bool
	unit             float64
	values, reach    element.Extent
	train, test      func(scaling.Point) scaling.Estimate
	intervals        bool
	sizes, runCounts []int          // worker counts; runs per training bar
	longest          element.Extent // of training and test together, seconds
	shortestTest     float64        // shortest test, seconds; +Inf if there is none
	iou              element.Extent // of the points with bars; empty if none has an IoU
}

func (d *timeBars) hasIoU() bool { return d.iou.Lo <= d.iou.Hi }

func iouGlyph(c color.Color) draw.GlyphStyle {
	return draw.GlyphStyle{Color: c, Radius: 2.8, Shape: element.OutlinedDotGlyph{}}
}

func (d *timeBars) hasTestTime() bool { return element.IsFinite(d.shortestTest) }

// collectAxisRanges collects the worker counts and time ranges, and decides whether the axis is logarithmic.
func (d *timeBars) collectAxisRanges(study *scaling.Study) {
	shortest := element.EmptyExtent()
	for _, p := range study.Points {
		if !element.IsFinite(d.train(p).Value) {
			continue
		}
		total := d.train(p).Value
		shortest.Add(total)
		if test := d.test(p).Value; element.IsFinite(test) {
			total += test
			shortest.Add(test)
			d.shortestTest = min(d.shortestTest, test)
		}
		d.longest.Add(total)
		if iou := p.IoU.Value; element.IsFinite(iou) {
			d.iou.Add(iou)
		}
		d.sizes, d.runCounts = append(d.sizes, p.Workers), append(d.runCounts, d.train(p).N)
	}
	slices.Sort(d.sizes)
	d.sizes = slices.Compact(d.sizes)
	const visible = 0.02 // as a fraction of the highest bar
	d.log = shortest.Lo > 0 && (d.o.LogY || d.hasTestTime() && d.shortestTest < visible*d.longest.Hi)
}

// axisLabel returns the label of the vertical axis, and sets d.unit to match it.
func (d *timeBars) axisLabel() string {
	if d.log {
		return "time (s), logarithmic"
	}
	name, unit := element.ChooseTimeUnit(d.longest.Hi)
	d.unit = unit
	return "time (" + name + ")"
}

// drawSeriesBars draws the bars of a series, which is the j-th of n series.
func (d *timeBars) drawSeriesBars(f *Figure, study *scaling.Study, series string, j, n int) {
	style := seriesStyleIndex(study, series)
	bars := element.DataRectangles{Fill: element.Palette()[style%len(element.Palette())], Edge: barOutlineStyle()}
	if style >= len(element.Palette()) { // the palette repeats with paler colors
		bars.Fill = element.WithAlpha(bars.Fill, 120)
	}
	testBeside := d.log && d.hasTestTime() // else each test bar is on top of its training bar
	if testBeside {
		j, n = 2*j, 2*n
	}
	tests := element.DataRectangles{Fill: color.White, Edge: barOutlineStyle()}
	bounds := element.ErrorBars{Style: draw.LineStyle{Color: color.Black, Width: 1}, Within: barGroupWidth / float64(n)}
	iou := element.Dots{Style: iouGlyph(bars.Fill)}
	for _, p := range study.Points {
		v := d.train(p)
		if p.Series != series || !element.IsFinite(v.Value) {
			continue
		}
		i := slices.Index(d.sizes, p.Workers)
		at := barRectangle(i, j, n, 0, v.Value/d.unit)
		bars.At = append(bars.At, at)
		d.values.Add(at.Y1)
		if element.IsFinite(p.IoU.Value) {
			iou.XY = append(iou.XY, plotter.XY{X: at.MiddleX(), Y: p.IoU.Value})
		}
		if t := d.test(p); element.IsFinite(t.Value) {
			on := barRectangle(i, j, n, at.Y1, at.Y1+t.Value/d.unit)
			if testBeside {
				on = barRectangle(i, j+1, n, 0, t.Value/d.unit)
			}
			tests.At = append(tests.At, on)
			d.values.Add(on.Y1)
		}
		if lo, hi, confident, ok := d.o.estimateBarRange(v); ok {
			bounds.At = append(bounds.At, element.Interval{X: at.MiddleX(), Lo: lo / d.unit, Hi: hi / d.unit})
			d.reach.AddOnAxis(d.log, lo/d.unit, hi/d.unit)
			d.intervals = d.intervals || confident
		}
	}
	f.plot.Add(bars, tests, bounds)
	if f.right != nil {
		f.right.Plotters = append(f.right.Plotters, iou)
	}
	f.legend = append(f.legend, element.LegendEntry{Name: series, Icons: []plot.Thumbnailer{bars}})
}

// captionText describes the bars and their axis. combined is the number of series if the bars are
// medians over all series, or 0 if they are not.
func (d *timeBars) captionText(study *scaling.Study, combined int) string {
	c := "Time of the whole training"
	switch {
	case d.hasTestTime() && d.log:
		c += ", and beside it (white) of the test, on a logarithmic axis"
	case d.hasTestTime():
		c += ", and on top of it (white) of the test"
	case d.log:
		c += ", on a logarithmic axis"
	}
	c += "."
	if combined > 0 {
		c += strings.Replace(medianNote(combined, "bars on top", "time of training"), "Line", "Bar", 1)
	} else {
		c += " " + runsPerPointNote(d.runCounts)
	}
	if d.intervals {
		c += " Bars on top: " + intervalsNote(study)
	}
	if !d.hasTestTime() {
		c += " The logs contain no test time."
	}
	if d.hasIoU() {
		c += " Circles (right axis): " + iouLabel(study) + " on the " + evaluatedDatasetName(study) + " after training."
	}
	return c
}

// TimeUse draws how the time of a step is spent, as stacked bars: data, compute, exposed
// communication and idle. A narrow bar inside compute is the communication that is hidden by
// compute.
func (o Options) TimeUse(study *scaling.Study) (*Figure, error) {
	const name = "time_use"
	study, err := o.selectSeries(study, name)
	if err != nil {
		return nil, err
	}
	use, combined := study.TimeUse(), 0
	if len(use.Rows) == 0 {
		text := "no run has step spans (steps-<rank>.jsonl of a run folder) or a trace"
		if len(use.Problems) > 0 {
			text += "; " + use.Problems[0].String()
		}
		return nil, fmt.Errorf("draw figure %s: %s", name, text)
	}
	longest := element.EmptyExtent()
	rows, axis := use.Rows, "series and workers"
	if hasManySeries(study) {
		rows, axis, combined = averageTimeUseRows(rows), "workers", len(study.Series())
	}
	var names []string
	for _, r := range rows {
		longest.Add(r.Step.Value)
		names = append(names, strings.TrimSpace(fmt.Sprintf("%s %d", r.Series, r.Workers)))
	}
	unitName, unit := element.ChooseTimeUnit(longest.Hi)
	f := o.newFigure(name, "Where the time of a step goes", axis, "time of a step ("+unitName+")")
	f.table = use.Table()
	f.brief = dropIntervalColumns(f.table)
	f.setCategories(names)
	parts := []struct {
		name string
		fill color.Color
		span func(scaling.TimeUseRow) scaling.Estimate
	}{
		{"data", activityColor("data"), func(r scaling.TimeUseRow) scaling.Estimate { return r.Data }},
		{"compute", activityColor("compute"), func(r scaling.TimeUseRow) scaling.Estimate { return r.Compute }},
		{"exposed communication", activityColor("exposed"), func(r scaling.TimeUseRow) scaling.Estimate { return r.Exposed }},
		{"idle", activityColor("idle"), func(r scaling.TimeUseRow) scaling.Estimate { return r.Idle }},
	}
	bases := make([]float64, len(rows))
	values := element.EmptyExtent()
	hidden := element.DataRectangles{Fill: activityColor("hidden"), Edge: barOutlineStyle()}
	for k, part := range parts {
		bars := element.DataRectangles{Fill: part.fill, Edge: barOutlineStyle()}
		for i, r := range rows {
			v := part.span(r).Value / unit
			if !(v > 0) {
				continue
			}
			at := barRectangle(i, 0, 1, bases[i], bases[i]+v)
			bars.At = append(bars.At, at)
			if h := r.Hidden.Value / unit; k == 1 && h > 0 {
				hidden.At = append(hidden.At, element.DataRectangle{X0: at.X1 - 0.22, Y0: at.Y1 - min(h, v), X1: at.X1 - 0.06, Y1: at.Y1})
			}
			bases[i] += v
			values.Add(bases[i])
		}
		if len(bars.At) > 0 {
			f.plot.Add(bars)
			f.legend = append(f.legend, element.LegendEntry{Name: part.name, Icons: []plot.Thumbnailer{bars}})
		}
	}
	if len(hidden.At) > 0 {
		f.plot.Add(hidden)
		f.legend = append(f.legend, element.LegendEntry{Name: "communication hidden by compute", Icons: []plot.Thumbnailer{hidden}})
	}
	values.Add(0)
	element.SetValueAxis(&f.plot.Y, values, element.EmptyExtent(), false, false)
	f.caption = timeUseCaption(study, use)
	if combined > 0 {
		f.caption += fmt.Sprintf(" Each bar: the mean over %d series.", combined) + seriesSelectionHint()
	}
	return f.finishLayout(study)
}

func dropIntervalColumns(table dataframe.DataFrame) *dataframe.DataFrame {
	var names []string
	for _, n := range table.Names() {
		if !strings.HasSuffix(n, "_low") && !strings.HasSuffix(n, "_high") && !strings.HasSuffix(n, "_min") && !strings.HasSuffix(n, "_max") {
			names = append(names, n)
		}
	}
	brief := table.Select(names)
	return &brief
}

// timeUseCaption describes the bars, their sources, and the number of runs and steps.
func timeUseCaption(study *scaling.Study, use *scaling.TimeUse) string {
	steps, runs := 0, 0
	var sources []string
	for _, r := range use.Rows {
		steps, runs = steps+r.Steps, runs+r.Runs
		if !slices.Contains(sources, r.Source) {
			sources = append(sources, r.Source)
		}
	}
	return fmt.Sprintf("Where the time of a step goes, mean over steps and ranks, from %s; n = %s, %s.%s",
		strings.Join(sources, " and "), english.FormatCount(runs, "run"), english.FormatCount(steps, "step"), failedRunsNote(study))
}
