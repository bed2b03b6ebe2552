package figure

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling"
)

// LearningRate draws the learning rate of each epoch.
func (o Options) LearningRate(study *scaling.Study) (*Figure, error) {
	return o.drawMetricCurves(study, "learning_rate", "lr", scaling.AxisEpoch)
}

// Curve draws a metric of every run over an axis: "epoch", "step", "relative" (time since the
// start) or "wall". The metric is one of Study.Metrics: either a value per epoch, or the name of a
// curve in the log, such as Loss/train. All seeds and ranks of a series at one worker count have
// the same color.
func (o Options) Curve(study *scaling.Study, metric, axis string) (*Figure, error) {
	return o.drawMetricCurves(study, sanitizeTeXLabel(metric)+"_by_"+axis, metric, axis)
}

// metricTitle returns the title of a metric's figure, and the label of its axis with the unit. If
// the metric is unknown, both are its name. rateUnit is the unit of the throughput.
func metricTitle(metric, rateUnit string) (title, label string) {
	known := map[string][2]string{
		"train_loss": {"Training loss", "training loss"}, "val_loss": {"Validation loss", "validation loss"},
		"iou": {"IoU on the validation set", "IoU"}, "dice": {"Dice on the validation set", "Dice coefficient"},
		"accuracy": {"Accuracy", "accuracy"}, "val_accuracy": {"Accuracy on the validation set", "validation accuracy"},
		"lr": {"Learning rate", "learning rate"}, "seconds": {"Time of an epoch", "time of an epoch (s)"},
		"val_seconds":        {"Time of validation", "time of validation (s)"},
		"samples_per_second": {"Throughput", "throughput (" + rateUnit + ")"},
	}
	if t, ok := known[metric]; ok {
		return t[0], t[1]
	}
	return metric, metric
}

func (o Options) drawMetricCurves(study *scaling.Study, name, metric, axis string) (*Figure, error) {
	study, err := o.selectSeries(study, name)
	if err != nil {
		return nil, err
	}
	set, err := study.Curve(metric, axis)
	if err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	title, label := metricTitle(metric, study.ThroughputUnit())
	if metric == "iou" && study.HasClasses() {
		title, label = "Mean "+title, iouLabel(study)
	}
	f := o.newFigure(name, title, set.AxisLabel, label)
	f.computeTable = func() {
		f.table = set.Table()
		f.brief = lastRowPerRun(f.table)
	}
	// Series of different speeds cannot be combined over time: they are at different epochs.
	combined := hasManySeries(study) && (axis == scaling.AxisEpoch || axis == scaling.AxisStep)
	groups := o.groupCurveLines(set, combined)
	x, y := element.EmptyExtent(), element.EmptyExtent()
	for _, g := range groups {
		for _, l := range g.lines {
			x.Add(l.X...)
			y.AddOnAxis(o.LogY, l.Y...)
		}
		for _, r := range g.ranges {
			y.AddOnAxis(o.LogY, r.Lo, r.Hi)
		}
	}
	if !(y.Hi >= y.Lo) {
		return nil, fmt.Errorf("draw figure %s: %w", name, errors.New("no value can be drawn: each is NaN or infinite, is not positive on a logarithmic axis, or has a worker count that is not selected"))
	}
	origin, unit := f.setCurveAxes(o, axis, x, y)
	f.addCurveLines(o, study, groups, origin, unit)
	if combined {
		f.addMedianToLegend(len(study.Series()), o.Intervals != IntervalsNone)
	}
	f.caption = o.curveCaption(study, set, title, groups, combined)
	return f.finishLayout(study)
}

func (f *Figure) addCurveLines(o Options, study *scaling.Study, groups []curveLineGroup, origin, unit float64) {
	styles := curveStyles(study, len(groups), func(i int) string { return groups[i].series })
	for i, g := range groups {
		l := styles[i]
		name := curveLabel(study, g.series, g.workers)
		if g.isMedian {
			name = english.FormatCount(g.workers, "worker")
		}
		if g.isMedian && o.Intervals != IntervalsNone {
			reach := element.CondenseBand(g.ranges)
			for k := range reach {
				reach[k].X = (reach[k].X - origin) / unit
			}
			f.plot.Add(element.Band{At: reach, Fill: element.WithAlpha(l.Line.Color, seriesBandAlpha)})
		}
		var last []float64
		for _, c := range g.lines {
			t := element.NewLineData(c.X, c.Y, origin, unit)
			if t.Len() == 0 {
				continue
			}
			t = f.smoothLineData(o, t, l.Line, 80, 0.8)
			f.drawLineWithFewGlyphs(t, l)
			last = append(last, t.Y[t.Len()-1])
		}
		f.legend = append(f.legend, newLineLegendEntry(name, l, last))
	}
}

