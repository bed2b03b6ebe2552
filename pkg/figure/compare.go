package figure

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/go-gota/gota/dataframe"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/scaling"
)

// pairs are the series with and without communication: those of the options,
// or those whose names say so.
func (o Options) pairs(study *scaling.Study) [][2]string {
	if len(o.Pairs) > 0 {
		return o.Pairs
	}
	without := regexp.MustCompile(`(?i)[\s,;:()_-]*\b(no|without)[\s_-]+(communication|comm|all-?reduce|sync)\b[)]?`)
	var out [][2]string
	for _, name := range study.Series() {
		with := without.ReplaceAllString(name, "")
		if with != name && slices.Contains(study.Series(), with) {
			out = append(out, [2]string{with, name})
		}
	}
	return out
}

// pairLooks gives a series without communication the colour of the one with
// it, dashed and with a ring.
func (o Options) pairLooks(study *scaling.Study) map[string]element.Look {
	pairs := o.pairs(study)
	looks := map[string]element.Look{}
	i := 0
	for _, series := range study.Series() {
		if slices.ContainsFunc(pairs, func(p [2]string) bool { return p[1] == series }) {
			continue
		}
		l := element.SeriesLook(i)
		l.Line.Dashes = nil
		looks[series] = l
		i++
	}
	for _, p := range pairs {
		l := looks[p[0]]
		l.Line.Dashes = []vg.Length{5, 3}
		l.Glyph.Shape = element.Ring{}
		looks[p[1]] = l
	}
	return looks
}

// WeakScaling draws the samples per second of all workers together on
// logarithmic axes, where the work of a worker stays the same, and dotted what
// the smallest size promises. A series without communication is dashed, in the
// colour of the one with it. Series whose logs do not tell their batch are
// drawn too, and the caption names them.
func (o Options) WeakScaling(study *scaling.Study) (*Figure, error) {
	return o.scales(study, scalingKind{
		name: "weak_scaling", title: "Weak scaling", wanted: "weak", other: scaling.ScalingStrong,
		what: "Weak scaling (the batch per worker is fixed): samples per second of all workers together; dotted: as many for each worker as with the fewest",
		measure: func(p scaling.Point) (scaling.Estimate, string) {
			return p.Throughput, "throughput (samples/s)"
		},
		missing:    "its logs tell no throughput; give Rule.SamplesPerEpoch, or draw figure.StrongScaling",
		columns:    append(withBounds("throughput"), "efficiency", "scaling"),
		mode:       func(m scaling.Mode) string { return m.Scaling },
		idealPower: 1,
	})
}

