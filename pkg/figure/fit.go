package figure

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
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

// Fit draws the scaling model that fits each series best, or Options.Law if it is set, through the
// measured speed-ups and beyond them, with the prediction band for one more run. It marks the
// worker count from which each additional worker adds less than half of its own speed, and the
// count at which throughput peaks.
func (o Options) Fit(study *scaling.Study) (*Figure, error) {
	const name = "fit"
	q := speedupQuantity()
	q.name, q.title, q.band, q.points = name, "Speed-up and fitted law", false, true // the fitted model is the line
	b, err := o.drawQuantityByWorkers(study, q)
	if err != nil {
		return nil, err
	}
	fits, failed := o.fitAllSeries(b.fullStudy)
	if len(fits) == 0 {
		return nil, fmt.Errorf("draw figure %s: %w", name, joinErrors(failed))
	}
	largest := b.sizes[len(b.sizes)-1]
	end := max(cmp.Or(o.Beyond, 2*largest), largest)
	sizes := predictionSizes(b.sizes[0], end)
	var descriptions []string
	var rows fittedModelRows
	speedups := map[int][]float64{} // speed-ups of all models, by size
	for _, s := range b.fullStudy.Series() {
		f, ok := fits[s]
		if !ok {
			continue
		}
		points := f.law.Band(sizes)
		rows.addFit(b.fullStudy, s, f.law, points)
		descriptions = append(descriptions, f.describe(s))
		if b.combined > 0 {
			for _, p := range points {
				speedups[p.Size] = append(speedups[p.Size], p.Speedup)
			}
			continue
		}
		b.drawFittedModel(f, s, seriesStyle(b.fullStudy, s), points, len(fits) <= maxSeriesBands)
	}
	b.table = rows.table(b.fullStudy)
	bands := fmt.Sprintf("Bands: the %g %% prediction intervals of one more run, if the law holds.", 100*confidenceLevel(b.fullStudy))
	if b.combined > 0 {
		bands = fmt.Sprintf("Line and band: the median and the range of the laws of %d series, which the table has.", len(fits))
		descriptions = nil
		b.addMedianModel(speedups, largest, len(fits))
	}
	brief := b.measuredRows()
	b.brief = &brief
	b.sizes = append(b.sizes, end)
	slices.Sort(b.sizes)
	b.sizes = slices.Compact(b.sizes)
	b.log = o.usesLogAxis(b.sizes)
	b.drawIdealSpeedups()
	f := b.finishFigure(math.NaN())
	f.caption = fmt.Sprintf("Speed-up: measured (points) and fitted by least squares of the logarithm of the throughput (lines; dashed: beyond what was measured). %s Up to %s. %s",
		bands, english.FormatCount(end, "worker"), strings.TrimSpace(joinSentences(descriptions)+" "+b.repeatedRunsNote()))
	if len(failed) > 0 {
		f.caption += listUnfittedSeries(failed)
	}
	return f.finishLayout(study)
}

// joinSentences joins the sentences of at most six models. If there are more, it states how many
// are left out.
func joinSentences(sentences []string) string {
	const most = 6
	if more := len(sentences) - most; more > 0 {
		return strings.Join(sentences[:most], " ") + fmt.Sprintf(" The laws of %d more series are in the table.", more)
	}
	return strings.Join(sentences, " ")
}

// listUnfittedSeries lists the series without a model, up to three of them with reasons.
func listUnfittedSeries(failed map[string]error) string {
	if len(failed) > 3 {
		return " Not fitted (lockstep scaling --show fit shows the reasons): " + joinFirstNames(slices.Sorted(maps.Keys(failed))) + "."
	}
	return " Not fitted: " + strings.ReplaceAll(joinErrors(failed).Error(), "\n", "; ") + "."
}

// joinErrors joins the errors of all series, sorted by name.
func joinErrors(failed map[string]error) error {
	var all []error
	for _, s := range slices.Sorted(maps.Keys(failed)) {
		all = append(all, failed[s])
	}
	return errors.Join(all...)
}

func confidenceLevel(study *scaling.Study) float64 {
	return cmp.Or(study.Rule.Confidence, 0.95)
}

// fittedSeries is a series' model, with the sentence that compares all models of the series.
type fittedSeries struct {
	law      *scaling.Fit
	sentence string
}

