package figure

import (
	"fmt"
	"image/color"
	"slices"
	"strconv"
	"strings"

	"github.com/go-gota/gota/dataframe"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling"
)

// mostCurves is how many curves of loss a figure can hold and still be read.
const mostCurves = 6

// LossByEpoch draws the training loss, and where it is known the validation
// loss, against the epoch: a colour for each series and number of workers.
func (o Options) LossByEpoch(study *scaling.Study) (*Figure, error) {
	return o.losses(study, lossAxis{
		name: "loss_by_epoch", title: "Loss by epoch", label: "epoch", what: "Loss against the epoch",
		x: func(c *scaling.LossCurve) []float64 { return c.Epoch },
	})
}

// LossByTime draws the same against the time that was spent on training,
// validation not included: the cumulative time of the U-Net scaling studies.
func (o Options) LossByTime(study *scaling.Study) (*Figure, error) {
	return o.losses(study, lossAxis{
		name: "loss_by_time", title: "Loss by training time", label: "training time", what: "Loss against the cumulative training time (without validation)",
		x: func(c *scaling.LossCurve) []float64 { return c.Elapsed }, time: true,
	})
}

// LossByRelativeTime draws the same against the time since the first epoch
// began, validation included: what the clock on the wall shows.
func (o Options) LossByRelativeTime(study *scaling.Study) (*Figure, error) {
	f, err := o.losses(study, lossAxis{
		name: "loss_by_relative_time", title: "Loss by time since the start", label: "time since the start",
		what: "Loss against the time since the first epoch began (training and validation)",
		x:    func(c *scaling.LossCurve) []float64 { return c.Clock }, time: true,
	})
	if err != nil && study != nil && !slices.ContainsFunc(study.Runs, validationTimed) {
		return nil, fmt.Errorf("%w; the logs tell no time of validation: use figure.LossByTime", err)
	}
	return f, err
}

// validationTimed says whether a run tells the time of any validation.
func validationTimed(r runs.Run) bool {
	return slices.ContainsFunc(r.Epochs, func(e runs.Epoch) bool { return e.ValSeconds > 0 })
}

// lossAxis is what losses are drawn against.
type lossAxis struct {
	name, title, label, what string
	x                        func(*scaling.LossCurve) []float64
	time                     bool // in seconds
}

func (o Options) losses(study *scaling.Study, axis lossAxis) (*Figure, error) {
	name := axis.name
	study, err := o.of(study, name)
	if err != nil {
		return nil, err
	}
	all := study.LossCurves()
	series, label := len(study.Series()), func(c *scaling.LossCurve) string { return curveLabel(study, c.Series, c.Workers) }
	if tooMany(study) {
		all, series = combinedLosses(all), 1
		label = func(c *scaling.LossCurve) string { return workersText(c.Workers) }
	}
	shown := o.selected(all, series)
	f := o.figure(name, axis.title, axis.label, "loss")
	f.fill = func() {
		f.table = study.Epochs().Select([]string{"series", "workers", "seed", "run", "epoch", "elapsed_seconds", "train_loss", "val_loss"})
		f.brief = lastOfRuns(f.table)
	}
	unit := 1.0
	if axis.time {
		unit = f.timeAxis(shown, axis)
	}
	drawnTrain, drawnVal := false, false
	values := element.EmptyExtent()
	for i := range shown {
		c := &shown[i]
		train, val, err := f.curve(o, c, element.SeriesLook(i), axis.x(c), unit, &values)
		if err != nil {
			return nil, fmt.Errorf("draw figure %s: %w", name, err)
		}
		if train || val {
			l := element.SeriesLook(i)
			l.Line.Dashes = nil
			f.legend = append(f.legend, element.LegendEntry{Name: label(c), Icons: []plot.Thumbnailer{element.LegendKey(l)}})
		}
		drawnTrain, drawnVal = drawnTrain || train, drawnVal || val
	}
	if !drawnTrain && !drawnVal {
		return nil, fmt.Errorf("draw figure %s: no run has a loss for it%s", name, why(study, name))
	}
	f.trainOrVal(drawnTrain, drawnVal)
	if tooMany(study) {
		f.nameMedian(len(study.Series()), drawnTrain && o.Intervals != IntervalsNone)
	}
	f.caption = o.lossCaption(study, axis.what, len(all), len(shown)) + oneCount(study)
	f.lossAxes(o, axis, values)
	return f.sized()
}

