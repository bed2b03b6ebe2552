package figure

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/scaling"
)

// maxIndividualSeries is the largest number of series that a figure draws individually. Colors repeat after 7
// series, and more than 12 lines hide each other. For more series, a figure draws the median as a
// line and the range as a band.
const maxIndividualSeries = 12

func hasManySeries(study *scaling.Study) bool { return len(study.Series()) > maxIndividualSeries }

func medianLegendName(n int) string { return fmt.Sprintf("median of %d series", n) }

const rangeLegendName = "lowest to highest"

func seriesSelectionHint() string {
	return fmt.Sprintf(" To draw each series, choose at most %d with --series.", maxIndividualSeries)
}

// medianNote returns a sentence for a caption that says that a line is the median of n series. mark
// names what shows the range of the value, such as "band"; it may be empty.
func medianNote(n int, mark, value string) string {
	text := fmt.Sprintf(" Line: the median of %d series", n)
	if mark != "" {
		text += fmt.Sprintf("; %s: from the lowest to the highest %s of these series", mark, value)
	}
	return text + "." + seriesSelectionHint()
}

func rangeLegendEntry(l element.SeriesStyle) element.LegendEntry {
	return element.LegendEntry{Name: rangeLegendName, Icons: []plot.Thumbnailer{element.Band{Fill: element.WithAlpha(l.Line.Color, seriesBandAlpha)}}}
}

// seriesBandAlpha is the opacity of a series' band, of 255.
const seriesBandAlpha = 45

// medianAndRange returns the median and range of the finite values. They are NaN if there are no
// finite values.
func medianAndRange(values []float64) scaling.Estimate {
	nan := math.NaN()
	s := scaling.Estimate{Value: nan, Min: nan, Max: nan, Low: nan, High: nan, Std: nan}
	v := slices.DeleteFunc(slices.Clone(values), func(x float64) bool { return !element.IsFinite(x) })
	if s.N = len(v); s.N == 0 {
		return s
	}
	slices.Sort(v)
	s.Value, s.Min, s.Max = (v[(s.N-1)/2]+v[s.N/2])/2, v[0], v[s.N-1]
	return s
}

func pointEstimates(p *scaling.Point) []*scaling.Estimate {
	return []*scaling.Estimate{
		&p.EpochSeconds, &p.Throughput, &p.PerWorker, &p.Speedup, &p.Efficiency,
		&p.TrainSeconds, &p.TestSeconds, &p.WallSeconds, &p.EnergyJoules,
		&p.IoU, &p.Dice, &p.IoUConstant, &p.DiceConstant, &p.IoUUntrained, &p.DiceUntrained,
		&p.TrainLoss, &p.ValLoss, &p.TestLoss, &p.Accuracy, &p.ValAccuracy,
	}
}

// combineSeries returns a study for drawing with a single series that combines all series of study.
// All points with the same count (Size or Workers) become one point: each value is the median with
// the range, and N is the number of points that have the value. total is the number of combined
// series.
func combineSeries(study *scaling.Study, points []scaling.Point, count func(scaling.Point) int) (combined *scaling.Study, total int) {
	names := map[string]bool{}
	byCount := map[int][]scaling.Point{}
	for _, p := range points {
		names[p.Series] = true
		byCount[count(p)] = append(byCount[count(p)], p)
	}
	out := *study
	out.Points = nil
	for _, n := range slices.Sorted(maps.Keys(byCount)) {
		at := byCount[n]
		q := scaling.Point{Series: medianLegendName(len(names)), Workers: n, Size: n, Baseline: at[0].Baseline}
		values := make([][]float64, len(pointEstimates(&q)))
		for i := range at {
			p := &at[i]
			q.Runs, q.Failed, q.Diverged, q.Disturbed = q.Runs+p.Runs, q.Failed+p.Failed, q.Diverged+p.Diverged, q.Disturbed+p.Disturbed
			q.SharedCores = max(q.SharedCores, p.SharedCores)
			if p.Baseline != q.Baseline {
				q.Baseline = 0 // the series have different ideal lines
			}
			for k, s := range pointEstimates(p) {
				values[k] = append(values[k], s.Value)
			}
		}
		for k, s := range pointEstimates(&q) {
			*s = medianAndRange(values[k])
		}
		out.Points = append(out.Points, q)
	}
	return &out, len(names)
}

func (b *figureBuilder) combineAllSeries(points []scaling.Point) {
	b.study, b.combined = combineSeries(b.study, points, func(p scaling.Point) int { return p.Size })
	b.banded = len(b.sizes) > 1 && !b.q.points && b.o.Intervals != IntervalsNone
	if b.o.Intervals == IntervalsEpochs {
		b.o.Intervals = ""
	}
}