// fitAllSeries fits a model to each series. failed has the reason for each series that cannot be fitted.
func (o Options) fitAllSeries(study *scaling.Study) (fitted map[string]fittedSeries, failed map[string]error) {
	fitted, failed = map[string]fittedSeries{}, map[string]error{}
	for _, s := range study.Series() {
		all, err := study.Fit(s)
		if err != nil {
			failed[s] = err
			continue
		}
		law := all.SupportedLaw()
		if o.Law != "" {
			law = all.Law(o.Law)
		} else if law == nil {
			failed[s] = errors.New(strings.TrimSuffix(all.Sentence, "."))
			continue
		}
		if why := all.RefusalReason(o.Law); law == nil && why != "" {
			failed[s] = fmt.Errorf("series %s: %s", s, why)
			continue
		}
		if law == nil {
			failed[s] = fmt.Errorf("series %s: model %q was not fitted; use %s, %s, %s or %s", s, o.Law, scaling.LawLinear, scaling.LawAmdahl, scaling.LawGustafson, scaling.LawUSL)
			continue
		}
		sentence := all.Sentence
		if law != all.SupportedLaw() {
			sentence = ""
		}
		fitted[s] = fittedSeries{law, sentence}
	}
	return fitted, failed
}

// predictionSizes returns the sizes between from and to at which a model is drawn, in ascending
// order. Up to 121 of them are evenly spaced on a logarithmic axis, and as many on a linear axis.
func predictionSizes(from, to int) []int {
	const most = 120
	var sizes []int
	for i := range most + 1 {
		sizes = append(sizes, int(math.Round(float64(from)*math.Pow(float64(to)/float64(from), float64(i)/most))))
	}
	for i := range most + 1 {
		sizes = append(sizes, from+(to-from)*i/most)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

func (f fittedSeries) describe(name string) string {
	text := strings.TrimSuffix(f.sentence, ".")
	if text == "" {
		text = fmt.Sprintf("%s: %s, R² %.4f, n = %d", name, lawDisplayName(f.law.Law), f.law.R2, f.law.N)
	}
	return text + "."
}

func (b *figureBuilder) drawFittedModel(f fittedSeries, name string, l element.SeriesStyle, points []scaling.BandPoint, banded bool) {
	area := element.Band{Fill: element.WithAlpha(l.Line.Color, 40)}
	var within, beyond plotter.XYs
	for _, p := range points {
		xy := plotter.XY{X: float64(p.Size), Y: p.Speedup}
		if !element.IsFinite(p.Speedup) {
			continue
		}
		b.values.Add(p.Speedup)
		if !p.Beyond {
			within = append(within, xy)
			beyond = plotter.XYs{xy} // the dashed part starts at the end of the solid one
		} else {
			beyond = append(beyond, xy)
		}
		if element.IsFinite(p.Low) && element.IsFinite(p.High) {
			area.At = append(area.At, element.Interval{X: xy.X, Lo: p.Low, Hi: p.High})
			b.reach.Add(p.Low, p.High)
		}
	}
	if banded {
		b.plot.Add(area)
	}
	b.drawModelLines(within, beyond, l)
	b.plot.Add(b.modelMarks(f.law, l, points[len(points)-1].Size, banded)...)
	l.Line.Dashes = nil
	icons := []plot.Thumbnailer{element.LegendKey(l)}
	if banded {
		icons = []plot.Thumbnailer{area, icons[0]}
	}
	b.legend = append(b.legend, element.LegendEntry{Name: name + ": " + lawDisplayName(f.law.Law), Icons: icons})
}

// drawModelLines draws a model as two lines: within is solid and covers the measured sizes, beyond
// is dashed.
func (b *figureBuilder) drawModelLines(within, beyond plotter.XYs, l element.SeriesStyle) {
	solid, dashed := l.Line, l.Line
	solid.Dashes, dashed.Dashes = nil, []vg.Length{6, 3}
	for _, part := range []struct {
		xy    plotter.XYs
		style draw.LineStyle
	}{{within, solid}, {beyond, dashed}} {
		b.plot.Add(element.LineWithGlyphs(part.xy, lineOnlyStyle(part.style))...)
	}
}

// addMedianModel draws the median and the range of the models of many series. speedups contains the
// speed-ups of all models by size. maxMeasured is the largest measured size.
func (b *figureBuilder) addMedianModel(speedups map[int][]float64, maxMeasured, models int) {
	l := element.NewSeriesStyle(0)
	area := element.Band{Fill: element.WithAlpha(l.Line.Color, seriesBandAlpha)}
	var within, beyond plotter.XYs
	for _, n := range slices.Sorted(maps.Keys(speedups)) {
		v := medianAndRange(speedups[n])
		if v.N == 0 {
			continue
		}
		xy := plotter.XY{X: float64(n), Y: v.Value}
		b.values.Add(xy.Y)
		b.reach.Add(v.Min, v.Max)
		area.At = append(area.At, element.Interval{X: xy.X, Lo: v.Min, Hi: v.Max})
		if n <= maxMeasured {
			within, beyond = append(within, xy), plotter.XYs{xy} // the dashed part starts at the end of the solid one
		} else {
			beyond = append(beyond, xy)
		}
	}
	b.plot.Add(area)
	b.drawModelLines(within, beyond, l)
	b.legend = append(b.legend,
		element.LegendEntry{Name: b.study.Series()[0], Icons: []plot.Thumbnailer{element.LegendKey{Glyph: l.Glyph}}},
		element.LegendEntry{Name: fmt.Sprintf("median of %d laws", models), Icons: []plot.Thumbnailer{element.LegendKey{Line: l.Line}}}, rangeLegendEntry(l))
}

func lawDisplayName(law string) string {
	switch law {
	case scaling.LawAmdahl:
		return "Amdahl's law"
	case scaling.LawGustafson:
		return "Gustafson's law"
	case scaling.LawUSL:
		return "universal scalability law"
	}
	return law
}

// modelMarks returns up to two marks: at the worker count from which each additional worker adds less
// than half of its own speed, and at the count at which throughput peaks. It omits marks beyond maxSize.
func (b *figureBuilder) modelMarks(law *scaling.Fit, l element.SeriesStyle, maxSize int, labeled bool) []plot.Plotter {
	var out []plot.Plotter
	style := element.TextStyle(element.FontSize - 2)
	style.Color = l.Line.Color
	style.XAlign, style.YAlign = draw.XLeft, draw.YTop // the line leaves most space below it
	mark := func(size int, ok bool, text string) {
		if !ok || size > maxSize || size <= b.sizes[0] { // a mark on the first point would cover it
			return
		}
		at := law.Speedup(float64(size))
		glyph := draw.GlyphStyle{Color: l.Line.Color, Radius: 5, Shape: element.OutlineGlyph{{-1, 0, 0, -1, 1, 0, 0, 1, -1, 0}}}
		drawn := element.LineWithGlyphs(plotter.XYs{{X: float64(size), Y: at}}, glyphOnlyStyle(glyph))
		out = append(out, drawn...)
		if !labeled {
			return
		}
		out = append(out, element.PointLabels{{X: float64(size), Y: at, Text: text + " " + strconv.Itoa(size), Shift: vg.Point{X: 3, Y: -6}, Style: style, Background: true}})
	}
	size, ok := law.HalfGainSize()
	mark(size, ok, "half from")
	size, ok = law.PeakSize()
	mark(size, ok, "peak at")
	return out
}

type fittedModelRows struct {
	names, laws, beyond     []string
	sizes                   []int
	measured, value, lo, hi []float64
}

func (r *fittedModelRows) addFit(study *scaling.Study, name string, law *scaling.Fit, points []scaling.BandPoint) {
	measured := map[int]float64{}
	for _, p := range study.Points {
		if p.Series == name {
			measured[p.Size] = p.Speedup.Value
		}
	}
	for _, p := range points {
		m, ok := measured[p.Size]
		if !ok {
			m = math.NaN()
		}
		r.names, r.laws, r.sizes = append(r.names, name), append(r.laws, law.Law), append(r.sizes, p.Size)
		r.measured, r.value = append(r.measured, m), append(r.value, p.Speedup)
		r.lo, r.hi = append(r.lo, p.Low), append(r.hi, p.High)
		r.beyond = append(r.beyond, strconv.FormatBool(p.Beyond))
	}
}

// table returns the columns series, law, workers (or nodes), measured (the speed-up, NaN if not
// measured), fitted, fitted_low, fitted_high and beyond.
func (r *fittedModelRows) table(study *scaling.Study) dataframe.DataFrame {
	axis := "workers"
	if study.Rule.Per == scaling.PerNode {
		axis = "nodes"
	}
	return dataframe.New(
		series.New(r.names, series.String, "series"), series.New(r.laws, series.String, "law"), series.New(r.sizes, series.Int, axis),
		series.New(r.measured, series.Float, "measured"), series.New(r.value, series.Float, "fitted"),
		series.New(r.lo, series.Float, "fitted_low"), series.New(r.hi, series.Float, "fitted_high"), series.New(r.beyond, series.String, "beyond"))
}

// measuredRows returns the rows that contain a measurement, and the last row of each series.
func (b *figureBuilder) measuredRows() dataframe.DataFrame {
	measured, names := b.table.Col("measured").Float(), b.table.Col("series").Records()
	var rows []int
	for i := range names {
		if element.IsFinite(measured[i]) || i+1 == len(names) || names[i+1] != names[i] {
			rows = append(rows, i)
		}
	}
	return b.table.Subset(rows)
}
