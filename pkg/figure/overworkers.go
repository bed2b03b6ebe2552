package figure

import (
	"cmp"
	"fmt"
	"image/color"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/go-gota/gota/series"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling"
)

// plottedQuantity describes the values in a figure over the worker count.
type plottedQuantity struct {
	name, title, axis string
	what              string // describes the values in the caption
	columns           []string
	span              func(scaling.Point) scaling.Estimate
	spread            func(scaling.EpochSpread) scaling.Spread // spread over the epochs; nil if there is none
	ofTime            bool                                     // a time, which other load and shared cores change
	proportional      bool                                     // ideally proportional to the workers, so with log2 this axis is logarithmic too
	band              bool                                     // intervals are bands, for at most maxSeriesBands series
	solid             bool                                     // lines are not dashed, because dashes have another meaning in this figure
	points            bool                                     // points are not connected by a line
}

// maxSeriesBands is the largest number of series whose bands are drawn. More bands would hide each other.
const maxSeriesBands = 3

// figureBuilder draws a figure over the worker count.
type figureBuilder struct {
	*Figure
	o             Options
	study         *scaling.Study // the study to draw: the full one, or one series with the medians of many
	fullStudy     *scaling.Study // the full study
	combined      int            // number of series combined in study; 0 if each is drawn
	q             plottedQuantity
	sizes         []int // ascending
	log           bool  // the axis of the workers is logarithmic
	values, reach element.Extent
	missing       []string                         // points without a value, for the caption
	otherIdeals   []string                         // series whose ideal line is not drawn, for the caption
	idealOf       string                           // the only series whose ideal line is drawn; empty if each has one
	intervals     bool                             // a confidence interval is drawn
	ranges        bool                             // lowest to highest is drawn
	notDrawn      []string                         // reasons why intervals are not drawn
	banded        bool                             // ranges are bands, not bars
	spreads       bool                             // spreads over epochs are drawn
	sideShifts    map[string]element.SidewaysShift // sideways shift of each series
	disturbed     bool                             // a point has a ring because other load disturbed its runs
	sharedCores   bool                             // a point has a square because its workers shared cores
}

// drawQuantityByWorkers draws a quantity over the worker count, as points and one line per series.
func (o Options) drawQuantityByWorkers(study *scaling.Study, q plottedQuantity) (*figureBuilder, error) {
	study, err := o.selectSeries(study, q.name)
	if err != nil {
		return nil, err
	}
	b := &figureBuilder{o: o, study: study, fullStudy: study, q: q, values: element.EmptyExtent(), reach: element.EmptyExtent()}
	for _, p := range study.Points {
		if p.Size > 0 && element.IsFinite(q.span(p).Value) {
			b.sizes = append(b.sizes, p.Size)
		}
	}
	if len(b.sizes) == 0 {
		return nil, fmt.Errorf("draw figure %s: no run has a value to draw%s", q.name, explainMissingValues(study, q.name))
	}
	slices.Sort(b.sizes)
	b.sizes = slices.Compact(b.sizes)
	b.log = o.usesLogAxis(b.sizes)
	b.Figure = b.o.newFigure(q.name, q.title, study.SizeName(), q.axis)
	b.table = study.Table().Select(append(b.rowKeyColumns(), q.columns...))
	if b.table.Err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", q.name, b.table.Err)
	}
	b.banded = q.band && len(study.Series()) <= maxSeriesBands
	if hasManySeries(study) {
		b.combineAllSeries(study.Points)
		study = b.study
	}
	if b.o.Intervals == IntervalsEpochs && q.spread != nil {
		b.drawEpochBars()
	}
	if !b.banded && b.sideShifts == nil {
		b.placeBarsSideBySide(b.seriesRanges)
	}
	for _, series := range study.Series() {
		b.drawSeriesRanges(series, seriesStyle(study, series))
	}
	for _, series := range study.Series() {
		b.drawSeriesLine(series, seriesStyle(study, series))
	}
	b.addRangeToLegend()
	return b, nil
}

func (b *figureBuilder) rowKeyColumns() []string {
	columns := []string{"series", "workers", "runs"}
	if b.study.Rule.Per == scaling.PerNode {
		columns = []string{"series", "workers", "nodes", "runs"}
	}
	return columns
}

