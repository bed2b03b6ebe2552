package figure

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/scaling"
)

// SpeedupIoU draws speed and quality in one picture, as the U-Net scaling
// studies do (github.com/oekosheri): the speed-up with its ideal line on the
// left axis, the IoU on the test set on the right one, from 0 to 1. Where the
// logs tell no IoU but an accuracy, it is that.
func (o Options) SpeedupIoU(study *scaling.Study) (*Figure, error) {
	const name = "speedup_iou"
	q := speedup()
	q.name, q.title, q.what = name, "Speed-up and IoU", "Left axis, solid: speed-up over the baseline of the series. Right axis, dashed and hollow: IoU on the test set after training"
	q.band, q.solid = false, true
	quality, wanted := iou(), "IoU"
	if study != nil && !hasAny(study, quality) && hasAny(study, accuracy(study)) {
		quality, wanted = accuracy(study), "accuracy"
		q.title, q.what = "Speed-up and accuracy", "Left axis, solid: speed-up over the baseline of the series. Right axis, dashed and hollow: accuracy after training"
	}
	q.columns = append(append(withBounds("speedup"), "efficiency"), quality.columns[:5]...)
	b, err := o.overWorkers(study, q)
	if err != nil {
		return nil, err
	}
	if !hasAny(b.study, quality) {
		return nil, fmt.Errorf("draw figure %s: the logs tell no %s; for the speed-up alone use figure.Speedup", name, wanted)
	}
	if err := b.idealSpeedup(); err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	right := &rightAxis{plot: newPlot("", "", quality.axis)}
	shares := nowhere()
	for i, series := range b.study.Series() {
		xy := b.points(series, func(p scaling.Point) float64 { return quality.span(p).Value })
		for _, v := range xy {
			shares.add(v.Y)
		}
		drawn, err := line(xy, qualityLook(i))
		if err != nil {
			return nil, fmt.Errorf("draw figure %s: %w", name, err)
		}
		right.plotters = append(right.plotters, drawn...)
	}
	solid := draw.LineStyle{Color: grey(), Width: lookOf(0).line.Width}
	dashed := qualityLook(0)
	dashed.line.Color, dashed.glyph.Color = grey(), grey()
	b.legend = append(b.legend,
		entry{name: "speed-up (left)", icons: []plot.Thumbnailer{key{line: solid, glyph: draw.GlyphStyle{Color: grey(), Radius: 3.6, Shape: draw.CircleGlyph{}}}}},
		entry{name: wanted + " (right)", icons: []plot.Thumbnailer{key(dashed)}})
	b.plot.Add(roomFor{right})
	f := b.finish(math.NaN())
	f.right = right
	right.plot.X.Min, right.plot.X.Max, right.plot.X.Scale = f.plot.X.Min, f.plot.X.Max, f.plot.X.Scale
	valueAxis(&right.plot.Y, shares, nowhere(), false, false)
	if isShare(shares) {
		right.plot.Y.Min, right.plot.Y.Max = 0, 1
	}
	return f.sized()
}

// roomFor keeps the marks of the right axis away from the edge of the plot.
type roomFor struct{ *rightAxis }

// Plot implements plot.Plotter; the marks are drawn with the axis.
func (roomFor) Plot(draw.Canvas, *plot.Plot) {}

// GlyphBoxes implements plot.GlyphBoxer.
func (r roomFor) GlyphBoxes(*plot.Plot) []plot.GlyphBox {
	var boxes []plot.GlyphBox
	for _, p := range r.plotters {
		if boxer, ok := p.(plot.GlyphBoxer); ok {
			boxes = append(boxes, boxer.GlyphBoxes(r.plot)...)
		}
	}
	return boxes
}

// isShare says whether values are from 0 to 1, as an IoU is; an accuracy may
// have been logged in per cent.
func isShare(values extent) bool { return values.lo >= 0 && values.hi <= 1 }

// qualityLook is that of the right axis: the series' colour, dashed, with a
// ring in place of the glyph.
func qualityLook(i int) look {
	l := lookOf(i)
	l.line.Dashes = []vg.Length{4, 3}
	l.line.Width = 1.2
	l.glyph.Shape, l.glyph.Radius = ring{}, 3.2
	return l
}

func hasAny(study *scaling.Study, q quantity) bool {
	for _, p := range study.Points {
		if finite(q.span(p).Value) {
			return true
		}
	}
	return false
}
