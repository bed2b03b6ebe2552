package figure

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/scaling"
)

// Pareto draws the time of a run against its device-hours, or against its price if Options.Rate is
// set. There is one point per series and worker count. Gray steps connect the Pareto front: the
// points that no other point beats in both time and cost.
func (o Options) Pareto(study *scaling.Study) (*Figure, error) {
	const name = "pareto"
	study, err := o.selectSeries(study, name)
	if err != nil {
		return nil, err
	}
	cost, err := study.Cost(o.Rate)
	if err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	if len(cost.Rows) < 2 {
		return nil, fmt.Errorf("draw figure %s: the study has only one point; add runs with another worker count or of another series", name)
	}
	p := newParetoAxes(o, cost)
	f := o.newFigure(name, "Time and cost", p.xLabel, p.yLabel)
	f.table = cost.Table()
	xs, ys := element.EmptyExtent(), element.EmptyExtent()
	for _, r := range cost.Rows {
		xs.Add(p.x(r))
		ys.Add(p.y(r))
	}
	if !(xs.Hi >= xs.Lo) || !(ys.Hi >= ys.Lo) {
		return nil, fmt.Errorf("draw figure %s: %w", name, errors.New("no run has both a time and a cost"))
	}
	p.drawFront(f, cost)
	var n []int
	labeled, combined := cost.Rows, 0
	if hasManySeries(study) {
		labeled, combined = cost.ParetoFront(), len(study.Series())
		p.drawManySeries(f, cost, labeled, combined)
	}
	for _, s := range study.Series() {
		if combined > 0 {
			break
		}
		l := seriesStyle(study, s)
		l.Line.Width = 0
		var xy plotter.XYs
		for _, r := range cost.Rows {
			if r.Series == s {
				xy = append(xy, plotter.XY{X: p.x(r), Y: p.y(r)})
				n = append(n, r.Runs)
			}
		}
		if len(xy) == 0 {
			continue
		}
		f.plot.Add(element.LineWithGlyphs(xy, l)...)
		f.legend = append(f.legend, element.LegendEntry{Name: s, Icons: []plot.Thumbnailer{element.LegendKey(l)}})
	}
	p.setAxisRanges(f, xs, ys)
	f.plot.Add(p.workerCountLabels(f, study, labeled))
	what := "device-hours"
	if o.Rate > 0 {
		what = strings.TrimSpace(fmt.Sprintf("price at %g %s a device-hour", o.Rate, o.Currency))
	}
	f.caption = fmt.Sprintf("Time of %s against %s; the number beside a point is its worker count. Grey line: the points that no other point beats in both. %s%s Quality is not considered.",
		cost.Rows[0].Basis, what, runsPerPointNote(n), failedRunsNote(study))
	if combined > 0 {
		f.caption = fmt.Sprintf("Time of %s against %s, one point per worker count of %d series. Grey line: the points that no other point beats in both, with their worker counts.%s%s Quality is not considered.",
			cost.Rows[0].Basis, what, combined, seriesSelectionHint(), failedRunsNote(study))
	}
	if cost.Sentence != "" {
		f.caption += " " + strings.TrimSuffix(cost.Sentence, ".") + "."
	}
	return f.finishLayout(study)
}

type paretoAxes struct {
	x, y           func(scaling.CostRow) float64
	xLabel, yLabel string
}

// newParetoAxes chooses the quantities on Pareto's axes, and units that suit the longest time.
func newParetoAxes(o Options, cost *scaling.Cost) paretoAxes {
	time, work := element.EmptyExtent(), element.EmptyExtent()
	for _, r := range cost.Rows {
		time.Add(3600 * r.Hours.Value)
		work.Add(3600 * r.DeviceHours.Value)
	}
	name, unit := element.ChooseTimeUnit(time.Hi)
	p := paretoAxes{x: func(r scaling.CostRow) float64 { return r.Hours.Value * 3600 / unit }}
	p.xLabel = fmt.Sprintf("time of %s (%s)", cost.Rows[0].Basis, name)
	if o.Rate > 0 {
		p.y, p.yLabel = func(r scaling.CostRow) float64 { return r.Price.Value }, "price"
		if o.Currency != "" {
			p.yLabel += " (" + o.Currency + ")"
		}
		return p
	}
	name, unit = element.ChooseTimeUnit(work.Hi)
	full := map[string]string{"h": "hours", "min": "minutes", "s": "seconds", "ms": "milliseconds", "µs": "microseconds"}[name]
	p.y, p.yLabel = func(r scaling.CostRow) float64 { return r.DeviceHours.Value * 3600 / unit }, "device-"+full
	return p
}

