package figure

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling"
)

// CommunicationPairs returns pairs of series; the first of each pair communicates and the second
// does not. It returns Options.Pairs or, if that is empty, the pairs that the study finds.
func (o Options) CommunicationPairs(study *scaling.Study) [][2]string {
	if len(o.Pairs) > 0 {
		return o.Pairs
	}
	return study.CommunicationPairs()
}

// pairedSeriesStyles returns the style of each series. A series without communication is dashed,
// has hollow circles as marks, and has the color of its partner.
func (o Options) pairedSeriesStyles(study *scaling.Study) map[string]element.SeriesStyle {
	pairs := o.CommunicationPairs(study)
	looks := map[string]element.SeriesStyle{}
	for _, series := range study.Series() {
		l := seriesStyle(study, series)
		l.Line.Dashes = nil
		looks[series] = l
	}
	for _, p := range pairs {
		l := looks[p[0]]
		l.Line.Dashes = []vg.Length{5, 3}
		l.Glyph.Shape = element.RingGlyph{}
		looks[p[1]] = l
	}
	return looks
}

// WeakScaling draws the samples per second of all workers together on logarithmic axes, for series
// with a fixed batch per worker. Dotted lines are ideal scaling from the smallest worker count. A
// series without communication is dashed, in the color of its partner. Series whose logs do not
// contain the batch size are drawn too, and the caption names them.
//
// If all series together have at most 12 trials, it draws each trial (FULL, SYNTHETIC and IO) as a
// line. The axis then shows nodes if the logs contain them and Rule.Per is empty, as in the SC21
// tutorial (github.com/NERSC/sc21-dl-tutorial).
func (o Options) WeakScaling(study *scaling.Study) (*Figure, error) {
	const name = "weak_scaling"
	study, err := o.selectSeries(study, name)
	if err != nil {
		return nil, err
	}
	o.Series = nil
	drawn, what := study, ""
	if trials := study.SplitTrials(); trials != study && !hasManySeries(trials) { // else the median of different trials would be drawn
		drawn = trials
		what = "; FULL: training with the loader, SYNTHETIC: training on data in memory, IO: the loader alone"
		o.Pairs = matchTrialPairs(o.CommunicationPairs(study), drawn)
		if drawn, err = withNodeSizes(drawn); err != nil {
			return nil, fmt.Errorf("draw figure %s: %w", name, err)
		}
	}
	unit, phrase, err := o.throughputUnit(drawn, name)
	if err != nil {
		return nil, err
	}
	f, err := o.drawScaling(drawn, scalingFigureKind{
		name: name, title: "Weak scaling", wanted: "weak", other: scaling.ScalingStrong,
		what: "Weak scaling (the batch per worker is fixed): " + strings.ToLower(phrase[:1]) + phrase[1:] + " of all workers together" + what + "; dotted: ideal scaling from the smallest worker count",
		measure: func(p scaling.Point) (scaling.Estimate, string) {
			return p.Throughput, "throughput (" + unit + ")"
		},
		missing:    "the logs contain no throughput; set --samples-per-epoch, or draw the figure strong_scaling",
		columns:    append(withIntervalColumns("throughput"), "efficiency", "scaling"),
		mode:       func(m scaling.Mode) string { return m.Scaling },
		idealPower: 1,
	})
	if err != nil {
		return nil, err
	}
	f.origin = dataOriginNote(study) // of the runs, not of their trials
	return f, nil
}

// matchTrialPairs returns the pairs of trials that belong to the given pairs of series. Each series
// of the study trials is one trial.
func matchTrialPairs(pairs [][2]string, trials *scaling.Study) [][2]string {
	names := trials.Series()
	var out [][2]string
	for _, p := range pairs {
		for _, trial := range []string{"", ", " + scaling.TrialFull, ", " + scaling.TrialSynthetic, ", " + scaling.TrialIO} {
			if of := [2]string{p[0] + trial, p[1] + trial}; slices.Contains(names, of[0]) && slices.Contains(names, of[1]) {
				out = append(out, of)
			}
		}
	}
	return out
}

// withNodeSizes returns a study whose sizes are nodes, if the logs contain the nodes of all runs
// and the rule does not set the unit of sizes. Otherwise it returns study.
func withNodeSizes(study *scaling.Study) (*scaling.Study, error) {
	if study.Rule.Per != "" || slices.ContainsFunc(study.Points, func(p scaling.Point) bool { return p.Nodes == 0 }) {
		return study, nil
	}
	rule := study.Rule
	rule.Per = scaling.PerNode
	return study.WithRule(rule)
}