// setCurveAxes sets the ranges and labels of the axes. A line's x is drawn at (x − origin)/unit.
func (f *Figure) setCurveAxes(o Options, axis string, x, y element.Extent) (origin, unit float64) {
	unit = 1
	var name string
	switch axis {
	case scaling.AxisEpoch:
		f.plot.X.Tick.Marker = element.EpochTicks{}
	case scaling.AxisRelative:
		name, unit = element.ChooseTimeUnit(x.Hi)
		f.plot.X.Label.Text = "time since the start (" + name + ")"
		x.Add(0)
	case scaling.AxisWall: // seconds since 1970 are not legible
		origin = x.Lo
		name, unit = element.ChooseTimeUnit(x.Hi - x.Lo)
		f.plot.X.Label.Text = "time since the first record of any run (" + name + ")"
	}
	f.plot.X.Min, f.plot.X.Max = (x.Lo-origin)/unit, (x.Hi-origin)/unit
	if x.Lo == x.Hi {
		f.plot.X.Min, f.plot.X.Max = f.plot.X.Min-1, f.plot.X.Max+1
	}
	log := o.LogY && y.Lo > 0
	const visible = 1e-3                                     // as a fraction of the value; a smaller change is drawn as a constant
	if !log && y.Lo > 0.5*y.Hi && y.Hi-y.Lo > visible*y.Hi { // far from 0: changes are visible only if the axis does not include 0
		room := (y.Hi - y.Lo) * 0.06
		f.plot.Y.Min, f.plot.Y.Max = y.Lo-room, y.Hi+room
		return origin, unit
	}
	element.SetValueAxis(&f.plot.Y, y, element.EmptyExtent(), log, false)
	return origin, unit
}

type curveLineGroup struct {
	series  string
	workers int
	lines   []scaling.CurveLine
	// isMedian is true if the only line is the median of several series. Ranges then cover the
	// values of these series.
	isMedian bool
	ranges   []element.Interval
}

// groupCurveLines groups the lines by series and worker count. Without Options.Workers, it selects at
// most 8 groups, spread evenly. If combine is set, each group is the median over all series at one
// worker count.
func (o Options) groupCurveLines(set *scaling.CurveSet, combine bool) []curveLineGroup {
	var all []curveLineGroup
	for _, l := range set.Lines {
		if len(o.Workers) > 0 && !slices.Contains(o.Workers, l.Workers) {
			continue
		}
		i := slices.IndexFunc(all, func(g curveLineGroup) bool { return g.series == l.Series && g.workers == l.Workers })
		if i < 0 {
			i, all = len(all), append(all, curveLineGroup{series: l.Series, workers: l.Workers})
		}
		all[i].lines = append(all[i].lines, l)
	}
	if combine {
		all = medianLineGroups(all)
	}
	const most = 8
	if len(all) <= most || len(o.Workers) > 0 {
		return all
	}
	var out []curveLineGroup
	for k := range most {
		out = append(out, all[k*(len(all)-1)/(most-1)])
	}
	return out
}

// curveCaption describes the lines of a metric, with the number of runs and lines.
func (o Options) curveCaption(study *scaling.Study, set *scaling.CurveSet, title string, groups []curveLineGroup, combined bool) string {
	drawn := 0
	runsDrawn := map[string]bool{}
	for _, g := range groups {
		drawn += len(g.lines)
		for _, l := range g.lines {
			runsDrawn[l.Run] = true
		}
	}
	each := "one line per run"
	if drawn > len(runsDrawn) { // several ranks of a run may have logged
		each = "one line per run and rank"
	}
	axis := set.AxisLabel
	if set.Axis == scaling.AxisRelative || set.Axis == scaling.AxisWall {
		axis = "time"
	}
	c := fmt.Sprintf("%s against the %s; %s, n = %s.", title, axis, each, english.FormatCount(len(runsDrawn), "run")) + o.smoothingNote()
	if combined {
		c = fmt.Sprintf("%s against the %s.", title, axis) + medianNote(len(study.Series()), "band", strings.ToLower(title[:1])+title[1:]) + o.smoothingNote()
	} else if drawn < len(set.Lines) {
		c += fmt.Sprintf(" %d of %d lines are drawn; the table has all.", drawn, len(set.Lines))
	}
	if len(set.Problems) > 0 {
		c += fmt.Sprintf(" %s without a line: %s.", english.FormatCount(len(set.Problems), "run"), strings.TrimSuffix(set.Problems[0].Reason, "."))
	}
	return c + commonWorkersNote(study) + failedRunsNote(study)
}
