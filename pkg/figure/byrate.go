package figure

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/scaling"
)

// QualityByRate draws the quality of the trained model over the learning rate, a
// curve a global batch, with the best rate of each: what Study.ScalingRule is
// found by. Options.Measure says which quality.
func (o Options) QualityByRate(study *scaling.Study) (*Figure, error) {
	const name = "quality_by_rate"
	study, err := o.of(study, name)
	if err != nil {
		return nil, err
	}
	rule, err := study.ScalingRule(o.Measure)
	if err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	_, label := qualityOf(rule.Measure)
	f := o.figure(name, "Quality and learning rate", "learning rate", label)
	f.table = rule.TriedTable()
	f.brief = briefUse(f.table)
	x, values, reach := nowhere(), nowhere(), nowhere()
	var n []int
	var all []measured
	var tops []polyline // below the best rates
	for i, row := range rule.Rows {
		l := lookOf(i)
		var xy plotter.XYs
		bounds := whiskers{style: draw.LineStyle{Color: pale(l.line.Color, 110), Width: 1}}
		for _, t := range rule.Tried {
			if t.GlobalBatch != row.GlobalBatch || !finite(t.Quality.Value) {
				continue
			}
			xy = append(xy, plotter.XY{X: t.LearningRate, Y: t.Quality.Value})
			n = append(n, t.Quality.N)
			x.add(t.LearningRate)
			values.on(o.LogY, t.Quality.Value)
			if lo, hi, _, ok := o.reach(scaling.Span{Value: t.Quality.Value, Min: t.Quality.Min, Max: t.Quality.Max, Low: math.NaN(), High: math.NaN(), N: t.Quality.N}); ok {
				bounds.at = append(bounds.at, interval{t.LearningRate, lo, hi})
				reach.add(lo, hi)
			}
		}
		if len(xy) == 0 {
			continue
		}
		drawn, err := line(xy, l)
		if err != nil {
			return nil, fmt.Errorf("draw figure %s: %w", name, err)
		}
		all = append(all, measured{bounds, drawn})
		if row.Bound == "" && finite(row.Best.Value) {
			tops = append(tops, polyline{xy: plotter.XYs{{X: row.Best.Value}, {X: row.Best.Value, Y: row.Quality.Value}}, style: dotted(l.line.Color), lo: xy[0], hi: xy[0]})
		}
		f.legend = append(f.legend, entry{name: "batch " + strconv.Itoa(row.GlobalBatch), icons: []plot.Thumbnailer{key(l)}})
	}
	if len(n) == 0 {
		return nil, fmt.Errorf("draw figure %s: no run has a value of %s", name, label)
	}
	note := f.addMeasured(all)
	f.plot.X.Scale, f.plot.X.Tick.Marker = logScale{}, logTicks{}
	room := math.Pow(max(x.hi/x.lo, 2), 0.05)
	f.plot.X.Min, f.plot.X.Max = x.lo/room, x.hi*room
	valueAxis(&f.plot.Y, values, reach, o.LogY, false)
	for _, t := range tops {
		t.xy[0].Y = f.plot.Y.Min
		f.plot.Add(t)
	}
	f.caption = "Quality of the trained model (" + label + ") against the learning rate, a curve a global batch. " + runsAPoint(n) +
		" Bars: lowest and highest. Dotted: the best rate, between those tried." + strings.Replace(note, "counts", "rates", 1) + notDrawn(study)
	return f.sized()
}