// StrongScaling draws the time for a fixed amount of work on logarithmic axes. The work is one
// epoch over the same samples, or the complete job if the logs contain only its time. Dotted lines
// are the ideal times t(B)·B/N, where B is the smallest worker count.
func (o Options) StrongScaling(study *scaling.Study) (*Figure, error) {
	wall := study != nil && !slices.ContainsFunc(study.Points, func(p scaling.Point) bool { return element.IsFinite(p.EpochSeconds.Value) })
	return o.drawScaling(study, scalingFigureKind{
		name: "strong_scaling", title: "Strong scaling", wanted: "strong", other: scaling.ScalingWeak,
		what: "Strong scaling: time for the same samples; dotted: t(B)·B/N from B, the smallest worker count",
		measure: func(p scaling.Point) (scaling.Estimate, string) {
			if wall {
				return p.WallSeconds, "time of the whole job (s)"
			}
			return p.EpochSeconds, "time per epoch (s)"
		},
		missing: "the logs contain no time of an epoch or of the job",
		columns: append(withIntervalColumns("epoch_seconds", "wall_seconds"), "efficiency", "scaling"),
		mode: func(m scaling.Mode) string { // of an epoch, so only the samples count
			switch m.Samples {
			case "fixed":
				return scaling.ScalingStrong
			case "fixed per worker":
				return scaling.ScalingWeak
			}
			return scaling.ScalingUnknown
		},
		idealPower: -1,
	})
}

type scalingFigureKind struct {
	name, title, what, wanted, other, missing string
	measure                                   func(scaling.Point) (scaling.Estimate, string)
	columns                                   []string
	mode                                      func(scaling.Mode) string
	idealPower                                float64 // exponent of N/B in ideal scaling
}

// drawScaling draws the figure of weak or of strong scaling. It omits series of the other kind.
func (o Options) drawScaling(study *scaling.Study, kind scalingFigureKind) (*Figure, error) {
	study, err := o.selectSeries(study, kind.name)
	if err != nil {
		return nil, err
	}
	var otherKind []string // series that are not drawn
	var unknown []string
	for _, series := range study.Series() {
		switch kind.mode(study.Mode(series)) {
		case kind.other:
			otherKind = append(otherKind, series)
		case scaling.ScalingUnknown:
			unknown = append(unknown, series)
		}
	}
	if len(otherKind) == len(study.Series()) {
		return nil, fmt.Errorf("draw figure %s: no series shows %s scaling: %s", kind.name, kind.wanted, study.Mode(otherKind[0]).String())
	}
	span := func(p scaling.Point) scaling.Estimate { v, _ := kind.measure(p); return v }
	var sizes []int
	for _, p := range study.Points {
		if p.Size > 0 && element.IsFinite(span(p).Value) && !slices.Contains(otherKind, p.Series) {
			sizes = append(sizes, p.Size)
		}
	}
	if len(sizes) == 0 {
		return nil, fmt.Errorf("draw figure %s: no run has a value for this figure: %s", kind.name, kind.missing)
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	if len(sizes) < 2 {
		return nil, fmt.Errorf("draw figure %s: all runs have %s; need at least two worker counts to show scaling", kind.name, english.FormatCount(sizes[0], "worker"))
	}
	_, label := kind.measure(study.Points[0])
	b := &figureBuilder{
		o: o, study: study, fullStudy: study, sizes: sizes, log: o.Scale != Linear, values: element.EmptyExtent(), reach: element.EmptyExtent(),
		q: plottedQuantity{name: kind.name, axis: label, span: span, what: kind.what, ofTime: true, proportional: true, columns: kind.columns},
	}
	b.Figure = b.o.newFigure(kind.name, kind.title, study.SizeName(), label)
	b.table = study.Table().Select(append(b.rowKeyColumns(), kind.columns...))
	if b.table.Err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", kind.name, b.table.Err)
	}
	if len(study.Series())-len(otherKind) > maxIndividualSeries {
		b.combineAllSeries(slices.DeleteFunc(slices.Clone(study.Points), func(p scaling.Point) bool { return slices.Contains(otherKind, p.Series) }))
	}
	b.drawScalingLines(kind, otherKind)
	f := b.finishFigure(math.NaN())
	if len(otherKind) > 0 {
		f.caption += " Not drawn, for another kind of scaling: " + joinFirstNames(otherKind) + "."
	}
	if len(unknown) > 0 {
		f.caption += " The logs do not contain the batch size of: " + joinFirstNames(unknown) + "."
	}
	return f.finishLayout(study)
}

func (b *figureBuilder) drawScalingLines(kind scalingFigureKind, otherKind []string) {
	looks := b.o.pairedSeriesStyles(b.study)
	b.placeBarsSideBySide(func(series string) []element.Interval {
		if slices.Contains(otherKind, series) {
			return nil
		}
		return b.seriesRanges(series)
	})
	named := false
	for _, series := range b.study.Series() {
		if slices.Contains(otherKind, series) {
			continue
		}
		l := looks[series]
		b.drawSeriesRanges(series, l)
		b.drawSeriesLine(series, l)
		xy := b.seriesPoints(series, func(p scaling.Point) float64 { return b.q.span(p).Value })
		if len(xy) < 2 {
			continue
		}
		from, last := xy[0], xy[len(xy)-1].X
		var ideal plotter.XYs
		const n = 60
		for i := range n + 1 {
			x := from.X * math.Pow(last/from.X, float64(i)/n)
			ideal = append(ideal, plotter.XY{X: x, Y: from.Y * math.Pow(x/from.X, kind.idealPower)})
		}
		b.values.Add(ideal[n].Y)
		b.plot.Add(element.LineWithGlyphs(ideal, lineOnlyStyle(element.DottedLine(l.Line.Color)))...)
		named = true
	}
	b.addRangeToLegend()
	if named {
		b.legend = append(b.legend, element.LegendEntry{Name: "ideal", Icons: []plot.Thumbnailer{element.LegendKey{Line: element.DottedLine(element.Gray())}}})
	}
}