// StrongScaling draws the time for the same work on logarithmic axes: of an
// epoch over the same samples, or of the whole job where the logs tell that
// alone; dotted is t(B)·B/N.
func (o Options) StrongScaling(study *scaling.Study) (*Figure, error) {
	wall := study != nil && !slices.ContainsFunc(study.Points, func(p scaling.Point) bool { return element.Finite(p.EpochSeconds.Value) })
	return o.scales(study, scalingKind{
		name: "strong_scaling", title: "Strong scaling", wanted: "strong", other: scaling.ScalingWeak,
		what: "Strong scaling: time for the same samples; dotted: t(B)·B/N from the fewest workers B",
		measure: func(p scaling.Point) (scaling.Estimate, string) {
			if wall {
				return p.WallSeconds, "time of the whole job (s)"
			}
			return p.EpochSeconds, "time per epoch (s)"
		},
		missing: "its logs tell no time of an epoch or of the job",
		columns: append(withBounds("epoch_seconds", "wall_seconds"), "efficiency", "scaling"),
		mode: func(m scaling.Mode) string { // of the epoch: the samples decide
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

// scalingKind is weak or strong scaling.
type scalingKind struct {
	name, title, what, wanted, other, missing string
	measure                                   func(scaling.Point) (scaling.Estimate, string)
	columns                                   []string
	mode                                      func(scaling.Mode) string
	idealPower                                float64 // of N/B
}

func (o Options) scales(study *scaling.Study, kind scalingKind) (*Figure, error) {
	study, err := o.of(study, kind.name)
	if err != nil {
		return nil, err
	}
	var left []string // series of the other kind
	var unknown []string
	for _, series := range study.Series() {
		switch kind.mode(study.Mode(series)) {
		case kind.other:
			left = append(left, series)
		case scaling.ScalingUnknown:
			unknown = append(unknown, series)
		}
	}
	if len(left) == len(study.Series()) {
		return nil, fmt.Errorf("draw figure %s: no series scales %sly: %s", kind.name, kind.wanted, study.Mode(left[0]).String())
	}
	span := func(p scaling.Point) scaling.Estimate { v, _ := kind.measure(p); return v }
	var sizes []int
	for _, p := range study.Points {
		if p.Size > 0 && element.Finite(span(p).Value) && !slices.Contains(left, p.Series) {
			sizes = append(sizes, p.Size)
		}
	}
	if len(sizes) == 0 {
		return nil, fmt.Errorf("draw figure %s: no run has a value for it: %s", kind.name, kind.missing)
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	if len(sizes) < 2 {
		return nil, fmt.Errorf("draw figure %s: all runs have %s; two counts are the least that show scaling", kind.name, workersText(sizes[0]))
	}
	_, label := kind.measure(study.Points[0])
	axis := "workers"
	if study.Rule.Per == scaling.PerNode {
		axis = "nodes"
	}
	b := &builder{
		o: o, study: study, whole: study, sizes: sizes, log: o.Scale != Linear, values: element.EmptyExtent(), reach: element.EmptyExtent(),
		q: quantity{name: kind.name, axis: label, span: span, what: kind.what, ofTime: true, proportional: true, columns: kind.columns},
	}
	b.Figure = b.o.figure(kind.name, kind.title, axis, label)
	b.table = study.Table().Select(append(b.identity(), kind.columns...))
	if b.table.Err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", kind.name, b.table.Err)
	}
	if len(study.Series())-len(left) > mostSeries {
		b.combine(slices.DeleteFunc(slices.Clone(study.Points), func(p scaling.Point) bool { return slices.Contains(left, p.Series) }))
	}
	if err := b.scalingLines(kind, left); err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", kind.name, err)
	}
	f := b.finish(math.NaN())
	if len(left) > 0 {
		f.caption += " Not drawn, for another kind of scaling: " + few(left) + "."
	}
	if len(unknown) > 0 {
		f.caption += " The logs do not tell what stays the same in: " + few(unknown) + "."
	}
	return f.sized()
}

// scalingLines draws series and their ideals.
func (b *builder) scalingLines(kind scalingKind, left []string) error {
	looks := b.o.pairLooks(b.study)
	b.placeBars(func(series string) []element.Interval {
		if slices.Contains(left, series) {
			return nil
		}
		return b.reaches(series)
	})
	named := false
	for _, series := range b.study.Series() {
		if slices.Contains(left, series) {
			continue
		}
		l := looks[series]
		b.bars(series, l)
		if err := b.line(series, l); err != nil {
			return err
		}
		xy := b.points(series, func(p scaling.Point) float64 { return b.q.span(p).Value })
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
		drawn, err := element.LineWithGlyphs(ideal, lineAlone(element.DottedLine(l.Line.Color)))
		if err != nil {
			return err
		}
		b.plot.Add(drawn...)
		named = true
	}
	b.nameRange()
	if named {
		b.legend = append(b.legend, element.LegendEntry{Name: "ideal", Icons: []plot.Thumbnailer{element.LegendKey{Line: element.DottedLine(element.Gray())}}})
	}
	return nil
}

// Overhead draws the share of the speed that communication costs, (without −
// with)/without in per cent, for each pair of series with and without it.
func (o Options) Overhead(study *scaling.Study) (*Figure, error) {
	const name = "overhead"
	study, err := o.of(study, name)
	if err != nil {
		return nil, err
	}
	pairs := o.pairs(study)
	if len(pairs) == 0 {
		return nil, fmt.Errorf("draw figure %s: no series is called as another one with \"no communication\"; name them in Options.Pairs (the series are %s)", name, few(study.Series()))
	}
	axis := "workers"
	if study.Rule.Per == scaling.PerNode {
		axis = "nodes"
	}
	f := o.figure(name, "Overhead of communication", axis, "overhead (%)")
	var sizes []int
	var said []string
	values, reach := element.EmptyExtent(), element.EmptyExtent()
	var all []measured
	overheads := map[int][]float64{} // by size, of many pairs
	for i, p := range pairs {
		over, err := study.Overhead(p[0], p[1])
		if err != nil {
			return nil, fmt.Errorf("draw figure %s: %w", name, err)
		}
		f.addOverhead(p, over)
		var xy plotter.XYs
		bounds := element.ErrorBars{Style: draw.LineStyle{Color: element.SeriesLook(i).Line.Color, Width: 1}}
		for _, r := range over.Rows {
			v := r.Overhead
			if !element.Finite(v.Value) || r.Size <= 0 {
				continue
			}
			xy = append(xy, plotter.XY{X: float64(r.Size), Y: 100 * v.Value})
			sizes = append(sizes, r.Size)
			overheads[r.Size] = append(overheads[r.Size], 100*v.Value)
			values.Add(100 * v.Value)
			if lo, hi, _, ok := o.reach(v); ok {
				bounds.At = append(bounds.At, element.Interval{X: float64(r.Size), Lo: 100 * lo, Hi: 100 * hi})
				reach.Add(100*lo, 100*hi)
			}
		}
		drawn, err := element.LineWithGlyphs(xy, element.SeriesLook(i))
		if err != nil {
			return nil, fmt.Errorf("draw figure %s: %w", name, err)
		}
		all = append(all, measured{bounds, drawn})
		f.legend = append(f.legend, element.LegendEntry{Name: p[0], Icons: []plot.Thumbnailer{element.LegendKey(element.SeriesLook(i))}})
		if over.Sentence != "" {
			said = append(said, strings.TrimSuffix(over.Sentence, ".")+".")
		}
	}
	if len(sizes) == 0 {
		return nil, fmt.Errorf("draw figure %s: %w", name, errors.New("the pairs have no number of workers with a speed in common"))
	}
	if len(pairs) > mostSeries {
		m, err := medianMarks(overheads)
		if err != nil {
			return nil, fmt.Errorf("draw figure %s: %w", name, err)
		}
		all, said = []measured{m}, []string{fmt.Sprintf("Line: the median of %d pairs of series; bars: from the lowest to the highest overhead of these pairs. To draw each pair, choose at most %d (Options.Pairs).", len(pairs), mostSeries)}
		f.legend = []element.LegendEntry{{Name: fmt.Sprintf("median of %d pairs of series", len(pairs)), Icons: []plot.Thumbnailer{element.LegendKey(element.SeriesLook(0))}}}
	}
	note := f.addMeasured(all)
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	element.SetCountAxis(&f.plot.X, sizes, o.logarithmic(sizes))
	element.SetValueAxis(&f.plot.Y, values, reach, false, false)
	zero := plotter.XYs{{X: f.plot.X.Min, Y: 0}, {X: f.plot.X.Max, Y: 0}}
	if drawn, err := element.LineWithGlyphs(zero, lineAlone(draw.LineStyle{Color: color.Gray{Y: 160}, Width: 0.8})); err == nil && values.Lo < 0 {
		f.plot.Add(drawn...)
	}
	f.caption = "Share of the speed that communication costs, (without − with)/without. " + strings.Join(said, " ") + " " + study.IntervalNote() + "." + note + notDrawn(study)
	return f.sized()
}

// addOverhead appends the rows of a pair to the table.
func (f *Figure) addOverhead(pair [2]string, over *scaling.Overhead) {
	t := over.Table()
	t = withText(withText(t, "without_series", pair[1]), "series", pair[0])
	if f.table.Ncol() == 0 {
		f.table = t
		return
	}
	f.table = f.table.RBind(t)
}

// withText puts a column of one text before the others.
func withText(t dataframe.DataFrame, name, text string) dataframe.DataFrame {
	return textColumn(name, text, t.Nrow()).CBind(t)
}
