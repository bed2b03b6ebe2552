package figure

import (
	"fmt"
	"image/color"
	"slices"
	"strconv"
	"strings"

	"github.com/go-gota/gota/dataframe"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/scaling"
)

// mostCurves is how many curves of loss a figure can hold and still be read.
const mostCurves = 6

// LossByEpoch draws the training loss, and where it is known the validation
// loss, against the epoch: a colour for each series and number of workers.
func (o Options) LossByEpoch(study *scaling.Study) (*Figure, error) {
	return o.losses(study, lossAxis{
		name: "loss_by_epoch", title: "Loss by epoch", label: "epoch", what: "Loss against the epoch",
		x: func(e epochLoss) float64 { return float64(e.epoch) },
	})
}

// LossByTime draws the same against the time that was spent on training,
// validation not included: the cumulative time of the U-Net scaling studies.
func (o Options) LossByTime(study *scaling.Study) (*Figure, error) {
	return o.losses(study, lossAxis{
		name: "loss_by_time", title: "Loss by training time", label: "training time", what: "Loss against the cumulative training time (without validation)",
		x: func(e epochLoss) float64 { return e.elapsed }, time: true,
	})
}

// LossByRelativeTime draws the same against the time since the first epoch
// began, validation included: what the clock on the wall shows.
func (o Options) LossByRelativeTime(study *scaling.Study) (*Figure, error) {
	f, err := o.losses(study, lossAxis{
		name: "loss_by_relative_time", title: "Loss by time since the start", label: "time since the start",
		what: "Loss against the time since the first epoch began (training and validation)",
		x:    func(e epochLoss) float64 { return e.clock }, time: true,
	})
	if err != nil && study != nil && !slices.ContainsFunc(study.EpochRows(), func(r scaling.EpochRow) bool { return r.ValSeconds > 0 }) {
		return nil, fmt.Errorf("%w; the logs tell no time of validation: use figure.LossByTime", err)
	}
	return f, err
}

// lossAxis is what losses are drawn against.
type lossAxis struct {
	name, title, label, what string
	x                        func(epochLoss) float64
	time                     bool // in seconds
}

func (o Options) losses(study *scaling.Study, axis lossAxis) (*Figure, error) {
	name := axis.name
	study, err := o.of(study, name)
	if err != nil {
		return nil, err
	}
	all := curves(study.EpochRows())
	shown := o.selected(all, len(study.Series()))
	f := o.figure(name, axis.title, axis.label, "loss")
	f.fill = func() {
		f.table = study.Epochs().Select([]string{"series", "workers", "seed", "run", "epoch", "elapsed_seconds", "train_loss", "val_loss"})
		f.brief = lastOfRuns(f.table)
	}
	unit := 1.0
	if axis.time {
		unit = f.timeAxis(shown, axis)
	}
	manySeries := len(study.Series()) > 1
	drawnTrain, drawnVal := false, false
	values := nowhere()
	for i, c := range shown {
		label := workersText(c.workers)
		if manySeries {
			label = c.series + ", " + label
		}
		train, val, err := f.curve(o, c, lookOf(i), func(e epochLoss) float64 { return axis.x(e) / unit }, &values)
		if err != nil {
			return nil, fmt.Errorf("draw figure %s: %w", name, err)
		}
		if train || val {
			l := lookOf(i)
			l.line.Dashes = nil
			f.legend = append(f.legend, entry{name: label, icons: []plot.Thumbnailer{key(l)}})
		}
		drawnTrain, drawnVal = drawnTrain || train, drawnVal || val
	}
	if !drawnTrain && !drawnVal {
		return nil, fmt.Errorf("draw figure %s: no run has a loss for it%s", name, why(study, name))
	}
	f.trainOrVal(drawnTrain, drawnVal)
	f.caption = o.lossCaption(study, axis.what, len(all), len(shown))
	f.lossAxes(o, axis, values)
	f.makeRoom()
	return f, nil
}

// timeAxis names the unit in which the longest curve is legible, and returns
// its seconds.
func (f *Figure) timeAxis(shown []curve, axis lossAxis) float64 {
	longest := nowhere()
	for _, c := range shown {
		for _, e := range c.epochs {
			longest.add(axis.x(e))
		}
	}
	name, unit := timeUnit(longest.hi)
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
		solid := draw.LineStyle{Color: grey(), Width: 1.6}
		dashed := solid
		dashed.Dashes = valDashes()
		dot := draw.GlyphStyle{Color: grey(), Radius: lookOf(0).glyph.Radius, Shape: draw.CircleGlyph{}}
		f.legend = append(f.legend,
			entry{name: "training", icons: []plot.Thumbnailer{key{solid, dot}}},
			entry{name: "validation", icons: []plot.Thumbnailer{key{dashed, dot}, key{glyph: eye()}}})
	}
}

