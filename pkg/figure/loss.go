package figure

import (
	"fmt"
	"image/color"
	"math"
	"slices"

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
func LossByEpoch(study *scaling.Study) (*Figure, error) {
	return losses(study, "loss_by_epoch", "Loss by epoch", "epoch",
		"Loss against the epoch", func(e epochLoss) float64 { return float64(e.epoch) })
}

// LossByTime draws the same against the time that was spent on training,
// validation not included.
func LossByTime(study *scaling.Study) (*Figure, error) {
	return losses(study, "loss_by_time", "Loss by time", "training time (s)",
		"Loss against the training time (without validation)", func(e epochLoss) float64 { return e.elapsed })
}

// curve is the losses of a series at a number of workers.
type curve struct {
	series  string
	workers int
	epochs  []epochLoss
}

// epochLoss is an epoch over the repeated runs: medians, and the extremes of
// the training loss.
type epochLoss struct {
	epoch                     int
	elapsed                   float64 // seconds
	train, val                float64
	lowestTrain, highestTrain float64
}

func losses(study *scaling.Study, name, title, axis, what string, x func(epochLoss) float64) (*Figure, error) {
	if err := validate(study, name); err != nil {
		return nil, err
	}
	all := curves(study.EpochRows())
	shown := selected(all, len(study.Series()))
	f := &Figure{
		Width: width, Height: height, name: name,
		plot:    newPlot(titleOf(study, title), axis, "loss"),
		table:   study.Epochs().Select([]string{"series", "workers", "seed", "run", "epoch", "elapsed_seconds", "train_loss", "val_loss"}),
		caption: lossCaption(study, what, len(all), len(shown)),
	}
	if f.table.Err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, f.table.Err)
	}
	manySeries := len(study.Series()) > 1
	drawnTrain, drawnVal := false, false
	for i, c := range shown {
		label := fmt.Sprintf("%d workers", c.workers)
		if c.workers == 1 {
			label = "1 worker"
		}
		if manySeries {
			label = c.series + ", " + label
		}
		train, val, err := f.curve(c, lookOf(i), x)
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
	if drawnVal && drawnTrain {
		solid := draw.LineStyle{Color: grey(), Width: 1.6}
		dashed := solid
		dashed.Dashes = valDashes()
		dot := draw.GlyphStyle{Color: grey(), Radius: lookOf(0).glyph.Radius, Shape: draw.CircleGlyph{}}
		f.legend = append(f.legend,
			entry{name: "training", icons: []plot.Thumbnailer{key{solid, dot}}},
			entry{name: "validation", icons: []plot.Thumbnailer{key{dashed, dot}, key{glyph: eye()}}})
	} else if drawnVal {
		f.plot.Y.Label.Text = "validation loss"
	} else {
		f.plot.Y.Label.Text = "training loss"
	}
	f.plot.Y.Min = min(0, f.plot.Y.Min)
	f.plot.Y.Max += (f.plot.Y.Max - f.plot.Y.Min) * 0.06
	if name == "loss_by_epoch" {
		f.plot.X.Tick.Marker = epochTicks{}
		if f.plot.X.Min == f.plot.X.Max { // one epoch
			f.plot.X.Min, f.plot.X.Max = f.plot.X.Min-1, f.plot.X.Max+1
		}
	} else {
		f.plot.X.Min, f.plot.X.Max = 0, f.plot.X.Max*1.02
	}
	f.makeRoom()
	return f, nil
}

func valDashes() []vg.Length { return []vg.Length{5, 3} }

// eye is drawn on the glyphs of validation.
func eye() draw.GlyphStyle {
	return draw.GlyphStyle{Color: color.White, Radius: 1.7, Shape: draw.CircleGlyph{}}
}

