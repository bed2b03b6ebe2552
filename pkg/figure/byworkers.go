package figure

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling"
)

// withIntervalColumns returns, for each name, the column with this name and the columns of its
// interval and range.
func withIntervalColumns(names ...string) []string {
	var out []string
	for _, n := range names {
		out = append(out, n, n+"_low", n+"_high", n+"_min", n+"_max")
	}
	return out
}

// EpochTime draws the seconds of training per epoch against the workers.
func (o Options) EpochTime(study *scaling.Study) (*Figure, error) {
	return o.drawQuantity(study, plottedQuantity{
		name: "epoch_time", title: "Time per epoch", axis: "time per epoch (s)", what: "Training time per epoch against the number of workers",
		columns: withIntervalColumns("epoch_seconds"), ofTime: true, proportional: true,
		span:   func(p scaling.Point) scaling.Estimate { return p.EpochSeconds },
		spread: func(e scaling.EpochSpread) scaling.Spread { return e.Seconds },
	}, math.NaN(), func(*figureBuilder) {})
}

// drawQuantity draws a quantity over the worker count. add draws what else the figure shows. For
// high, see figureBuilder.finishFigure.
func (o Options) drawQuantity(study *scaling.Study, q plottedQuantity, high float64, add func(*figureBuilder)) (*Figure, error) {
	b, err := o.drawQuantityByWorkers(study, q)
	if err != nil {
		return nil, err
	}
	add(b)
	return b.finishFigure(high).finishLayout(b.fullStudy)
}

// throughputUnit returns the unit of the throughput of the drawn series, and a phrase for captions:
// "Samples per second", or "Throughput in" with other units. If the series have different units,
// the phrase names the series of each. It returns an error if there are so many series that only
// their median would be drawn.
func (o Options) throughputUnit(study *scaling.Study, name string) (unit, phrase string, err error) {
	study, err = o.selectSeries(study, name)
	if err != nil {
		return "", "", err
	}
	if study.ThroughputUnit() == "samples/s" {
		return "samples/s", "Samples per second", nil
	}
	unit = study.ThroughputUnit()
	series := map[string][]string{}
	for _, p := range study.Points {
		if p.ThroughputUnit != "" && !slices.Contains(series[p.ThroughputUnit], p.Series) {
			series[p.ThroughputUnit] = append(series[p.ThroughputUnit], p.Series)
		}
	}
	if len(series) == 1 {
		return unit, "Throughput in " + unit, nil
	}
	if hasManySeries(study) {
		return "", "", fmt.Errorf("draw figure %s: %d series have different units of throughput (%s), so they have no median.%s", name, len(study.Series()), unit, seriesSelectionHint())
	}
	var parts []string
	for _, u := range slices.Sorted(maps.Keys(series)) {
		parts = append(parts, u+" ("+joinFirstNames(series[u])+")")
	}
	return unit, "Throughput in " + english.JoinOr(parts), nil
}

// Throughput draws the samples (or images, or tokens) per second of all workers together. For each
// series, it also draws the ideal line from its smallest worker count.
func (o Options) Throughput(study *scaling.Study) (*Figure, error) {
	unit, phrase, err := o.throughputUnit(study, "throughput")
	if err != nil {
		return nil, err
	}
	return o.drawQuantity(study, plottedQuantity{
		name: "throughput", title: "Throughput", axis: "throughput (" + unit + ")",
		what:    phrase + " of all workers together against the number of workers; dotted: ideal scaling from the smallest worker count",
		columns: withIntervalColumns("throughput"), ofTime: true, proportional: true,
		span:   func(p scaling.Point) scaling.Estimate { return p.Throughput },
		spread: func(e scaling.EpochSpread) scaling.Spread { return e.Throughput },
	}, math.NaN(), (*figureBuilder).drawIdealLines)
}

func speedupQuantity() plottedQuantity {
	return plottedQuantity{
		name: "speedup", title: "Speed-up", axis: "speed-up", what: "Speed-up over the baseline of the series",
		columns: append(withIntervalColumns("speedup"), "efficiency"), ofTime: true, proportional: true, band: true,
		span: func(p scaling.Point) scaling.Estimate { return p.Speedup },
	}
}

// Speedup draws the speed-up of each series over its baseline, with the ideal line N/baseline.
func (o Options) Speedup(study *scaling.Study) (*Figure, error) {
	return o.drawQuantity(study, speedupQuantity(), math.NaN(), (*figureBuilder).drawIdealSpeedups)
}