func (b *figureBuilder) addRangeToLegend() {
	if b.combined > 0 && b.banded {
		b.legend = append(b.legend, rangeLegendEntry(element.NewSeriesStyle(0)))
	}
}

// medianRepeatsNote returns sentences that state the number of series per median, what shows their
// range, and which runs are not drawn.
func (b *figureBuilder) medianRepeatsNote() string {
	fewest, most := b.combined, 0
	for _, p := range b.study.Points {
		if n := b.q.span(p).N; n > 0 {
			fewest, most = min(fewest, n), max(most, n)
		}
	}
	mark := ""
	switch {
	case b.banded:
		mark = "band"
	case b.ranges:
		mark = "bars"
	}
	value, _, _ := strings.Cut(b.q.axis, " (")
	text := strings.TrimPrefix(medianNote(b.combined, mark, value), " ")
	if fewest < b.combined {
		text += fmt.Sprintf(" At each count, the median is over the %d to %d series that have a value there.", fewest, most)
	}
	return text + failedRunsNote(b.fullStudy)
}

// combineLosses returns one curve per worker count: the median over the series at each epoch, with
// the range of their training losses. It omits epochs that fewer than half of the series have, so
// that the series that trained longest do not distort the median.
func combineLosses(all []scaling.LossCurve) []scaling.LossCurve {
	type values struct{ elapsed, clock, train, val []float64 }
	byWorkers := map[int]map[float64]*values{}
	series := map[int]int{}
	for _, c := range all {
		if byWorkers[c.Workers] == nil {
			byWorkers[c.Workers] = map[float64]*values{}
		}
		series[c.Workers]++
		for i, epoch := range c.Epoch {
			v := byWorkers[c.Workers][epoch]
			if v == nil {
				v = &values{}
				byWorkers[c.Workers][epoch] = v
			}
			v.elapsed, v.clock = append(v.elapsed, c.Elapsed[i]), append(v.clock, c.Clock[i])
			v.train, v.val = append(v.train, c.Train[i]), append(v.val, c.Val[i])
		}
	}
	var out []scaling.LossCurve
	for _, n := range slices.Sorted(maps.Keys(byWorkers)) {
		c := scaling.LossCurve{Workers: n, Runs: series[n]}
		for _, epoch := range slices.Sorted(maps.Keys(byWorkers[n])) {
			v := byWorkers[n][epoch]
			if 2*len(v.train) < series[n] {
				continue
			}
			train := medianAndRange(v.train)
			c.Epoch = append(c.Epoch, epoch)
			c.Elapsed, c.Clock = append(c.Elapsed, medianAndRange(v.elapsed).Value), append(c.Clock, medianAndRange(v.clock).Value)
			c.Train, c.Val = append(c.Train, train.Value), append(c.Val, medianAndRange(v.val).Value)
			c.TrainMin, c.TrainMax = append(c.TrainMin, train.Min), append(c.TrainMax, train.Max)
		}
		out = append(out, c)
	}
	return out
}

// addMedianToLegend adds legend entries for the median and the range of combined series, in figures
// whose lines are named by worker count.
func (f *Figure) addMedianToLegend(series int, banded bool) {
	grayLook := element.SeriesStyle{Line: draw.LineStyle{Color: element.Gray(), Width: element.NewSeriesStyle(0).Line.Width}}
	f.legend = append(f.legend, element.LegendEntry{Name: medianLegendName(series), Icons: []plot.Thumbnailer{element.LegendKey(grayLook)}})
	if banded {
		f.legend = append(f.legend, rangeLegendEntry(grayLook))
	}
}

// medianLineGroups returns one group per worker count, whose only line is the median over the series'
// own medians.
func medianLineGroups(all []curveLineGroup) []curveLineGroup {
	byWorkers := map[int][]scaling.CurveLine{}
	for _, g := range all {
		line, _ := medianLine(g.lines)
		byWorkers[g.workers] = append(byWorkers[g.workers], line)
	}
	var out []curveLineGroup
	for _, n := range slices.Sorted(maps.Keys(byWorkers)) {
		line, reach := medianLine(byWorkers[n])
		out = append(out, curveLineGroup{workers: n, isMedian: true, lines: []scaling.CurveLine{line}, ranges: reach})
	}
	return out
}

