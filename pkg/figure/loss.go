package figure

import (
	"cmp"
	"fmt"
	"image/color"
	"slices"
	"strings"

	"github.com/go-gota/gota/dataframe"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// maxLossCurves is the largest number of loss curves in a legible figure.
const maxLossCurves = 6

// LossByEpoch draws the training loss and, if known, the validation loss against the epoch: one
// color per series and worker count.
func (o Options) LossByEpoch(study *scaling.Study) (*Figure, error) {
	return o.drawLosses(study, lossAxis{
		name: "loss_by_epoch", title: "Loss by epoch", label: "epoch", what: "Loss against the epoch",
		x: func(c *scaling.LossCurve) []float64 { return c.Epoch },
	})
}

// LossByTime draws the losses against the cumulative training time without validation, as in the
// U-Net scaling studies.
func (o Options) LossByTime(study *scaling.Study) (*Figure, error) {
	return o.drawLosses(study, lossAxis{
		name: "loss_by_time", title: "Loss by training time", label: "training time", what: "Loss against the cumulative training time (without validation)",
		x: func(c *scaling.LossCurve) []float64 { return c.Elapsed }, time: true,
	})
}

// LossByRelativeTime draws the losses against the time since the start of the first epoch,
// including validation.
func (o Options) LossByRelativeTime(study *scaling.Study) (*Figure, error) {
	f, err := o.drawLosses(study, lossAxis{
		name: "loss_by_relative_time", title: "Loss by time since the start", label: "time since the start",
		what: "Loss against the time since the first epoch began (training and validation)",
		x:    func(c *scaling.LossCurve) []float64 { return c.Clock }, time: true, column: "clock_seconds",
	})
	if err != nil && study != nil && !slices.ContainsFunc(study.Runs, hasValidationTime) {
		return nil, fmt.Errorf("%w; the logs contain no validation time: draw the figure loss_by_time", err)
	}
	return f, err
}

func hasValidationTime(r runs.Run) bool {
	return slices.ContainsFunc(r.Epochs, func(e runs.Epoch) bool { return e.ValSeconds > 0 })
}

type lossAxis struct {
	name, title, label, what string
	x                        func(*scaling.LossCurve) []float64
	time                     bool   // x is in seconds
	column                   string // column of Study.Epochs with the times in the figure's table; empty for elapsed_seconds
}

func (o Options) drawLosses(study *scaling.Study, axis lossAxis) (*Figure, error) {
	name := axis.name
	study, err := o.selectSeries(study, name)
	if err != nil {
		return nil, err
	}
	all := study.LossCurves()
	series, label := len(study.Series()), func(c *scaling.LossCurve) string { return curveLabel(study, c.Series, c.Workers) }
	if hasManySeries(study) {
		all, series = combineLosses(all), 1
		label = func(c *scaling.LossCurve) string { return english.FormatCount(c.Workers, "worker") }
	}
	shown := o.selectLossCurves(all, series)
	f := o.newFigure(name, axis.title, axis.label, "loss")
	f.computeTable = func() {
		f.table = study.Epochs().Select([]string{"series", "workers", "seed", "run", "epoch", cmp.Or(axis.column, "elapsed_seconds"), "train_loss", "val_loss"})
		f.brief = lastRowPerRun(f.table)
	}
	unit := 1.0
	if axis.time {
		unit = f.labelTimeAxis(shown, axis)
	}
	drawnTrain, drawnVal := false, false
	values := element.EmptyExtent()
	styles := curveStyles(study, len(shown), func(i int) string { return shown[i].Series })
	for i := range shown {
		c := &shown[i]
		train, val := f.drawLossCurve(o, c, styles[i], axis.x(c), unit, &values)
		if train || val {
			l := styles[i]
			l.Line.Dashes = nil
			drawn := c.Train
			if val {
				drawn = c.Val
			}
			f.legend = append(f.legend, newLineLegendEntry(label(c), l, drawn))
		}
		drawnTrain, drawnVal = drawnTrain || train, drawnVal || val
	}
	if !drawnTrain && !drawnVal {
		return nil, fmt.Errorf("draw figure %s: no run has a loss to draw%s", name, explainMissingValues(study, name))
	}
	f.labelLosses(drawnTrain, drawnVal)
	if hasManySeries(study) {
		f.addMedianToLegend(len(study.Series()), drawnTrain && o.Intervals != IntervalsNone)
	}
	f.caption = o.lossCaption(study, axis.what, len(all), len(shown)) + commonWorkersNote(study)
	f.setLossAxes(o, axis, values)
	return f.finishLayout(study)
}

// labelTimeAxis labels the axis with a time unit that suits the longest curve, and returns the unit
// in seconds.
func (f *Figure) labelTimeAxis(shown []scaling.LossCurve, axis lossAxis) float64 {
	longest := element.EmptyExtent()
	for i := range shown {
		longest.Add(axis.x(&shown[i])...)
	}
	name, unit := element.ChooseTimeUnit(longest.Hi)
	f.plot.X.Label.Text = axis.label + " (" + name + ")"
	return unit
}

// labelLosses names the kind of loss in the axis label if there is only one, or else adds both
// kinds to the legend.
func (f *Figure) labelLosses(train, val bool) {
	switch {
	case !val:
		f.plot.Y.Label.Text = "training loss"
	case !train:
		f.plot.Y.Label.Text = "validation loss"
	default:
		solid := draw.LineStyle{Color: element.Gray(), Width: 1.6}
		dashed := solid
		dashed.Dashes = validationDashes()
		dot := draw.GlyphStyle{Color: element.Gray(), Radius: element.NewSeriesStyle(0).Glyph.Radius, Shape: draw.CircleGlyph{}}
		f.legend = append(f.legend,
			element.LegendEntry{Name: "training", Icons: []plot.Thumbnailer{element.LegendKey{Line: solid, Glyph: dot}}},
			element.LegendEntry{Name: "validation", Icons: []plot.Thumbnailer{element.LegendKey{Line: dashed, Glyph: dot}, element.LegendKey{Glyph: validationDot()}}})
	}
}

func (f *Figure) setLossAxes(o Options, axis lossAxis, values element.Extent) {
	element.SetValueAxis(&f.plot.Y, values, element.EmptyExtent(), o.LogY, false)
	if axis.time {
		f.plot.X.Min, f.plot.X.Max = 0, f.plot.X.Max*1.02
		if !(f.plot.X.Max > 0) { // no time passed
			f.plot.X.Max = 1
		}
		return
	}
	f.plot.X.Tick.Marker = element.EpochTicks{}
	if f.plot.X.Min == f.plot.X.Max { // one epoch
		f.plot.X.Min, f.plot.X.Max = f.plot.X.Min-1, f.plot.X.Max+1
	}
}

// curveLabel returns a label that distinguishes a curve from the study's others: its series, its
// worker count, or both.
func curveLabel(study *scaling.Study, series string, workers int) string {
	switch {
	case len(study.Series()) == 1:
		return english.FormatCount(workers, "worker")
	case commonWorkersNote(study) != "":
		return series
	}
	return series + ", " + english.FormatCount(workers, "worker")
}

// commonWorkersNote returns a sentence with the worker count that all series share and that the
// legend therefore omits. It returns "" if there is no such count.
func commonWorkersNote(study *scaling.Study) string {
	if len(study.Series()) == 1 {
		return ""
	}
	n := study.Points[0].Workers
	for _, p := range study.Points {
		if p.Workers != n {
			return ""
		}
	}
	return " All with " + english.FormatCount(n, "worker") + "."
}

// lastRowPerRun returns the last row of each run, for tables in papers.
func lastRowPerRun(table dataframe.DataFrame) *dataframe.DataFrame {
	names := table.Col("run").Records()
	var last []int
	for i, name := range names {
		if i+1 == len(names) || names[i+1] != name {
			last = append(last, i)
		}
	}
	rows := table.Subset(last).Drop("run")
	return &rows
}

func validationDashes() []vg.Length { return []vg.Length{5, 3} }

func validationDot() draw.GlyphStyle {
	return draw.GlyphStyle{Color: color.White, Radius: 1.7, Shape: draw.CircleGlyph{}}
}

// selectLossCurves returns the curves of Options.Workers. Without this option, it returns all curves if
// there are at most maxCurves. Otherwise it selects worker counts in each series: only the largest
// if there are more than maxLossCurves series, else the smallest, the largest and some evenly spaced
// between them.
func (o Options) selectLossCurves(all []scaling.LossCurve, series int) []scaling.LossCurve {
	if len(o.Workers) > 0 {
		return slices.DeleteFunc(slices.Clone(all), func(c scaling.LossCurve) bool { return !slices.Contains(o.Workers, c.Workers) })
	}
	if len(all) <= maxLossCurves {
		return all
	}
	each := max(2, maxLossCurves/series)
	if series > maxLossCurves { // only the most workers
		each = 1
	}
	var out []scaling.LossCurve
	for start := 0; start < len(all); {
		end := start
		for end < len(all) && all[end].Series == all[start].Series {
			end++
		}
		n := end - start
		for k := range min(each, n) {
			i := end - 1
			if m := min(each, n); m > 1 {
				i = start + k*(n-1)/(m-1)
			}
			out = append(out, all[i])
		}
		start = end
	}
	return out
}

// lossCaption describes loss curves. It counts the curves if some are not drawn.
func (o Options) lossCaption(study *scaling.Study, what string, all, shown int) string {
	c := what + ". "
	var n []int
	for _, p := range study.Points {
		n = append(n, p.Runs)
	}
	combined := hasManySeries(study)
	if combined {
		c = what + "." + medianNote(len(study.Series()), "band", "training loss")
	} else {
		c += strings.Replace(runsPerPointNote(n), "point", "curve", 1)
	}
	if !combined && hasRepeats(study) {
		c += " Lines: medians of repeated runs; bands: from the lowest to the highest training loss of these runs."
	}
	c += o.smoothingNote()
	c += failedRunsNote(study)
	if shown < all {
		c += fmt.Sprintf(" %d of %d curves are drawn; the table has all.", shown, all)
	}
	return strings.TrimSpace(c)
}

func (o Options) smoothingNote() string {
	if o.Smooth == 0 {
		return ""
	}
	return fmt.Sprintf(" Smoothed by TensorBoard's exponential moving mean of weight %g; pale lines: the logged values.", o.Smooth)
}

// drawLossCurve draws a loss curve at the horizontal positions x/unit, and reports which losses it has.
func (f *Figure) drawLossCurve(o Options, c *scaling.LossCurve, l element.SeriesStyle, x []float64, unit float64, values *element.Extent) (train, val bool) {
	trains, vals := element.NewLineData(x, c.Train, 0, unit), element.NewLineData(x, c.Val, 0, unit)
	f.plot.X.Min, f.plot.X.Max = extendRange(x, unit, f.plot.X.Min, f.plot.X.Max)
	if c.Runs > 1 && o.Intervals != IntervalsNone {
		f.drawLossBand(o, c, l, x, unit, values)
	}
	for i, t := range []element.LineData{trains, vals} {
		if t.Len() == 0 {
			continue
		}
		values.AddOnAxis(o.LogY, t.Y...)
		look := l
		look.Line.Dashes = nil
		if i == 1 && trains.Len() > 0 {
			look.Line.Dashes = validationDashes()
		}
		t = f.smoothLineData(o, t, look.Line, 90, 1)
		f.drawLineWithFewGlyphs(t, look)
		if i == 1 && trains.Len() > 0 { // the dots mark validation even without a line
			f.plot.Add(element.LineWithGlyphs(t.Thin(), glyphOnlyStyle(validationDot()))...)
		}
	}
	return trains.Len() > 0, vals.Len() > 0
}

// extendRange returns the range from lo to hi, extended to include all values of x/unit.
func extendRange(x []float64, unit, lo, hi float64) (float64, float64) {
	reach := element.EmptyExtent()
	reach.Add(x...)
	return min(lo, reach.Lo/unit), max(hi, reach.Hi/unit)
}

func (f *Figure) drawLossBand(o Options, c *scaling.LossCurve, l element.SeriesStyle, x []float64, unit float64, values *element.Extent) {
	var spread []element.Interval
	wide := false
	for i, at := range x {
		if !element.IsFinite(at) || !element.IsFinite(c.Train[i]) {
			continue
		}
		spread = append(spread, element.Interval{X: at / unit, Lo: c.TrainMin[i], Hi: c.TrainMax[i]})
		wide = wide || c.TrainMax[i] > c.TrainMin[i]
		values.AddOnAxis(o.LogY, c.TrainMin[i], c.TrainMax[i])
	}
	if wide {
		f.plot.Add(element.Band{At: element.CondenseBand(spread), Fill: element.WithAlpha(l.Line.Color, 40)})
	}
}

// drawLineWithFewGlyphs draws a line with a few glyphs, which are enough to distinguish it from others.
func (f *Figure) drawLineWithFewGlyphs(t element.LineData, l element.SeriesStyle) {
	f.plot.Add(element.LineWithGlyphs(t.Condense(), lineOnlyStyle(l.Line))...)
	f.plot.Add(element.LineWithGlyphs(t.Thin(), glyphOnlyStyle(l.Glyph))...)
}

func lineOnlyStyle(style draw.LineStyle) element.SeriesStyle { return element.SeriesStyle{Line: style} }

func glyphOnlyStyle(style draw.GlyphStyle) element.SeriesStyle {
	return element.SeriesStyle{Glyph: style}
}

// smoothLineData returns t smoothed by Options.Smooth. If Options.Smooth is not 0, it also draws the
// original t in a pale color.
func (f *Figure) smoothLineData(o Options, t element.LineData, style draw.LineStyle, alpha uint8, width vg.Length) element.LineData {
	if o.Smooth == 0 {
		return t
	}
	style.Color, style.Width = element.WithAlpha(style.Color, alpha), width
	f.plot.Add(element.LineWithGlyphs(t.Condense(), lineOnlyStyle(style))...)
	t.Y = scaling.CurveLine{Y: t.Y}.Smoothed(o.Smooth).Y
	return t
}