// Efficiency draws the speed-up divided by the ideal speed-up, in percent.
func (o Options) Efficiency(study *scaling.Study) (*Figure, error) {
	percent := func(s scaling.Estimate) scaling.Estimate {
		return scaling.Estimate{Value: 100 * s.Value, Min: 100 * s.Min, Max: 100 * s.Max, Low: 100 * s.Low, High: 100 * s.High, N: s.N}
	}
	return o.drawQuantity(study, plottedQuantity{
		name: "efficiency", title: "Efficiency", axis: "efficiency (%)", what: "Speed-up divided by the ideal speed-up",
		columns: append([]string{"speedup"}, withIntervalColumns("efficiency")...), ofTime: true, band: true,
		span: func(p scaling.Point) scaling.Estimate { return percent(p.Efficiency) },
	}, math.NaN(), func(b *figureBuilder) {
		first, last := float64(b.sizes[0]), float64(b.sizes[len(b.sizes)-1])
		if last > first {
			style := element.DottedLine(element.Gray())
			b.plot.Add(element.LineWithGlyphs(plotter.XYs{{X: first, Y: 100}, {X: last, Y: 100}}, element.SeriesStyle{Line: style})...)
			b.legend = append(b.legend, element.LegendEntry{Name: "ideal", Icons: []plot.Thumbnailer{element.LegendKey{Line: style}}})
		}
		b.values.Add(100)
	})
}

func iouQuantity(study *scaling.Study) plottedQuantity {
	set, label := evaluatedDatasetName(study), iouLabel(study)
	what := "Intersection over union"
	if label != "IoU" {
		what = "Mean intersection over union of the classes"
	}
	return plottedQuantity{
		name: "iou", title: strings.ToUpper(label[:1]) + label[1:] + " on the " + set, axis: label, what: what + " on the " + set + " after training",
		columns: append(withIntervalColumns("iou"), "iou_constant", "iou_untrained"),
		span:    func(p scaling.Point) scaling.Estimate { return p.IoU },
	}
}

// IoU draws the intersection over union on the test set after training. If known, the IoU of the
// best constant predictor and of the network before its first step are drawn too. If the study is a
// single run of segmentation into several classes, IoU draws the IoU of each class and their mean
// after each epoch.
func (o Options) IoU(study *scaling.Study) (*Figure, error) {
	selected, err := o.selectSeries(study, "iou")
	if err != nil {
		return nil, err
	}
	if len(selected.Runs) == 1 && len(selected.Runs[0].Classes) > 0 {
		return o.drawClassIoUs(selected, selected.Runs[0])
	}
	return o.drawQuantity(study, iouQuantity(study), 1, (*figureBuilder).addReferenceIoUs)
}

// Accuracy draws the accuracy on the validation set after training, or on the training
// set if the logs contain no validation accuracy.
func (o Options) Accuracy(study *scaling.Study) (*Figure, error) {
	return o.drawQuantity(study, accuracyQuantity(study), 1, func(*figureBuilder) {})
}

func accuracyQuantity(study *scaling.Study) plottedQuantity {
	q := plottedQuantity{
		name: "accuracy", title: "Accuracy", axis: "accuracy", what: "Accuracy after the last epoch that has one",
		columns: withIntervalColumns("accuracy"), span: func(p scaling.Point) scaling.Estimate { return p.Accuracy },
	}
	if study != nil && slices.ContainsFunc(study.Points, func(p scaling.Point) bool { return element.IsFinite(p.ValAccuracy.Value) }) {
		q.axis, q.what = "validation accuracy", "Accuracy on the validation set after the last epoch that has one"
		q.columns, q.span = withIntervalColumns("val_accuracy"), func(p scaling.Point) scaling.Estimate { return p.ValAccuracy }
	}
	return q
}

// addReferenceIoUs draws the IoUs that a trained network should exceed. The IoU of the constant
// predictor is a horizontal line, and the IoUs of the untrained network are drawn as hollow
// circles.
func (b *figureBuilder) addReferenceIoUs() {
	var constants []float64
	untrained := false
	for _, series := range b.study.Series() {
		for _, p := range b.seriesPoints(series, func(p scaling.Point) float64 { return p.IoUConstant.Value }) {
			constants = append(constants, p.Y)
		}
		xy := b.seriesPoints(series, func(p scaling.Point) float64 { return p.IoUUntrained.Value })
		if len(xy) == 0 {
			continue
		}
		b.plot.Add(element.LineWithGlyphs(xy, element.SeriesStyle{Glyph: untrainedGlyph(seriesStyle(b.study, series).Line.Color)})...)
		untrained = true
	}
	slices.Sort(constants)
	constants = slices.CompactFunc(constants, func(x, y float64) bool { return math.Abs(x-y) < 1e-6 })
	style := element.DottedLine(element.Gray())
	var x plot.Axis
	element.SetCountAxis(&x, b.sizes, b.log)
	for i, v := range constants {
		b.plot.Add(element.LineWithGlyphs(plotter.XYs{{X: x.Min, Y: v}, {X: x.Max, Y: v}}, element.SeriesStyle{Line: style})...)
		if i == 0 {
			b.legend = append(b.legend, element.LegendEntry{Name: "constant predictor", Icons: []plot.Thumbnailer{element.LegendKey{Line: style}}})
		}
	}
	if untrained {
		b.legend = append(b.legend, element.LegendEntry{Name: "untrained network", Icons: []plot.Thumbnailer{element.LegendKey{Glyph: untrainedGlyph(element.Gray())}}})
	}
}