// explainMissingValues returns the end of an error message that says why the study has no value for
// the named figure, and what to do. It returns "" if the reason is unknown.
func explainMissingValues(study *scaling.Study, name string) string {
	switch name {
	case "throughput":
		return " (the logs contain neither throughput nor sample counts); set --samples-per-epoch"
	case "accuracy":
		return " (the logs contain no accuracy)"
	}
	if len(study.Problems) > 0 {
		return "; see the study's problems, the first is: " + study.Problems[0].Reason
	}
	return ""
}

// drawEpochBars draws bars for the spread of each point's epochs, and adds the spread to the table.
func (b *figureBuilder) drawEpochBars() {
	spreads := b.study.EpochSpreads().Rows
	at := map[string][]element.Interval{}
	for _, e := range spreads {
		v := b.q.spread(e)
		if e.Size <= 0 || !(v.High >= v.Low) {
			continue
		}
		at[e.Series] = append(at[e.Series], element.Interval{X: float64(e.Size), Lo: v.Low, Hi: v.High})
		b.reach.AddOnAxis(b.o.LogY || b.log, v.Low, v.High)
		b.spreads = true
	}
	b.placeBarsSideBySide(func(name string) []element.Interval { return at[name] })
	for _, name := range b.study.Series() {
		b.plot.Add(element.ErrorBars{At: at[name], Style: draw.LineStyle{Color: seriesStyle(b.study, name).Line.Color, Width: 1}, Placement: b.sideShifts[name]})
	}
	low, high := make([]float64, len(b.study.Points)), make([]float64, len(b.study.Points))
	for i, p := range b.study.Points { // the rows of the table
		low[i], high[i] = math.NaN(), math.NaN()
		for _, e := range spreads {
			if e.Series == p.Series && e.Workers == p.Workers {
				v := b.q.spread(e)
				low[i], high[i] = v.Low, v.High
			}
		}
	}
	name := b.q.columns[0]
	b.table = b.table.Mutate(series.New(low, series.Float, name+"_spread_low")).Mutate(series.New(high, series.Float, name+"_spread_high"))
}

func (b *figureBuilder) drawSeriesRanges(series string, l element.SeriesStyle) {
	var at []element.Interval
	for _, p := range b.study.Points {
		if p.Series != series || p.Size <= 0 {
			continue
		}
		if why := b.q.span(p).NotDrawnReason(); why != "" && b.o.Intervals == "" && !slices.Contains(b.notDrawn, why) {
			b.notDrawn = append(b.notDrawn, why)
		}
		lo, hi, confident, ok := b.o.estimateBarRange(b.q.span(p))
		if v := b.q.span(p).Value; !ok && b.combined > 0 && b.banded && element.IsFinite(v) { // all series have the same value, such as the speed-up of the baseline
			lo, hi, ok = v, v, true
		}
		if !ok {
			continue
		}
		at = append(at, element.Interval{X: float64(p.Size), Lo: lo, Hi: hi})
		b.reach.AddOnAxis(b.o.LogY || b.log, lo, hi)
		if hi > lo {
			b.intervals, b.ranges = b.intervals || confident, b.ranges || !confident
		}
	}
	if b.banded {
		b.plot.Add(element.Band{At: at, Fill: element.WithAlpha(l.Line.Color, seriesBandAlpha)})
		return
	}
	b.plot.Add(element.ErrorBars{At: at, Style: draw.LineStyle{Color: l.Line.Color, Width: 1}, Placement: b.sideShifts[series]})
}

func (b *figureBuilder) placeBarsSideBySide(at func(series string) []element.Interval) {
	names := b.study.Series()
	bars := make([][]element.Interval, len(names))
	for i, name := range names {
		bars[i] = at(name)
	}
	b.sideShifts = map[string]element.SidewaysShift{}
	for i, place := range element.NewSidewaysShifts(bars) {
		b.sideShifts[names[i]] = place
	}
}

func (b *figureBuilder) seriesRanges(series string) []element.Interval {
	var at []element.Interval
	for _, p := range b.study.Points {
		if lo, hi, _, ok := b.o.estimateBarRange(b.q.span(p)); ok && p.Series == series && p.Size > 0 {
			at = append(at, element.Interval{X: float64(p.Size), Lo: lo, Hi: hi})
		}
	}
	return at
}

func (b *figureBuilder) seriesPoints(series string, value func(scaling.Point) float64) plotter.XYs {
	var xy plotter.XYs
	for _, p := range b.study.Points {
		if v := value(p); p.Series == series && p.Size > 0 && element.IsFinite(v) {
			xy = append(xy, plotter.XY{X: float64(p.Size), Y: v})
		}
	}
	return xy
}