// curves gathers the epochs of the runs that did not fail.
func curves(rows []scaling.EpochRow) []curve {
	var out []curve
	for _, r := range rows {
		if r.Failed {
			continue
		}
		same := func(c curve) bool { return c.series == r.Series && c.workers == r.Workers }
		if !slices.ContainsFunc(out, same) {
			out = append(out, curve{series: r.Series, workers: r.Workers})
		}
	}
	for i := range out {
		byEpoch := map[int][]scaling.EpochRow{}
		for _, r := range rows {
			if !r.Failed && r.Series == out[i].series && r.Workers == out[i].workers {
				byEpoch[r.Epoch.Epoch] = append(byEpoch[r.Epoch.Epoch], r)
			}
		}
		for n, repeats := range byEpoch {
			e := epochLoss{epoch: n}
			e.elapsed, _, _ = middle(repeats, func(r scaling.EpochRow) float64 { return r.ElapsedSeconds })
			e.train, e.lowestTrain, e.highestTrain = middle(repeats, func(r scaling.EpochRow) float64 { return r.TrainLoss })
			e.val, _, _ = middle(repeats, func(r scaling.EpochRow) float64 { return r.ValLoss })
			out[i].epochs = append(out[i].epochs, e)
		}
		slices.SortFunc(out[i].epochs, func(a, b epochLoss) int { return a.epoch - b.epoch })
	}
	slices.SortStableFunc(out, func(a, b curve) int {
		if a.series != b.series {
			return 0 // already in the study's order
		}
		return a.workers - b.workers
	})
	return out
}

// middle is the median of what is finite, and the extremes; NaN for nothing.
func middle(rows []scaling.EpochRow, value func(scaling.EpochRow) float64) (median, lo, hi float64) {
	var v []float64
	for _, r := range rows {
		if x := value(r); finite(x) {
			v = append(v, x)
		}
	}
	if len(v) == 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2, v[0], v[len(v)-1]
}

// selected leaves, where there are too many curves to be told apart, the fewest
// and the most workers of each series and some evenly between.
func selected(all []curve, series int) []curve {
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
func lossCaption(study *scaling.Study, what string, all, shown int) string {
	c := what + "."
	repeated, failed := repeats(study)
	if repeated {
		c += " Lines: medians of repeated runs; bands: from the lowest to the highest training loss of them."
	}
	if failed > 0 {
		c += fmt.Sprintf(" %d failed or cancelled runs are not drawn.", failed)
	}
	if shown < all {
		c += fmt.Sprintf(" %d of %d curves are drawn; the table has all.", shown, all)
	}
	return c
}

// curve draws one curve and says what there was to draw.
func (f *Figure) curve(c curve, l look, x func(epochLoss) float64) (train, val bool, err error) {
	var trains, vals, band plotter.XYs
	for _, e := range c.epochs {
		at := x(e)
		if !finite(at) {
			continue
		}
		if finite(e.train) {
			trains = append(trains, plotter.XY{X: at, Y: e.train})
			band = append(band, plotter.XY{X: at, Y: e.highestTrain})
		}
		if finite(e.val) {
			vals = append(vals, plotter.XY{X: at, Y: e.val})
		}
	}
	spread := false
	for _, e := range slices.Backward(c.epochs) {
		if at := x(e); finite(at) && finite(e.train) {
			band = append(band, plotter.XY{X: at, Y: e.lowestTrain})
			spread = spread || e.highestTrain > e.lowestTrain
		}
	}
	if spread && len(band) > 4 {
		p, err := plotter.NewPolygon(band)
		if err != nil {
			return false, false, err
		}
		r, g, b, _ := l.line.Color.RGBA()
		p.Color = color.NRGBA{R: uint8(r >> 8), G: uint8(g >> 8), B: uint8(b >> 8), A: 40}
		p.LineStyle.Width = 0
		f.plot.Add(p)
	}
	for i, xy := range []plotter.XYs{trains, vals} {
		if len(xy) == 0 {
			continue
		}
		line, err := plotter.NewLine(xy)
		if err != nil {
			return false, false, err
		}
		line.LineStyle = l.line
		line.Dashes = nil
		if i == 1 && len(trains) > 0 {
			line.Dashes = valDashes()
		}
		// A few glyphs are enough to tell the curves apart.
		points, err := plotter.NewScatter(thin(xy))
		if err != nil {
			return false, false, err
		}
		points.GlyphStyle = l.glyph
		f.plot.Add(line, points)
		if i == 1 && len(trains) > 0 { // an eye tells validation where there is no line
			eyes := *points
			eyes.GlyphStyle = eye()
			f.plot.Add(&eyes)
		}
	}
	return len(trains) > 0, len(vals) > 0, nil
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
