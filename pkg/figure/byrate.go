package figure

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/scaling"
)

// QualityByRate draws the quality of the trained model, selected by Options.Measure, against the
// learning rate: one curve per global batch, with a mark at its best rate. Study.ScalingRule is
// fitted to these rates.
func (o Options) QualityByRate(study *scaling.Study) (*Figure, error) {
	const name = "quality_by_rate"
	study, err := o.selectSeries(study, name)
	if err != nil {
		return nil, err
	}
	rule, err := study.ScalingRule(o.Measure)
	if err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	_, label := lookUpQualityMeasure(rule.Measure)
	f := o.newFigure(name, "Quality and learning rate", "learning rate", label)
	f.table = rule.TriedTable()
	f.brief = dropIntervalColumns(f.table)
	x, values, reach := element.EmptyExtent(), element.EmptyExtent(), element.EmptyExtent()
	var n []int
	var all []seriesMarks
	var tops []element.Polyline // vertical lines at the best rates
	for i, row := range rule.Rows {
		l := element.NewSeriesStyle(i)
		var xy plotter.XYs
		bounds := element.ErrorBars{Style: draw.LineStyle{Color: element.WithAlpha(l.Line.Color, 110), Width: 1}}
		for _, t := range rule.Tried {
			if t.GlobalBatch != row.GlobalBatch || !element.IsFinite(t.Quality.Value) {
				continue
			}
			xy = append(xy, plotter.XY{X: t.LearningRate, Y: t.Quality.Value})
			n = append(n, t.Quality.N)
			x.Add(t.LearningRate)
			values.AddOnAxis(o.LogY, t.Quality.Value)
			if lo, hi, _, ok := o.estimateBarRange(scaling.Estimate{Value: t.Quality.Value, Min: t.Quality.Min, Max: t.Quality.Max, Low: math.NaN(), High: math.NaN(), N: t.Quality.N}); ok {
				bounds.At = append(bounds.At, element.Interval{X: t.LearningRate, Lo: lo, Hi: hi})
				reach.Add(lo, hi)
			}
		}
		if len(xy) == 0 {
			continue
		}
		all = append(all, seriesMarks{bounds, element.LineWithGlyphs(xy, l)})
		if row.Bound == "" && element.IsFinite(row.Best.Value) {
			tops = append(tops, element.Polyline{XY: plotter.XYs{{X: row.Best.Value}, {X: row.Best.Value, Y: row.Quality.Value}}, Style: element.DottedLine(l.Line.Color), Lo: xy[0], Hi: xy[0]})
		}
		f.legend = append(f.legend, element.LegendEntry{Name: "batch " + strconv.Itoa(row.GlobalBatch), Icons: []plot.Thumbnailer{element.LegendKey(l)}})
	}
	if len(n) == 0 {
		return nil, fmt.Errorf("draw figure %s: no run has a value of %s", name, label)
	}
	note := f.addSeriesSideBySide(all)
	f.plot.X.Scale, f.plot.X.Tick.Marker = element.LogScale{}, element.LogTicks{}
	room := math.Pow(max(x.Hi/x.Lo, 2), 0.05)
	f.plot.X.Min, f.plot.X.Max = x.Lo/room, x.Hi*room
	element.SetValueAxis(&f.plot.Y, values, reach, o.LogY, false)
	for _, t := range tops {
		t.XY[0].Y = f.plot.Y.Min
		f.plot.Add(t)
	}
	f.caption = "Quality of the trained model (" + label + ") against the learning rate, one curve per global batch. " + runsPerPointNote(n) +
		" Bars: lowest and highest. Dotted: the best rate, interpolated between the measured rates." + strings.Replace(note, "counts", "rates", 1) + failedRunsNote(study)
	return f.finishLayout(study)
}
