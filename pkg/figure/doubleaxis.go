package figure

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/scaling"
)

// SpeedupIoU draws the speed-up with its ideal line on the left axis, and the IoU on the test set
// on the right axis, from 0 to 1, as the U-Net scaling studies do (github.com/oekosheri). If the
// logs contain no IoU but an accuracy, it draws the accuracy instead.
func (o Options) SpeedupIoU(study *scaling.Study) (*Figure, error) {
	const name = "speedup_iou"
	q := speedupQuantity()
	q.name, q.title, q.what = name, "Speed-up and IoU", "Left axis, solid: speed-up over the baseline of the series. Right axis, dashed and hollow: "+iouLabel(study)+" on the "+evaluatedDatasetName(study)+" after training"
	q.band, q.solid = false, true
	quality, wanted := iouQuantity(study), "IoU"
	if study != nil && !hasAnyValue(study, quality) && hasAnyValue(study, accuracyQuantity(study)) {
		quality, wanted = accuracyQuantity(study), "accuracy"
		q.title, q.what = "Speed-up and accuracy", "Left axis, solid: speed-up over the baseline of the series. Right axis, dashed and hollow: accuracy after training"
	}
	q.columns = append(append(withIntervalColumns("speedup"), "efficiency"), quality.columns[:5]...)
	b, err := o.drawQuantityByWorkers(study, q)
	if err != nil {
		return nil, err
	}
	if !hasAnyValue(b.study, quality) {
		return nil, fmt.Errorf("draw figure %s: the logs contain no %s; the figure speedup draws only the speed-up", name, wanted)
	}
	b.drawIdealSpeedups()
	right := &element.RightAxis{Plot: element.NewPlot("", "", quality.axis)}
	shares := element.EmptyExtent()
	for _, series := range b.study.Series() {
		xy := b.seriesPoints(series, func(p scaling.Point) float64 { return quality.span(p).Value })
		for _, v := range xy {
			shares.Add(v.Y)
		}
		right.Plotters = append(right.Plotters, element.LineWithGlyphs(xy, rightAxisStyle(seriesStyleIndex(b.study, series)))...)
	}
	solid := draw.LineStyle{Color: element.Gray(), Width: element.NewSeriesStyle(0).Line.Width}
	dashed := rightAxisStyle(0)
	dashed.Line.Color, dashed.Glyph.Color = element.Gray(), element.Gray()
	b.legend = append(b.legend,
		element.LegendEntry{Name: "speed-up (left)", Icons: []plot.Thumbnailer{element.LegendKey{Line: solid, Glyph: draw.GlyphStyle{Color: element.Gray(), Radius: 3.6, Shape: draw.CircleGlyph{}}}}},
		element.LegendEntry{Name: wanted + " (right)", Icons: []plot.Thumbnailer{element.LegendKey(dashed)}})
	f := b.finishFigure(math.NaN())
	f.setRightAxis(right, shares)
	f.alignRightAxis()
	return f.finishLayout(study)
}

// setRightAxis adds a right axis for values of quality. It ranges from 0 to 1 unless the values
// have another unit. The caller calls alignRightAxis once the horizontal axis is known.
func (f *Figure) setRightAxis(right *element.RightAxis, values element.Extent) {
	f.right = right
	element.SetValueAxis(&right.Plot.Y, values, element.EmptyExtent(), false, false)
	if isFraction(values) {
		right.Plot.Y.Min, right.Plot.Y.Max = 0, 1
	}
}

// alignRightAxis gives the plotters of the right axis the figure's horizontal axis, and reserves
// space for their marks.
func (f *Figure) alignRightAxis() {
	x := &f.right.Plot.X
	x.Min, x.Max, x.Scale = f.plot.X.Min, f.plot.X.Max, f.plot.X.Scale
	f.plot.Add(rightAxisSpace{f.right})
}

// rightAxisSpace reserves space for the marks of the right axis, so that the plot's edge does not
// cut them.
type rightAxisSpace struct{ *element.RightAxis }

// Plot draws nothing: RightAxis.Draw draws the marks.
func (rightAxisSpace) Plot(draw.Canvas, *plot.Plot) {}

func (r rightAxisSpace) GlyphBoxes(*plot.Plot) []plot.GlyphBox {
	var boxes []plot.GlyphBox
	for _, p := range r.Plotters {
		if boxer, ok := p.(plot.GlyphBoxer); ok {
			boxes = append(boxes, boxer.GlyphBoxes(r.RightAxis.Plot)...)
		}
	}
	return boxes
}

// isFraction reports whether all values are from 0 to 1. Accuracies may have been logged in percent.
func isFraction(values element.Extent) bool { return values.Lo >= 0 && values.Hi <= 1 }

// rightAxisStyle returns the style of the i-th series on the right axis: the color of the series,
// with dashes and hollow circles.
func rightAxisStyle(i int) element.SeriesStyle {
	l := element.NewSeriesStyle(i)
	l.Line.Dashes = []vg.Length{4, 3}
	l.Line.Width = 1.2
	l.Glyph.Shape, l.Glyph.Radius = element.RingGlyph{}, 3.2
	return l
}

func hasAnyValue(study *scaling.Study, q plottedQuantity) bool {
	return slices.ContainsFunc(study.Points, func(p scaling.Point) bool { return element.IsFinite(q.span(p).Value) })
}