func (p paretoAxes) drawFront(f *Figure, cost *scaling.Cost) {
	var xy plotter.XYs
	for i, r := range cost.ParetoFront() {
		x, y := p.x(r), p.y(r)
		if i > 0 {
			xy = append(xy, plotter.XY{X: x, Y: xy[len(xy)-1].Y})
		}
		xy = append(xy, plotter.XY{X: x, Y: y})
	}
	style := draw.LineStyle{Color: element.Gray(), Width: 1}
	if len(xy) > 1 {
		f.plot.Add(element.LineWithGlyphs(xy, lineOnlyStyle(style))...)
		f.legend = append(f.legend, element.LegendEntry{Name: "Pareto front", Icons: []plot.Thumbnailer{element.LegendKey{Line: style}}})
	}
}

// drawManySeries draws the points of many series. Points that are not on the Pareto front are pale.
func (p paretoAxes) drawManySeries(f *Figure, cost *scaling.Cost, front []scaling.CostRow, combined int) {
	l := element.NewSeriesStyle(0)
	others := draw.GlyphStyle{Color: element.WithAlpha(l.Line.Color, 90), Radius: 2, Shape: l.Glyph.Shape}
	for _, part := range []struct {
		rows  []scaling.CostRow
		style draw.GlyphStyle
		name  string
	}{{cost.Rows, others, fmt.Sprintf("%d series", combined)}, {front, l.Glyph, ""}} {
		var xy plotter.XYs
		for _, r := range part.rows {
			if x, y := p.x(r), p.y(r); element.IsFinite(x) && element.IsFinite(y) {
				xy = append(xy, plotter.XY{X: x, Y: y})
			}
		}
		f.plot.Add(element.LineWithGlyphs(xy, glyphOnlyStyle(part.style))...)
		if part.name != "" {
			f.legend = append(f.legend, element.LegendEntry{Name: part.name, Icons: []plot.Thumbnailer{element.LegendKey{Glyph: part.style}}})
		}
	}
}

// setAxisRanges sets the axes' ranges. Positive values that span more than a factor of 8 have a
// logarithmic axis.
func (p paretoAxes) setAxisRanges(f *Figure, xs, ys element.Extent) {
	const wide = 8
	for _, a := range []struct {
		axis   *plot.Axis
		values element.Extent
	}{{&f.plot.X, xs}, {&f.plot.Y, ys}} {
		log := a.values.Lo > 0 && a.values.Hi > wide*a.values.Lo
		if log {
			a.axis.Scale, a.axis.Tick.Marker = element.LogScale{}, element.LogTicks{}
			room := math.Pow(a.values.Hi/a.values.Lo, 0.07)
			a.axis.Min, a.axis.Max = a.values.Lo/room, a.values.Hi*room
			continue
		}
		size := a.values.Hi - a.values.Lo
		if size == 0 {
			size = max(a.values.Hi, 1e-9)
		}
		a.axis.Min, a.axis.Max = a.values.Lo-0.1*size, a.values.Hi+0.1*size
		if a.values.Lo >= 0 {
			a.axis.Min = max(0, a.axis.Min)
		}
	}
}

func distance(a, b vg.Point) float64 { return math.Hypot(float64(a.X-b.X), float64(a.Y-b.Y)) }

