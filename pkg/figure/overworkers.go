package figure

import (
	"fmt"
	"image/color"
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

// quantity is what a figure over the worker count draws.
type quantity struct {
	name, title, axis string
	what              string // in the caption
	columns           []string
	span              func(scaling.Point) scaling.Estimate
	spread            func(scaling.EpochSpread) scaling.Spread // of the epochs; nil where they have none
	ofTime            bool                                     // the rule says how it came about
	proportional      bool                                     // on log2 axes, log2 or log10 as well
	band              bool                                     // intervals are bands, where they do not hide each other
	solid             bool                                     // lines have no dashes, which mean something else
	points            bool                                     // no line joins the points
}

// mostBands is how many series can have a band before they hide each other.
const mostBands = 3

// builder makes a figure over the worker count.
type builder struct {
	*Figure
	o             Options
	study         *scaling.Study // that is drawn: whole, or of many series one that has their medians
	whole         *scaling.Study
	many          int // series that study combines; 0 where each is drawn
	q             quantity
	sizes         []int // ascending
	log           bool  // of the axis of the workers
	values, reach element.Extent
	missing       []string // points without a value, for the caption
	intervals     bool     // a confidence interval is drawn
	ranges        bool     // lowest and highest are drawn
	notDrawn      []string // why intervals are not drawn
	banded        bool
	spreads       bool // of epochs are drawn
	besides       map[string]element.SideBySide
	disturbed     bool // a point has a ring because other load disturbed its runs
}

// overWorkers draws a quantity's points, a line for each series.
func (o Options) overWorkers(study *scaling.Study, q quantity) (*builder, error) {
	study, err := o.of(study, q.name)
	if err != nil {
		return nil, err
	}
	b := &builder{o: o, study: study, whole: study, q: q, values: element.EmptyExtent(), reach: element.EmptyExtent()}
	for _, p := range study.Points {
		if p.Size > 0 && element.Finite(q.span(p).Value) {
			b.sizes = append(b.sizes, p.Size)
		}
	}
	if len(b.sizes) == 0 {
		return nil, fmt.Errorf("draw figure %s: no run has a value for it%s", q.name, why(study, q.name))
	}
	slices.Sort(b.sizes)
	b.sizes = slices.Compact(b.sizes)
	b.log = o.logarithmic(b.sizes)
	axis := "workers"
	if study.Rule.Per == scaling.PerNode {
		axis = "nodes"
	}
	b.Figure = b.o.figure(q.name, q.title, axis, q.axis)
	b.table = study.Table().Select(append(b.identity(), q.columns...))
	if b.table.Err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", q.name, b.table.Err)
	}
	b.banded = q.band && len(study.Series()) <= mostBands
	if tooMany(study) {
		b.combine(study.Points)
		study = b.study
	}
	if b.o.Intervals == IntervalsEpochs && q.spread != nil {
		b.epochBars()
	}
	if !b.banded && b.besides == nil {
		b.placeBars(b.reaches)
	}
	for i, series := range study.Series() {
		b.bars(series, element.SeriesLook(i))
	}
	for i, series := range study.Series() {
		if err := b.line(series, element.SeriesLook(i)); err != nil {
			return nil, fmt.Errorf("draw figure %s: %w", q.name, err)
		}
	}
	b.nameRange()
	return b, nil
}

// identity are the columns that say what a row is.
func (b *builder) identity() []string {
	columns := []string{"series", "workers", "runs"}
	if b.study.Rule.Per == scaling.PerNode {
		columns = []string{"series", "workers", "nodes", "runs"}
	}
	return columns
}

// why says what a quantity without any value lacks.
func why(study *scaling.Study, name string) string {
	switch name {
	case "throughput":
		return " (the logs tell no sample counts); give them with Rule.SamplesPerEpoch"
	case "accuracy":
		return " (the logs tell no accuracy)"
	}
	if len(study.Problems) > 0 {
		return "; see the study's problems, the first is: " + study.Problems[0].Reason
	}
	return ""
}