// lossAxes sets the ranges of the axes.
func (f *Figure) lossAxes(o Options, axis lossAxis, values extent) {
	valueAxis(&f.plot.Y, values, nowhere(), o.LogY, false)
	if axis.time {
		f.plot.X.Min, f.plot.X.Max = 0, f.plot.X.Max*1.02
		if !(f.plot.X.Max > 0) { // no time passed
			f.plot.X.Max = 1
		}
		return
	}
	f.plot.X.Tick.Marker = epochTicks{}
	if f.plot.X.Min == f.plot.X.Max { // one epoch
		f.plot.X.Min, f.plot.X.Max = f.plot.X.Min-1, f.plot.X.Max+1
	}
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
// some evenly between.
func (o Options) selected(all []curve, series int) []curve {
	if len(o.Workers) > 0 {
		return slices.DeleteFunc(slices.Clone(all), func(c curve) bool { return !slices.Contains(o.Workers, c.workers) })
	}
	if len(all) <= mostCurves {
		return all
	}
	each := max(2, mostCurves/series)
	var out []curve
	for start := 0; start < len(all); {
		end := start
		for end < len(all) && all[end].series == all[start].series {
			end++
		}
		n := end - start
		for k := range min(each, n) {
			i := start
			if n > 1 {
				i += k * (n - 1) / (min(each, n) - 1)
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
	c += strings.Replace(runsAPoint(n), "point", "curve", 1)
	if repeated(study) {
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

// curve draws one curve and says what there was to draw.
func (f *Figure) curve(o Options, c curve, l look, x func(epochLoss) float64, values *extent) (train, val bool, err error) {
	var trains, vals plotter.XYs
	var spread []interval
	wide := false
	for _, e := range c.epochs {
		at := x(e)
		if !finite(at) {
			continue
		}
		f.plot.X.Min, f.plot.X.Max = min(f.plot.X.Min, at), max(f.plot.X.Max, at)
		if finite(e.train) {
			trains = append(trains, plotter.XY{X: at, Y: e.train})
			spread = append(spread, interval{at, e.lowestTrain, e.highestTrain})
			wide = wide || e.highestTrain > e.lowestTrain
			values.on(o.LogY, e.lowestTrain, e.highestTrain)
		}
		if finite(e.val) {
			vals = append(vals, plotter.XY{X: at, Y: e.val})
		}
	}
	if wide && o.Intervals != IntervalsNone {
		f.plot.Add(band{at: spread, fill: pale(l.line.Color, 40)})
	}
	for i, xy := range []plotter.XYs{trains, vals} {
		if len(xy) == 0 {
			continue
		}
		for _, v := range xy {
			values.on(o.LogY, v.Y)
		}
		look := l
		look.line.Dashes = nil
		if i == 1 && len(trains) > 0 {
			look.line.Dashes = valDashes()
		}
		if o.Smooth > 0 {
			faint := look.line
			faint.Color, faint.Width = pale(l.line.Color, 90), 1
			raw, err := line(condensed(xy), lineAlone(faint))
			if err != nil {
				return false, false, err
			}
			f.plot.Add(raw...)
			xy = smoothed(xy, o.Smooth)
		}
		if err := f.thinned(xy, look); err != nil {
			return false, false, err
		}
		if i == 1 && len(trains) > 0 { // an eye tells validation where there is no line
			eyes, err := line(thin(xy), glyphAlone(eye()))
			if err != nil {
				return false, false, err
			}
			f.plot.Add(eyes...)
		}
	}
	return len(trains) > 0, len(vals) > 0, nil
}

// thinned draws a line with a few glyphs, which are enough to tell curves
// apart.
func (f *Figure) thinned(xy plotter.XYs, l look) error {
	drawn, err := line(condensed(xy), lineAlone(l.line))
	if err != nil {
		return err
	}
	points, err := line(thin(xy), glyphAlone(l.glyph))
	if err != nil {
		return err
	}
	f.plot.Add(append(drawn, points...)...)
	return nil
}

// thin keeps the last point and at most about ten others, evenly.
func thin(xy plotter.XYs) plotter.XYs {
	step := (len(xy) + 9) / 10
	var out plotter.XYs
	for i := len(xy) - 1; i >= 0; i -= step {
		out = append(out, xy[i])
	}
	return out
}

func lineAlone(style draw.LineStyle) look   { return look{line: style} }
func glyphAlone(style draw.GlyphStyle) look { return look{glyph: style} }

// smoothed is a line with TensorBoard's smoothing.
func smoothed(xy plotter.XYs, weight float64) plotter.XYs {
	var l scaling.CurveLine
	for _, v := range xy {
		l.Y = append(l.Y, v.Y)
	}
	out := make(plotter.XYs, len(xy))
	for i, y := range l.Smoothed(weight).Y {
		out[i] = plotter.XY{X: xy[i].X, Y: y}
	}
	return out
}