// timeAxis names the unit in which the longest curve is legible, and returns
// its seconds.
func (f *Figure) timeAxis(shown []scaling.LossCurve, axis lossAxis) float64 {
	longest := element.EmptyExtent()
	for i := range shown {
		longest.Add(axis.x(&shown[i])...)
	}
	name, unit := element.TimeUnit(longest.Hi)
	f.plot.X.Label.Text = axis.label + " (" + name + ")"
	return unit
}

// trainOrVal says which lines are of which set.
func (f *Figure) trainOrVal(train, val bool) {
	switch {
	case !val:
		f.plot.Y.Label.Text = "training loss"
	case !train:
		f.plot.Y.Label.Text = "validation loss"
	default:
		solid := draw.LineStyle{Color: element.Gray(), Width: 1.6}
		dashed := solid
		dashed.Dashes = valDashes()
		dot := draw.GlyphStyle{Color: element.Gray(), Radius: element.SeriesLook(0).Glyph.Radius, Shape: draw.CircleGlyph{}}
		f.legend = append(f.legend,
			element.LegendEntry{Name: "training", Icons: []plot.Thumbnailer{element.LegendKey{Line: solid, Glyph: dot}}},
			element.LegendEntry{Name: "validation", Icons: []plot.Thumbnailer{element.LegendKey{Line: dashed, Glyph: dot}, element.LegendKey{Glyph: eye()}}})
	}
}