// workerCountLabels returns labels with the worker counts for the points. Each label is placed
// where it covers the least. A label is omitted if it would be about as close to another point as
// to its own.
func (p paretoAxes) workerCountLabels(f *Figure, study *scaling.Study, rows []scaling.CostRow) element.PointLabels {
	style := element.TextStyle(element.FontSize - 3)
	style.XAlign, style.YAlign = draw.XCenter, draw.YCenter
	zoom := f.zoomFactor(f.Width, f.Height)
	w, h := f.Width/zoom-70, f.Height/zoom-70 // about the size of the data area
	at := func(r scaling.CostRow) vg.Point {
		return vg.Point{X: vg.Length(f.plot.X.Norm(p.x(r))) * w, Y: vg.Length(f.plot.Y.Norm(p.y(r))) * h}
	}
	var taken []vg.Rectangle
	var points []vg.Point
	for _, r := range rows {
		c, half := at(r), vg.Point{X: 4, Y: 4}
		points = append(points, c)
		taken = append(taken, vg.Rectangle{Min: c.Sub(half), Max: c.Add(half)})
	}
	series := study.Series()
	var out element.PointLabels
	for _, r := range rows {
		text := strconv.Itoa(r.Workers)
		style := style
		style.Color = seriesStyle(study, r.Series).Line.Color
		if len(series) > maxIndividualSeries {
			style.Color = element.NewSeriesStyle(0).Line.Color
		}
		half := vg.Point{X: style.Width(text)/2 + 0.5, Y: element.FontSize * 0.36}
		gap := half.X + 5
		best, least := vg.Point{X: gap}, math.Inf(1)
		for _, shift := range []vg.Point{
			{Y: 10}, {Y: -10}, {X: gap, Y: 6}, {X: -gap, Y: -6}, {X: gap, Y: -6}, {X: -gap, Y: 6}, {X: gap + 1}, {X: -gap - 1},
		} {
			c := at(r).Add(shift)
			own := distance(c, at(r))
			if slices.ContainsFunc(points, func(p vg.Point) bool { return distance(p, at(r)) > 5 && distance(c, p) < 1.4*own }) {
				continue // points on top of each other count as one point
			}
			box := vg.Rectangle{Min: c.Sub(half), Max: c.Add(half)}
			covered := 0.0
			for _, t := range taken {
				dx, dy := min(box.Max.X, t.Max.X)-max(box.Min.X, t.Min.X), min(box.Max.Y, t.Max.Y)-max(box.Min.Y, t.Min.Y)
				if dx > 0 && dy > 0 {
					covered += float64(dx * dy)
				}
			}
			if covered < least {
				best, least = shift, covered
			}
		}
		const maxCovered = 12 // square points; a label that is covered more is illegible, and the table has its value
		if least > maxCovered {
			continue
		}
		c := at(r).Add(best)
		taken = append(taken, vg.Rectangle{Min: c.Sub(half), Max: c.Add(half)})
		out = append(out, element.PointLabel{X: p.x(r), Y: p.y(r), Text: text, Shift: best, Style: style})
	}
	return out
}