func (b *figureBuilder) drawSeriesLine(series string, l element.SeriesStyle) {
	for _, p := range b.study.Points {
		if p.Series == series && !(element.IsFinite(b.q.span(p).Value) && p.Size > 0) {
			b.missing = append(b.missing, fmt.Sprintf("%s at %d", series, p.Workers))
		}
	}
	xy := b.seriesValues(series)
	if len(xy) == 0 {
		return
	}
	for _, v := range xy {
		b.values.AddOnAxis(b.o.LogY, v.Y)
	}
	if b.q.solid {
		l.Line.Dashes = nil
	}
	if b.q.points {
		l.Line.Width = 0
	}
	b.plot.Add(b.sideShifts[series].ShiftPlotters(element.LineWithGlyphs(xy, l))...)
	b.markUnreliableTimes(series)
	if !b.q.points { // the caller adds a legend entry for the points
		b.legend = append(b.legend, newLineLegendEntry(series, l, yValues(xy)))
	}
}

func disturbedRunGlyph() draw.GlyphStyle {
	return draw.GlyphStyle{Shape: element.RingGlyph{}, Radius: 7, Color: element.Gray()}
}

func sharedCoresGlyph() draw.GlyphStyle {
	return draw.GlyphStyle{Shape: draw.SquareGlyph{}, Radius: 8, Color: element.Gray()}
}

// markUnreliableTimes marks the unreliable times of a series: with a circle if other load on the
// machine disturbed at least one of the runs, and with a square if the workers shared cores.
func (b *figureBuilder) markUnreliableTimes(series string) {
	if !b.q.ofTime {
		return
	}
	mark := func(style draw.GlyphStyle, applies func(scaling.Point) bool) bool {
		var xy plotter.XYs
		for _, p := range b.study.Points {
			if v := b.q.span(p).Value; p.Series == series && applies(p) && p.Size > 0 && element.IsFinite(v) {
				xy = append(xy, plotter.XY{X: float64(p.Size), Y: v})
			}
		}
		if len(xy) > 0 {
			b.plot.Add(b.sideShifts[series].ShiftPlotters([]plot.Plotter{element.Dots{XY: xy, Style: style}})...)
		}
		return len(xy) > 0
	}
	b.disturbed = mark(disturbedRunGlyph(), func(p scaling.Point) bool { return p.Disturbed > 0 }) || b.disturbed
	b.sharedCores = mark(sharedCoresGlyph(), func(p scaling.Point) bool { return p.SharedCores > 0 }) || b.sharedCores
}

// drawIdealLine draws the line of values proportional to the size, from the given point up
// to the size maxSize.
func (b *figureBuilder) drawIdealLine(from plotter.XY, maxSize int, style draw.LineStyle) {
	if float64(maxSize) <= from.X {
		return
	}
	end := plotter.XY{X: float64(maxSize), Y: from.Y * float64(maxSize) / from.X}
	line := plotter.XYs{from, end}
	if b.log && !b.q.proportional { // a proportional line is curved on these axes
		line = idealCurve(from, maxSize)
	}
	b.plot.Add(element.LineWithGlyphs(line, element.SeriesStyle{Line: style})...)
	b.values.Add(end.Y)
}

// idealCurve returns many points of the ideal line, for axes on which the line is curved.
func idealCurve(from plotter.XY, to int) plotter.XYs {
	const n = 60
	var xy plotter.XYs
	for i := range n + 1 {
		x := from.X + (float64(to)-from.X)*float64(i*i)/(n*n)
		xy = append(xy, plotter.XY{X: x, Y: from.Y * x / from.X})
	}
	return xy
}