// lossAxes sets the ranges of the axes.
func (f *Figure) lossAxes(o Options, axis lossAxis, values element.Extent) {
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

// curveLabel names a curve by what tells it from others: its series, its
// workers, or both.
func curveLabel(study *scaling.Study, series string, workers int) string {
	switch {
	case len(study.Series()) == 1:
		return workersText(workers)
	case oneCount(study) != "":
		return series
	}
	return series + ", " + workersText(workers)
}

// oneCount says how many workers all runs of several series had, where it is
// one number; the legend does not.
func oneCount(study *scaling.Study) string {
	if len(study.Series()) == 1 {
		return ""
	}
	n := study.Points[0].Workers
	for _, p := range study.Points {
		if p.Workers != n {
			return ""
		}
	}
	return " All with " + workersText(n) + "."
}

func workersText(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return strconv.Itoa(n) + " workers"
}

// lastOfRuns is the last row of each run, which is enough for a paper's table.
func lastOfRuns(table dataframe.DataFrame) *dataframe.DataFrame {
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

func valDashes() []vg.Length { return []vg.Length{5, 3} }

// eye is drawn on the glyphs of validation.
func eye() draw.GlyphStyle {
	return draw.GlyphStyle{Color: color.White, Radius: 1.7, Shape: draw.CircleGlyph{}}
}

// selected leaves the curves that the options name, or where there are too
// many to be told apart the fewest and the most workers of each series and
// some evenly between; of very many series the most workers.
func (o Options) selected(all []scaling.LossCurve, series int) []scaling.LossCurve {
	if len(o.Workers) > 0 {
		return slices.DeleteFunc(slices.Clone(all), func(c scaling.LossCurve) bool { return !slices.Contains(o.Workers, c.Workers) })
	}
	if len(all) <= mostCurves {
		return all
	}
	each := max(2, mostCurves/series)
	if series > mostCurves { // that with the most workers alone
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

// lossCaption says what, and how much of it is drawn.
func (o Options) lossCaption(study *scaling.Study, what string, all, shown int) string {
	c := what + ". "
	var n []int
	for _, p := range study.Points {
		n = append(n, p.Runs)
	}
	many := tooMany(study)
	if many {
		c = what + "." + manyNote(len(study.Series()), "band", "training loss")
	} else {
		c += strings.Replace(runsAPoint(n), "point", "curve", 1)
	}
	if !many && repeated(study) {
		c += " Lines: medians of repeated runs; bands: from the lowest to the highest training loss of them."
	}
	c += o.smoothText()
	c += notDrawn(study)
	if shown < all {
		c += fmt.Sprintf(" %d of %d curves are drawn; the table has all.", shown, all)
	}
	return strings.TrimSpace(c)
}

// smoothText says how curves were smoothed.
func (o Options) smoothText() string {
	if o.Smooth == 0 {
		return ""
	}
	return fmt.Sprintf(" Smoothed by TensorBoard's exponential moving mean of weight %g; pale: as logged.", o.Smooth)
}

// curve draws one curve and says what there was to draw. A point lies at
// x/unit.
func (f *Figure) curve(o Options, c *scaling.LossCurve, l element.Look, x []float64, unit float64, values *element.Extent) (train, val bool, err error) {
	trains, vals := element.TraceOf(x, c.Train, 0, unit), element.TraceOf(x, c.Val, 0, unit)
	f.plot.X.Min, f.plot.X.Max = reachOf(x, unit, f.plot.X.Min, f.plot.X.Max)
	if c.Runs > 1 && o.Intervals != IntervalsNone {
		f.lossBand(o, c, l, x, unit, values)
	}
	for i, t := range []element.Trace{trains, vals} {
		if t.Len() == 0 {
			continue
		}
		values.AddOn(o.LogY, t.Y...)
		look := l
		look.Line.Dashes = nil
		if i == 1 && trains.Len() > 0 {
			look.Line.Dashes = valDashes()
		}
		if t, err = f.smoothed(o, t, look.Line, 90, 1); err != nil {
			return false, false, err
		}
		if err := f.thinned(t, look); err != nil {
			return false, false, err
		}
		if i == 1 && trains.Len() > 0 { // an eye tells validation where there is no line
			eyes, err := element.LineWithGlyphs(t.Thin(), glyphAlone(eye()))
			if err != nil {
				return false, false, err
			}
			f.plot.Add(eyes...)
		}
	}
	return trains.Len() > 0, vals.Len() > 0, nil
}

// reachOf is the range of an axis that shows x too.
func reachOf(x []float64, unit, lo, hi float64) (float64, float64) {
	reach := element.EmptyExtent()
	reach.Add(x...)
	return min(lo, reach.Lo/unit), max(hi, reach.Hi/unit)
}

// lossBand draws how far the training loss of repeated runs reaches.
func (f *Figure) lossBand(o Options, c *scaling.LossCurve, l element.Look, x []float64, unit float64, values *element.Extent) {
	var spread []element.Interval
	wide := false
	for i, at := range x {
		if !element.Finite(at) || !element.Finite(c.Train[i]) {
			continue
		}
		spread = append(spread, element.Interval{X: at / unit, Lo: c.TrainMin[i], Hi: c.TrainMax[i]})
		wide = wide || c.TrainMax[i] > c.TrainMin[i]
		values.AddOn(o.LogY, c.TrainMin[i], c.TrainMax[i])
	}
	if wide {
		f.plot.Add(element.Band{At: element.CondensedBand(spread), Fill: element.WithAlpha(l.Line.Color, 40)})
	}
}

// thinned draws a line with a few glyphs, which are enough to tell curves
// apart.
func (f *Figure) thinned(t element.Trace, l element.Look) error {
	drawn, err := element.LineWithGlyphs(t.Condensed(), lineAlone(l.Line))
	if err != nil {
		return err
	}
	points, err := element.LineWithGlyphs(t.Thin(), glyphAlone(l.Glyph))
	if err != nil {
		return err
	}
	f.plot.Add(append(drawn, points...)...)
	return nil
}

func lineAlone(style draw.LineStyle) element.Look   { return element.Look{Line: style} }
func glyphAlone(style draw.GlyphStyle) element.Look { return element.Look{Glyph: style} }

// smoothed is a line with the smoothing that the options ask for, if any; what
// was logged is drawn pale.
func (f *Figure) smoothed(o Options, t element.Trace, style draw.LineStyle, alpha uint8, width vg.Length) (element.Trace, error) {
	if o.Smooth == 0 {
		return t, nil
	}
	style.Color, style.Width = element.WithAlpha(style.Color, alpha), width
	raw, err := element.LineWithGlyphs(t.Condensed(), lineAlone(style))
	if err != nil {
		return t, err
	}
	f.plot.Add(raw...)
	t.Y = scaling.CurveLine{Y: t.Y}.Smoothed(o.Smooth).Y
	return t, nil
}