// Quality draws the quality of the trained model against the global batch. The quality is
// Options.Measure, or else the first of IoU, Dice, accuracy and losses in the logs.
func (o Options) Quality(study *scaling.Study) (*Figure, error) {
	const name = "quality"
	study, err := o.selectSeries(study, name)
	if err != nil {
		return nil, err
	}
	quality := study.Quality()
	measure := cmp.Or(o.Measure, quality.Measure)
	span, label := lookUpQualityMeasure(measure)
	if measure == "iou" {
		label = iouLabel(study)
	}
	switch {
	case measure == "":
		return nil, fmt.Errorf("draw figure %s: no run has a quality: IoU, Dice, accuracy or loss", name)
	case span == nil:
		return nil, fmt.Errorf("draw figure %s: unknown measure %q; use iou, dice, accuracy, val_accuracy, train_loss, val_loss or test_loss", name, measure)
	}
	f := o.newFigure(name, "Quality and global batch", "global batch (samples)", label)
	f.table = quality.Table()
	f.brief = dropIntervalColumns(f.table)
	series, rows, combined := study.Series(), quality.Rows, 0
	if hasManySeries(study) {
		combined = len(series)
		series = []string{medianLegendName(combined)}
		rows, span = combineQuality(rows, series[0], span)
	}
	var batches, n []int
	var all []seriesMarks
	values, reach := element.EmptyExtent(), element.EmptyExtent()
	intervals, unbatched := false, 0
	for _, s := range series {
		l := seriesStyle(study, s)
		var xy plotter.XYs
		bounds := element.ErrorBars{Style: draw.LineStyle{Color: l.Line.Color, Width: 1}}
		for _, r := range rows {
			v := span(r)
			if r.Series != s || !element.IsFinite(v.Value) {
				continue
			}
			if r.GlobalBatch <= 0 {
				unbatched++
				continue
			}
			xy = append(xy, plotter.XY{X: float64(r.GlobalBatch), Y: v.Value})
			batches, n = append(batches, r.GlobalBatch), append(n, v.N)
			values.Add(v.Value)
			if lo, hi, confident, ok := o.estimateBarRange(v); ok {
				bounds.At = append(bounds.At, element.Interval{X: float64(r.GlobalBatch), Lo: lo, Hi: hi})
				reach.Add(lo, hi)
				intervals = intervals || confident
			}
		}
		if len(xy) == 0 {
			continue
		}
		all = append(all, seriesMarks{bounds, element.LineWithGlyphs(xy, l)})
		f.legend = append(f.legend, newLineLegendEntry(s, l, yValues(xy)))
	}
	if len(batches) == 0 {
		if unbatched > 0 {
			return nil, fmt.Errorf("draw figure %s: the logs contain %s but no batch size", name, label)
		}
		return nil, fmt.Errorf("draw figure %s: no run has a value of %s", name, label)
	}
	slices.Sort(batches)
	batches = slices.Compact(batches)
	if len(batches) < 2 {
		return nil, fmt.Errorf("draw figure %s: all runs have the global batch %d; need at least two to show an effect", name, batches[0])
	}
	note := strings.Replace(f.addSeriesSideBySide(all), "counts", "batches", 1)
	element.SetCountAxis(&f.plot.X, batches, o.usesLogAxis(batches))
	element.SetValueAxis(&f.plot.Y, values, reach, o.LogY, false)
	if (strings.HasPrefix(measure, "iou") || measure == "dice" || strings.HasSuffix(measure, "accuracy")) && isFraction(values) {
		f.plot.Y.Min, f.plot.Y.Max = 0, 1
	}
	f.caption = "Quality of the trained model (" + label + ") against the global batch. " + runsPerPointNote(n)
	if combined > 0 {
		f.caption = "Quality of the trained model (" + label + ") against the global batch." + medianNote(combined, "bars", label)
	}
	if intervals {
		f.caption += " Bars: " + intervalsNote(study)
	}
	f.caption += note + clippedBarsNote(f.plot, reach) + failedRunsNote(study)
	return f.finishLayout(study)
}

// lookUpQualityMeasure returns the axis label of a measure, and the function span that gets the measure
// from a row. span is nil if the measure is unknown.
func lookUpQualityMeasure(measure string) (span func(scaling.QualityRow) scaling.Estimate, label string) {
	switch measure {
	case "iou":
		return func(r scaling.QualityRow) scaling.Estimate { return r.IoU }, "IoU"
	case "dice":
		return func(r scaling.QualityRow) scaling.Estimate { return r.Dice }, "Dice coefficient"
	case "accuracy":
		return func(r scaling.QualityRow) scaling.Estimate { return r.Accuracy }, "accuracy"
	case "val_accuracy":
		return func(r scaling.QualityRow) scaling.Estimate { return r.ValAccuracy }, "validation accuracy"
	case "train_loss":
		return func(r scaling.QualityRow) scaling.Estimate { return r.TrainLoss }, "training loss"
	case "val_loss":
		return func(r scaling.QualityRow) scaling.Estimate { return r.ValLoss }, "validation loss"
	case "test_loss":
		return func(r scaling.QualityRow) scaling.Estimate { return r.TestLoss }, "test loss"
	}
	return nil, measure
}