// drawIdealSpeedups draws the line N/B up to the largest worker count, where B is the baseline. If
// the series have different baselines, B is the most frequent one, and the caption says so.
func (b *figureBuilder) drawIdealSpeedups() {
	series := map[int][]string{} // by baseline
	for _, p := range b.study.Points {
		if element.IsFinite(p.Speedup.Value) && p.Baseline > 0 && !slices.Contains(series[p.Baseline], p.Series) {
			series[p.Baseline] = append(series[p.Baseline], p.Series)
		}
	}
	if len(series) == 0 {
		return
	}
	bases := slices.Sorted(maps.Keys(series))
	base := slices.MaxFunc(bases, func(x, y int) int { return len(series[x]) - len(series[y]) })
	style := element.DottedLine(element.Gray())
	from := plotter.XY{X: float64(base), Y: 1}
	if first := float64(b.sizes[0]); from.X < first { // a baseline that is not drawn
		from = plotter.XY{X: first, Y: first / from.X}
	}
	b.drawIdealLine(from, b.sizes[len(b.sizes)-1], style)
	name := "ideal"
	if len(bases) > 1 {
		name += fmt.Sprintf(" over %d", base)
		for _, other := range bases {
			if other != base {
				b.otherIdeals = append(b.otherIdeals, fmt.Sprintf("%s over %d", english.JoinAnd(series[other]), other))
			}
		}
	}
	if len(b.sizes) > 1 {
		b.legend = append(b.legend, element.LegendEntry{Name: name, Icons: []plot.Thumbnailer{element.LegendKey{Line: style}}})
	}
}

// drawIdealLines draws the ideal line of each series, which is proportional to the worker count and
// starts at the value of the smallest one. If these lines would hide each other, it draws only the
// highest.
func (b *figureBuilder) drawIdealLines() {
	names := slices.DeleteFunc(b.study.Series(), func(name string) bool { return len(b.seriesValues(name)) < 2 })
	if len(names) == 0 {
		return
	}
	color := element.Gray()
	if len(names) > maxSeriesBands {
		rate := func(name string) float64 { xy := b.seriesValues(name)[0]; return xy.Y / xy.X }
		highest := slices.MaxFunc(names, func(x, y string) int { return cmp.Compare(rate(x), rate(y)) })
		names, b.idealOf = []string{highest}, highest
	}
	if len(names) == 1 {
		color = seriesStyle(b.study, names[0]).Line.Color
	}
	for _, series := range names {
		xy := b.seriesValues(series)
		b.drawIdealLine(xy[0], int(xy[len(xy)-1].X), element.DottedLine(seriesStyle(b.study, series).Line.Color))
	}
	b.legend = append(b.legend, element.LegendEntry{Name: "ideal", Icons: []plot.Thumbnailer{element.LegendKey{Line: element.DottedLine(color)}}})
}

func (b *figureBuilder) seriesValues(series string) plotter.XYs {
	return b.seriesPoints(series, func(p scaling.Point) float64 { return b.q.span(p).Value })
}

// finishFigure sets the axes and the caption. If high is finite and all values are between 0 and
// high, the value axis ends at high.
func (b *figureBuilder) finishFigure(high float64) *Figure {
	element.SetCountAxis(&b.plot.X, b.sizes, b.log)
	log := b.o.LogY || b.log && b.q.proportional
	element.SetValueAxis(&b.plot.Y, b.values, b.reach, log, b.log && b.q.name == "speedup")
	if element.IsFinite(high) && !log && b.values.Lo >= 0 && b.values.Hi <= high { // else the values have another unit
		b.plot.Y.Max = high
		b.plot.Y.Min = max(b.plot.Y.Min, 0)
	}
	if b.disturbed {
		b.legend = append(b.legend, element.LegendEntry{Name: "disturbed by other load", Icons: []plot.Thumbnailer{element.LegendKey{Glyph: disturbedRunGlyph()}}})
	}
	if b.sharedCores {
		b.legend = append(b.legend, element.LegendEntry{Name: "workers shared cores", Icons: []plot.Thumbnailer{element.LegendKey{Glyph: sharedCoresGlyph()}}})
	}
	b.caption = b.captionText() + clippedBarsNote(b.plot, b.reach)
	return b.Figure
}

// clippedBarsNote returns a sentence for the caption if a bar or band extends beyond the plot, or
// "" if none does.
func clippedBarsNote(p *plot.Plot, reach element.Extent) string {
	const rounding = 1e-9
	room := rounding * (p.Y.Max - p.Y.Min)
	if reach.Hi > p.Y.Max+room || reach.Lo < p.Y.Min-room {
		return " A bar with an arrow, or a band at the edge, continues beyond the axis."
	}
	return ""
}