// medianLine returns the median of lines and their range at each x of any line, or at
// element.CondensedParts evenly spaced x if there are more. Lines are interpolated linearly. There
// is no median where fewer than half of the lines have a value.
func medianLine(lines []scaling.CurveLine) (scaling.CurveLine, []element.Interval) {
	if len(lines) == 1 {
		return lines[0], nil
	}
	var traces []element.LineData
	var xs []float64
	for _, l := range lines {
		t := element.NewLineData(l.X, l.Y, 0, 1)
		traces, xs = append(traces, t), append(xs, t.X...)
	}
	slices.Sort(xs)
	if xs = slices.Compact(xs); len(xs) > element.CondensedParts {
		lo, hi := xs[0], xs[len(xs)-1]
		xs = xs[:0]
		for i := range element.CondensedParts {
			xs = append(xs, lo+(hi-lo)*float64(i)/(element.CondensedParts-1))
		}
	}
	values := make([][]float64, len(xs))
	for _, t := range traces {
		next := 0 // index of t's first point with X ≥ x
		for i, x := range xs {
			for next < t.Len() && t.X[next] < x {
				next++
			}
			switch {
			case next == t.Len():
			case t.X[next] == x:
				values[i] = append(values[i], t.Y[next])
			case next > 0:
				part := (x - t.X[next-1]) / (t.X[next] - t.X[next-1])
				values[i] = append(values[i], t.Y[next-1]+part*(t.Y[next]-t.Y[next-1]))
			}
		}
	}
	out := scaling.CurveLine{Series: lines[0].Series, Workers: lines[0].Workers, Name: lines[0].Name, Rank: -1}
	var reach []element.Interval
	for i, x := range xs {
		if 2*len(values[i]) < len(lines) {
			continue
		}
		v := medianAndRange(values[i])
		out.X, out.Y = append(out.X, x), append(out.Y, v.Value)
		reach = append(reach, element.Interval{X: x, Lo: v.Min, Hi: v.Max})
	}
	return out, reach
}

// combineQuality returns one row per global batch, and a function that maps such a row to the
// median and range of span over all original rows with this batch.
func combineQuality(rows []scaling.QualityRow, name string, span func(scaling.QualityRow) scaling.Estimate) ([]scaling.QualityRow, func(scaling.QualityRow) scaling.Estimate) {
	values := map[int][]float64{}
	for _, r := range rows {
		values[r.GlobalBatch] = append(values[r.GlobalBatch], span(r).Value)
	}
	var out []scaling.QualityRow
	for _, batch := range slices.Sorted(maps.Keys(values)) {
		out = append(out, scaling.QualityRow{Series: name, GlobalBatch: batch})
	}
	return out, func(r scaling.QualityRow) scaling.Estimate { return medianAndRange(values[r.GlobalBatch]) }
}

// combineBottleneckRows returns one row per worker count, with the medians and ranges of its rows.
func combineBottleneckRows(rows []scaling.BottleneckRow) []scaling.BottleneckRow {
	io, synthetic, full := map[int][]float64{}, map[int][]float64{}, map[int][]float64{}
	for _, r := range rows {
		n := r.Workers
		io[n], synthetic[n], full[n] = append(io[n], r.IO.Value), append(synthetic[n], r.Synthetic.Value), append(full[n], r.Full.Value)
	}
	var out []scaling.BottleneckRow
	for _, n := range slices.Sorted(maps.Keys(full)) {
		out = append(out, scaling.BottleneckRow{Workers: n, IO: medianAndRange(io[n]), Synthetic: medianAndRange(synthetic[n]), Full: medianAndRange(full[n])})
	}
	return out
}

// averageTimeUseRows returns one row per worker count, with the means of its rows: medians would not
// add up to the time of a step.
func averageTimeUseRows(rows []scaling.TimeUseRow) []scaling.TimeUseRow {
	parts := func(r *scaling.TimeUseRow) []*scaling.Estimate {
		return []*scaling.Estimate{&r.Step, &r.Data, &r.Compute, &r.Exposed, &r.Hidden, &r.Idle}
	}
	sums, counts := map[int]*scaling.TimeUseRow{}, map[int]float64{}
	for i := range rows {
		n := rows[i].Workers
		if sums[n] == nil {
			sums[n] = &scaling.TimeUseRow{Workers: n}
		}
		counts[n]++
		for k, s := range parts(&rows[i]) {
			parts(sums[n])[k].Value += s.Value
		}
	}
	var out []scaling.TimeUseRow
	for _, n := range slices.Sorted(maps.Keys(sums)) {
		for _, s := range parts(sums[n]) {
			s.Value /= counts[n]
		}
		out = append(out, *sums[n])
	}
	return out
}

// medianMarks returns marks at the median of the values at each count, with bars for their range.
func medianMarks(values map[int][]float64) seriesMarks {
	l := element.NewSeriesStyle(0)
	var xy plotter.XYs
	bounds := element.ErrorBars{Style: draw.LineStyle{Color: l.Line.Color, Width: 1}}
	for _, n := range slices.Sorted(maps.Keys(values)) {
		v := medianAndRange(values[n])
		xy = append(xy, plotter.XY{X: float64(n), Y: v.Value})
		bounds.At = append(bounds.At, element.Interval{X: float64(n), Lo: v.Min, Hi: v.Max})
	}
	return seriesMarks{bounds, element.LineWithGlyphs(xy, l)}
}