// Overhead draws the fraction of the speed that communication costs, (without − with)/without in
// percent, for each pair of series with and without communication. If both have trials named
// SYNTHETIC, these are compared; see scaling.Study.Overhead.
func (o Options) Overhead(study *scaling.Study) (*Figure, error) {
	const name = "overhead"
	study, err := o.selectSeries(study, name)
	if err != nil {
		return nil, err
	}
	overheads, err := study.Overheads(o.Pairs...)
	if err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	f := o.newFigure(name, "Overhead of communication", study.SizeName(), "overhead (%)")
	var sizes []int
	var conclusions []string
	values, reach := element.EmptyExtent(), element.EmptyExtent()
	var all []seriesMarks
	shares := map[int][]float64{} // by size, over all pairs
	for _, over := range overheads {
		f.addOverheadRows(over)
		var xy plotter.XYs
		bounds := element.ErrorBars{Style: draw.LineStyle{Color: seriesStyle(study, over.With).Line.Color, Width: 1}}
		for _, r := range over.Rows {
			v := r.Overhead
			if !element.IsFinite(v.Value) || r.Size <= 0 {
				continue
			}
			xy = append(xy, plotter.XY{X: float64(r.Size), Y: 100 * v.Value})
			sizes = append(sizes, r.Size)
			shares[r.Size] = append(shares[r.Size], 100*v.Value)
			values.Add(100 * v.Value)
			if lo, hi, _, ok := o.estimateBarRange(v); ok {
				bounds.At = append(bounds.At, element.Interval{X: float64(r.Size), Lo: 100 * lo, Hi: 100 * hi})
				reach.Add(100*lo, 100*hi)
			}
		}
		all = append(all, seriesMarks{bounds, element.LineWithGlyphs(xy, seriesStyle(study, over.With))})
		f.legend = append(f.legend, element.LegendEntry{Name: over.With, Icons: []plot.Thumbnailer{element.LegendKey(seriesStyle(study, over.With))}})
		if over.Sentence != "" {
			conclusions = append(conclusions, strings.TrimSuffix(over.Sentence, ".")+".")
		}
	}
	if len(sizes) == 0 {
		return nil, fmt.Errorf("draw figure %s: %w", name, errors.New("no pair of series has throughputs at the same worker count"))
	}
	if len(overheads) > maxIndividualSeries {
		all, conclusions = []seriesMarks{medianMarks(shares)}, []string{fmt.Sprintf("Line: the median of %d pairs of series; bars: from the lowest to the highest overhead of these pairs. To draw each pair, choose at most %d with --pair, in a notebook with Options.Pairs.", len(overheads), maxIndividualSeries)}
		f.legend = []element.LegendEntry{{Name: fmt.Sprintf("median of %d pairs of series", len(overheads)), Icons: []plot.Thumbnailer{element.LegendKey(element.NewSeriesStyle(0))}}}
	}
	note := f.addSeriesSideBySide(all)
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	element.SetCountAxis(&f.plot.X, sizes, o.usesLogAxis(sizes))
	element.SetValueAxis(&f.plot.Y, values, reach, false, false)
	zero := plotter.XYs{{X: f.plot.X.Min, Y: 0}, {X: f.plot.X.Max, Y: 0}}
	if values.Lo < 0 {
		f.plot.Add(element.LineWithGlyphs(zero, lineOnlyStyle(draw.LineStyle{Color: color.Gray{Y: 160}, Width: 0.8}))...)
	}
	if reach.Hi >= reach.Lo && len(overheads) <= maxIndividualSeries {
		note = " Bars: " + intervalsNote(study) + note
	}
	f.caption = "Share of the speed that communication costs, (without − with)/without. " + strings.Join(conclusions, " ") + note + failedRunsNote(study)
	return f.finishLayout(study)
}

func (f *Figure) addOverheadRows(over *scaling.Overhead) {
	t := over.Table()
	t = prependTextColumn(prependTextColumn(t, "without_series", over.Without), "series", over.With)
	if f.table.Ncol() == 0 {
		f.table = t
		return
	}
	f.table = f.table.RBind(t)
}

func prependTextColumn(t dataframe.DataFrame, name, text string) dataframe.DataFrame {
	return dataframe.New(series.New(slices.Repeat([]string{text}, t.Nrow()), series.String, name)).CBind(t)
}