// captionText returns a caption that describes the quantity, how it was computed, how
// repeated runs are drawn, and the number of runs per point.
func (b *figureBuilder) captionText() string {
	c := b.q.what
	if hasRepeats(b.fullStudy) {
		c += "; " + cmp.Or(b.fullStudy.Rule.Repeats, scaling.Median) + " over repeated runs"
	}
	c += ". " + b.repeatedRunsNote()
	if len(b.missing) > 0 {
		c += " No value: " + joinFirstNames(b.missing) + "."
	}
	if b.idealOf != "" {
		c += " Ideal line: of " + b.idealOf + "."
	}
	if len(b.otherIdeals) > 0 {
		c += " The ideal line does not apply to " + strings.Join(b.otherIdeals, "; ") + "."
	}
	return c
}

// repeatedRunsNote returns sentences for a caption about the number of runs per point, what bars
// show, and which runs are not drawn.
func (b *figureBuilder) repeatedRunsNote() string {
	if b.combined > 0 {
		return b.medianRepeatsNote()
	}
	var n []int
	for _, p := range b.study.Points {
		if v := b.q.span(p); element.IsFinite(v.Value) {
			n = append(n, v.N)
		}
	}
	what := "Bars"
	if b.banded {
		what = "Bands"
	}
	c := runsPerPointNote(n)
	if b.intervals {
		c += " " + what + ": " + intervalsNote(b.study)
	}
	if b.ranges {
		c += " " + what + " reach from the lowest to the highest of repeated runs"
		if b.intervals {
			c += " where there is no interval"
		}
		c += "."
	}
	for _, why := range b.notDrawn {
		c += " " + strings.ToUpper(why[:1]) + why[1:] + "."
	}
	if slices.ContainsFunc(slices.Collect(maps.Values(b.sideShifts)), func(s element.SidewaysShift) bool { return s.Count > 1 }) {
		c += sideBySideNote
	}
	if b.spreads {
		c += fmt.Sprintf(" Bars: the middle %s of the epochs of a point's runs; no confidence interval.", english.FormatPercent(confidenceLevel(b.study)))
	}
	return c + failedRunsNote(b.study)
}

// runsPerPointNote returns a sentence about the number of runs per point, or "" if all are 0.
func runsPerPointNote(n []int) string {
	n = slices.DeleteFunc(n, func(v int) bool { return v <= 0 })
	if len(n) == 0 {
		return ""
	}
	lo, hi := slices.Min(n), slices.Max(n)
	switch {
	case hi == 1:
		return "n = 1 run a point."
	case lo == hi:
		return fmt.Sprintf("n = %s per point.", english.FormatCount(lo, "run"))
	}
	return fmt.Sprintf("n = %d to %d runs per point.", lo, hi)
}

// failedRunsNote returns sentences about the failed and canceled runs, which are not drawn, and
// about the conditions under which the times were measured.
func failedRunsNote(study *scaling.Study) string {
	failed := 0
	for _, p := range study.Points {
		failed += p.Failed
	}
	conditions := ""
	if text := study.ConditionsNote(); text != "" {
		conditions = " " + text + "."
	}
	switch failed {
	case 0:
		return conditions
	case 1:
		return " 1 failed or cancelled run is not drawn." + conditions
	}
	return fmt.Sprintf(" %d failed or cancelled runs are not drawn.", failed) + conditions
}

// dataOriginNote returns a sentence about where the numbers of the study's runs come from if they were not trained here,
// and what was assumed about them, such as "Workers of 4 runs assumed from file names.". It returns "" if there is
// nothing to say.
func dataOriginNote(study *scaling.Study) string {
	text := strings.Join(append(study.Sources(), study.Assumptions()...), "; ")
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// intervalsNote returns the end of a sentence for a caption about bars or bands that are confidence intervals.
func intervalsNote(study *scaling.Study) string {
	return english.FormatPercent(confidenceLevel(study)) + " confidence intervals over repeated runs."
}

// methodNote describes how all values of a study were computed.
func methodNote(study *scaling.Study) string {
	text := "Rule: " + study.Rule.String() + "."
	if hasRepeats(study) {
		note := study.IntervalNote()
		text += " " + strings.ToUpper(note[:1]) + note[1:] + "."
	}
	return text
}

// hasRepeats reports whether any point represents several runs.
func hasRepeats(study *scaling.Study) bool {
	return slices.ContainsFunc(study.Points, func(p scaling.Point) bool { return p.Runs > 1 })
}

// joinFirstNames joins at most eight names, and counts the others.
func joinFirstNames(names []string) string {
	const most = 8
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

func untrainedGlyph(c color.Color) draw.GlyphStyle {
	return draw.GlyphStyle{Color: c, Radius: vg.Length(4.4), Shape: element.RingGlyph{}}
}