// epochBars draws how much the epochs of each point scatter, and puts it into
// the table.
func (b *builder) epochBars() {
	spreads := b.study.EpochSpreads().Rows
	at := map[string][]element.Interval{}
	for _, e := range spreads {
		v := b.q.spread(e)
		if e.Size <= 0 || !(v.High >= v.Low) {
			continue
		}
		at[e.Series] = append(at[e.Series], element.Interval{X: float64(e.Size), Lo: v.Low, Hi: v.High})
		b.reach.AddOn(b.o.LogY || b.log, v.Low, v.High)
		b.spreads = true
	}
	b.placeBars(func(name string) []element.Interval { return at[name] })
	for i, name := range b.study.Series() {
		b.plot.Add(element.ErrorBars{At: at[name], Style: draw.LineStyle{Color: element.SeriesLook(i).Line.Color, Width: 1}, Beside: b.besides[name]})
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

// bars draws how far the values of a series reach: a band, or bars.
func (b *builder) bars(series string, l element.Look) {
	var at []element.Interval
	for _, p := range b.study.Points {
		if p.Series != series || p.Size <= 0 {
			continue
		}
		if why := b.q.span(p).NotDrawn(); why != "" && b.o.Intervals == "" && !slices.Contains(b.notDrawn, why) {
			b.notDrawn = append(b.notDrawn, why)
		}
		lo, hi, confident, ok := b.o.reach(b.q.span(p))
		if v := b.q.span(p).Value; !ok && b.many > 0 && b.banded && element.Finite(v) { // where all series agree, such as the speed-up of the baseline
			lo, hi, ok = v, v, true
		}
		if !ok {
			continue
		}
		at = append(at, element.Interval{X: float64(p.Size), Lo: lo, Hi: hi})
		b.reach.AddOn(b.o.LogY || b.log, lo, hi)
		if hi > lo {
			b.intervals, b.ranges = b.intervals || confident, b.ranges || !confident
		}
	}
	if b.banded {
		b.plot.Add(element.Band{At: at, Fill: element.WithAlpha(l.Line.Color, bandAlpha)})
		return
	}
	b.plot.Add(element.ErrorBars{At: at, Style: draw.LineStyle{Color: l.Line.Color, Width: 1}, Beside: b.besides[series]})
}

// placeBars makes room for the bars of several series at equal x.
func (b *builder) placeBars(at func(series string) []element.Interval) {
	names := b.study.Series()
	bars := make([][]element.Interval, len(names))
	for i, name := range names {
		bars[i] = at(name)
	}
	b.besides = map[string]element.SideBySide{}
	for i, place := range element.PlaceSideBySide(bars) {
		b.besides[names[i]] = place
	}
}

// reaches returns the reach of each value of a series.
func (b *builder) reaches(series string) []element.Interval {
	var at []element.Interval
	for _, p := range b.study.Points {
		if lo, hi, _, ok := b.o.reach(b.q.span(p)); ok && p.Series == series && p.Size > 0 {
			at = append(at, element.Interval{X: float64(p.Size), Lo: lo, Hi: hi})
		}
	}
	return at
}

// points are those of a series that have a value.
func (b *builder) points(series string, value func(scaling.Point) float64) plotter.XYs {
	var xy plotter.XYs
	for _, p := range b.study.Points {
		if v := value(p); p.Series == series && p.Size > 0 && element.Finite(v) {
			xy = append(xy, plotter.XY{X: float64(p.Size), Y: v})
		}
	}
	return xy
}

// line draws a series.
func (b *builder) line(series string, l element.Look) error {
	for _, p := range b.study.Points {
		if p.Series == series && !(element.Finite(b.q.span(p).Value) && p.Size > 0) {
			b.missing = append(b.missing, fmt.Sprintf("%s at %d", series, p.Workers))
		}
	}
	xy := b.points(series, func(p scaling.Point) float64 { return b.q.span(p).Value })
	if len(xy) == 0 {
		return nil
	}
	for _, v := range xy {
		b.values.AddOn(b.o.LogY, v.Y)
	}
	if b.q.solid {
		l.Line.Dashes = nil
	}
	if b.q.points {
		l.Line.Width = 0
	}
	drawn, err := element.LineWithGlyphs(xy, l)
	if err != nil {
		return err
	}
	b.plot.Add(b.besides[series].MoveAll(drawn)...)
	b.ringDisturbed(series)
	if !b.q.points { // those are named with the line that joins them
		b.legend = append(b.legend, element.LegendEntry{Name: series, Icons: []plot.Thumbnailer{element.LegendKey(l)}})
	}
	return nil
}

// disturbedRing is the glyph around a point that other load disturbed.
func disturbedRing() draw.GlyphStyle {
	return draw.GlyphStyle{Shape: element.Ring{}, Radius: 7, Color: element.Gray()}
}

// ringDisturbed draws a ring around each time of a series if other load on the
// machine disturbed at least one of the runs that it was measured in.
func (b *builder) ringDisturbed(series string) {
	if !b.q.ofTime {
		return
	}
	var xy plotter.XYs
	for _, p := range b.study.Points {
		if v := b.q.span(p).Value; p.Series == series && p.Disturbed > 0 && p.Size > 0 && element.Finite(v) {
			xy = append(xy, plotter.XY{X: float64(p.Size), Y: v})
		}
	}
	if len(xy) == 0 {
		return
	}
	b.plot.Add(b.besides[series].MoveAll([]plot.Plotter{element.Dots{XY: xy, Style: disturbedRing()}})...)
	b.disturbed = true
}

// across draws the ideal line: from a point, in proportion to the size, up to a size.
func (b *builder) across(from plotter.XY, to int, style draw.LineStyle) error {
	if float64(to) <= from.X {
		return nil
	}
	end := plotter.XY{X: float64(to), Y: from.Y * float64(to) / from.X}
	drawn, err := element.LineWithGlyphs(plotter.XYs{from, end}, element.Look{Line: style})
	if err != nil {
		return fmt.Errorf("draw ideal: %w", err)
	}
	if b.log && !b.q.proportional { // the straight line bends there
		drawn, err = element.LineWithGlyphs(bent(from, to), element.Look{Line: style})
		if err != nil {
			return fmt.Errorf("draw ideal: %w", err)
		}
	}
	b.plot.Add(drawn...)
	b.values.Add(end.Y)
	return nil
}

// bent is the ideal line in many points.
func bent(from plotter.XY, to int) plotter.XYs {
	const n = 60
	var xy plotter.XYs
	for i := range n + 1 {
		x := from.X + (float64(to)-from.X)*float64(i*i)/(n*n)
		xy = append(xy, plotter.XY{X: x, Y: from.Y * x / from.X})
	}
	return xy
}

// idealSpeedup draws N/B for each baseline B, up to the most workers.
func (b *builder) idealSpeedup() error {
	var bases []int
	for _, p := range b.study.Points {
		if element.Finite(p.Speedup.Value) && p.Baseline > 0 {
			bases = append(bases, p.Baseline)
		}
	}
	slices.Sort(bases)
	style := element.DottedLine(element.Gray())
	for _, base := range slices.Compact(bases) {
		from := plotter.XY{X: float64(base), Y: 1}
		if first := float64(b.sizes[0]); from.X < first { // a baseline that is not drawn
			from = plotter.XY{X: first, Y: first / from.X}
		}
		if err := b.across(from, b.sizes[len(b.sizes)-1], style); err != nil {
			return err
		}
	}
	if len(bases) > 0 && len(b.sizes) > 1 {
		b.legend = append(b.legend, element.LegendEntry{Name: "ideal", Icons: []plot.Thumbnailer{element.LegendKey{Line: style}}})
	}
	return nil
}

// idealFrom draws for each series what its smallest size would give if all
// workers gave as much.
func (b *builder) idealFrom() error {
	named := false
	for i, series := range b.study.Series() {
		xy := b.points(series, func(p scaling.Point) float64 { return b.q.span(p).Value })
		if len(xy) < 2 {
			continue
		}
		if err := b.across(xy[0], int(xy[len(xy)-1].X), element.DottedLine(element.SeriesLook(i).Line.Color)); err != nil {
			return err
		}
		named = true
	}
	if named {
		c := element.Gray()
		if len(b.study.Series()) == 1 {
			c = element.SeriesLook(0).Line.Color
		}
		b.legend = append(b.legend, element.LegendEntry{Name: "ideal", Icons: []plot.Thumbnailer{element.LegendKey{Line: element.DottedLine(c)}}})
	}
	return nil
}

// finish sets the axes and the caption. A high that is finite is the end of
// the axis of the values, where they are between 0 and it.
func (b *builder) finish(high float64) *Figure {
	element.SetCountAxis(&b.plot.X, b.sizes, b.log)
	log := b.o.LogY || b.log && b.q.proportional
	element.SetValueAxis(&b.plot.Y, b.values, b.reach, log, b.log && b.q.name == "speedup")
	if element.Finite(high) && !log && b.values.Lo >= 0 && b.values.Hi <= high { // else it is not of that unit
		b.plot.Y.Max = high
		b.plot.Y.Min = max(b.plot.Y.Min, 0)
	}
	if b.disturbed {
		b.legend = append(b.legend, element.LegendEntry{Name: "disturbed by other load", Icons: []plot.Thumbnailer{element.LegendKey{Glyph: disturbedRing()}}})
	}
	b.caption = b.captionText() + cut(b.plot, b.reach)
	return b.Figure
}

// cut says that what shows the reach of values ends at the edge of the plot.
func cut(p *plot.Plot, reach element.Extent) string {
	const rounding = 1e-9
	room := rounding * (p.Y.Max - p.Y.Min)
	if reach.Hi > p.Y.Max+room || reach.Lo < p.Y.Min-room {
		return " Bars and bands that reach beyond the axis are cut."
	}
	return ""
}

// captionText says what, by which rule, how repeats are drawn, and of how many
// runs a point is.
func (b *builder) captionText() string {
	c := b.q.what
	if b.q.ofTime {
		c += "; " + b.study.Rule.String()
	} else if repeated(b.whole) {
		c += "; " + center(b.whole) + " over repeated runs"
	}
	c += ". " + b.repeats()
	if len(b.missing) > 0 {
		c += " No value: " + few(b.missing) + "."
	}
	return c
}

// repeats says how many runs a point is, what bars show, and what is not drawn.
func (b *builder) repeats() string {
	if b.many > 0 {
		return b.manyRepeats()
	}
	var n []int
	for _, p := range b.study.Points {
		if v := b.q.span(p); element.Finite(v.Value) {
			n = append(n, v.N)
		}
	}
	what := "Bars"
	if b.banded {
		what = "Bands"
	}
	c := runsAPoint(n)
	if b.intervals {
		c += " " + what + ": " + strings.TrimPrefix(b.study.IntervalNote(), "intervals: ") + "."
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
	if b.moved() {
		c += sideBySide
	}
	if b.spreads {
		c += " Bars are a " + b.study.SpreadNote() + "."
	}
	return c + notDrawn(b.study)
}

// moved reports whether any series is drawn beside another.
func (b *builder) moved() bool {
	for _, place := range b.besides {
		if place.Of > 1 {
			return true
		}
	}
	return false
}

// runsAPoint says n.
func runsAPoint(n []int) string {
	n = slices.DeleteFunc(n, func(v int) bool { return v <= 0 })
	if len(n) == 0 {
		return ""
	}
	lo, hi := slices.Min(n), slices.Max(n)
	switch {
	case hi == 1:
		return "n = 1 run a point."
	case lo == hi:
		return fmt.Sprintf("n = %s per point.", english.Count(lo, "run"))
	}
	return fmt.Sprintf("n = %d to %d runs per point.", lo, hi)
}

// notDrawn counts the runs that do not count, and names those that other load
// disturbed.
func notDrawn(study *scaling.Study) string {
	failed := 0
	for _, p := range study.Points {
		failed += p.Failed
	}
	disturbed := ""
	if text := study.Disturbed(); text != "" {
		disturbed = " " + text + "."
	}
	switch failed {
	case 0:
		return disturbed
	case 1:
		return " 1 failed or cancelled run is not drawn." + disturbed
	}
	return fmt.Sprintf(" %d failed or cancelled runs are not drawn.", failed) + disturbed
}

// repeated says whether any point stands for several runs.
func repeated(study *scaling.Study) bool {
	return slices.ContainsFunc(study.Points, func(p scaling.Point) bool { return p.Runs > 1 })
}

// center is how repeated runs become one.
func center(study *scaling.Study) string {
	if study.Rule.Repeats == scaling.Mean {
		return scaling.Mean
	}
	return scaling.Median
}

// few lists at most eight.
func few(names []string) string {
	const most = 8
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// ringLook is that of the untrained network.
func ringLook(c color.Color) draw.GlyphStyle {
	return draw.GlyphStyle{Color: c, Radius: vg.Length(4.4), Shape: element.Ring{}}
}
