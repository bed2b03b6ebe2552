package figure

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gonum.org/v1/plot"

	"lockstep/pkg/figure/internal/element"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/scaling"
)

// LearningRate draws the learning rate of each epoch.
func (o Options) LearningRate(study *scaling.Study) (*Figure, error) {
	return o.metric(study, "learning_rate", "lr", scaling.AxisEpoch)
}

// Curve draws a metric of every run over an axis: "epoch", "step", "relative"
// (time since the start) or "wall". The metric is one of Study.Metrics: a value
// of epochs, or a curve by its name in the log, such as Loss/train. A colour is
// a series and number of workers; seeds and ranks share it.
func (o Options) Curve(study *scaling.Study, metric, axis string) (*Figure, error) {
	return o.metric(study, texName(metric)+"_by_"+axis, metric, axis)
}

// metricTitle is a metric with its unit.
func metricTitle(metric string) (title, label string) {
	known := map[string][2]string{
		"train_loss": {"Training loss", "training loss"}, "val_loss": {"Validation loss", "validation loss"},
		"iou": {"IoU on the validation set", "IoU"}, "dice": {"Dice on the validation set", "Dice coefficient"},
		"accuracy": {"Accuracy", "accuracy"}, "val_accuracy": {"Accuracy on the validation set", "validation accuracy"},
		"lr": {"Learning rate", "learning rate"}, "seconds": {"Time of an epoch", "time of an epoch (s)"},
		"val_seconds":        {"Time of validation", "time of validation (s)"},
		"samples_per_second": {"Throughput", "throughput (samples/s)"},
	}
	if t, ok := known[metric]; ok {
		return t[0], t[1]
	}
	return metric, metric
}

// metric draws the lines of a CurveSet.
func (o Options) metric(study *scaling.Study, name, metric, axis string) (*Figure, error) {
	study, err := o.of(study, name)
	if err != nil {
		return nil, err
	}
	set, err := study.Curve(metric, axis)
	if err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	title, label := metricTitle(metric)
	f := o.figure(name, title, set.AxisLabel, label)
	f.fill = func() {
		f.table = set.Table()
		f.brief = lastOfRuns(f.table)
	}
	// Over time, series of different speed have little in common at any x.
	many := tooMany(study) && (axis == scaling.AxisEpoch || axis == scaling.AxisStep)
	groups := o.groups(set, many)
	x, y := element.EmptyExtent(), element.EmptyExtent()
	for _, g := range groups {
		for _, l := range g.lines {
			x.Add(l.X...)
			y.AddOn(o.LogY, l.Y...)
		}
		for _, r := range g.reach {
			y.AddOn(o.LogY, r.Lo, r.Hi)
		}
	}
	if !(y.Hi >= y.Lo) {
		return nil, fmt.Errorf("draw figure %s: %w", name, errors.New("all its values are NaN or infinite, of worker counts that were not asked for, or not positive on a logarithmic axis"))
	}
	origin, unit := f.curveAxes(o, axis, x, y)
	if err := f.lines(o, study, groups, origin, unit); err != nil {
		return nil, fmt.Errorf("draw figure %s: %w", name, err)
	}
	if many {
		f.nameMedian(len(study.Series()), o.Intervals != IntervalsNone)
	}
	f.caption = o.curveCaption(study, set, title, groups, many)
	return f.sized()
}

// lines draws the groups, and names them in the legend.
func (f *Figure) lines(o Options, study *scaling.Study, groups []group, origin, unit float64) error {
	for i, g := range groups {
		l := element.SeriesLook(i)
		name := curveLabel(study, g.series, g.workers)
		if g.combined {
			name = workersText(g.workers)
		}
		if g.combined && o.Intervals != IntervalsNone {
			reach := element.CondensedBand(g.reach)
			for k := range reach {
				reach[k].X = (reach[k].X - origin) / unit
			}
			f.plot.Add(element.Band{At: reach, Fill: element.WithAlpha(l.Line.Color, bandAlpha)})
		}
		for _, c := range g.lines {
			t := element.TraceOf(c.X, c.Y, origin, unit)
			if t.Len() == 0 {
				continue
			}
			t, err := f.smoothed(o, t, l.Line, 80, 0.8)
			if err != nil {
				return err
			}
			if err := f.thinned(t, l); err != nil {
				return err
			}
		}
		f.legend = append(f.legend, element.LegendEntry{Name: name, Icons: []plot.Thumbnailer{element.LegendKey(l)}})
	}
	return nil
}

// curveAxes sets the axes; x of a line is (X − origin)/unit.
func (f *Figure) curveAxes(o Options, axis string, x, y element.Extent) (origin, unit float64) {
	unit = 1
	var name string
	switch axis {
	case scaling.AxisEpoch:
		f.plot.X.Tick.Marker = element.EpochTicks{}
	case scaling.AxisRelative:
		name, unit = element.TimeUnit(x.Hi)
		f.plot.X.Label.Text = "time since the start (" + name + ")"
		x.Add(0)
	case scaling.AxisWall: // since 1970 nobody can read it
		origin = x.Lo
		name, unit = element.TimeUnit(x.Hi - x.Lo)
		f.plot.X.Label.Text = "time since the first record of any run (" + name + ")"
	}
	f.plot.X.Min, f.plot.X.Max = (x.Lo-origin)/unit, (x.Hi-origin)/unit
	if x.Lo == x.Hi {
		f.plot.X.Min, f.plot.X.Max = f.plot.X.Min-1, f.plot.X.Max+1
	}
	log := o.LogY && y.Lo > 0
	const visible = 1e-3                                     // of the value: what changes less is drawn as the constant that it is
	if !log && y.Lo > 0.5*y.Hi && y.Hi-y.Lo > visible*y.Hi { // far from 0: a step of the curve is seen only without it
		room := (y.Hi - y.Lo) * 0.06
		f.plot.Y.Min, f.plot.Y.Max = y.Lo-room, y.Hi+room
		return origin, unit
	}
	element.SetValueAxis(&f.plot.Y, y, element.EmptyExtent(), log, false)
	return origin, unit
}

// group is the lines that share a colour.
type group struct {
	series  string
	workers int
	lines   []scaling.CurveLine
	// combined reports whether the line is the median of several series; reach is
	// from the lowest to the highest of these.
	combined bool
	reach    []element.Interval
}

// groups gathers lines by series and workers, as many as can be told apart; of
// many series, it gathers their medians by workers.
func (o Options) groups(set *scaling.CurveSet, many bool) []group {
	var all []group
	for _, l := range set.Lines {
		if len(o.Workers) > 0 && !slices.Contains(o.Workers, l.Workers) {
			continue
		}
		i := slices.IndexFunc(all, func(g group) bool { return g.series == l.Series && g.workers == l.Workers })
		if i < 0 {
			i, all = len(all), append(all, group{series: l.Series, workers: l.Workers})
		}
		all[i].lines = append(all[i].lines, l)
	}
	if many {
		all = combinedGroups(all)
	}
	const most = 8
	if len(all) <= most || len(o.Workers) > 0 {
		return all
	}
	var out []group
	for k := range most {
		out = append(out, all[k*(len(all)-1)/(most-1)])
	}
	return out
}

func (o Options) curveCaption(study *scaling.Study, set *scaling.CurveSet, title string, groups []group, many bool) string {
	drawn := 0
	of := map[string]bool{} // runs
	for _, g := range groups {
		drawn += len(g.lines)
		for _, l := range g.lines {
			of[l.Run] = true
		}
	}
	each := "a line a run"
	if drawn > len(of) { // of a run each rank may have logged
		each = "a line a run and rank"
	}
	axis := set.AxisLabel
	if set.Axis == scaling.AxisRelative || set.Axis == scaling.AxisWall {
		axis = "time"
	}
	c := fmt.Sprintf("%s against the %s; %s, n = %s.", title, axis, each, english.Count(len(of), "run")) + o.smoothText()
	if many {
		c = fmt.Sprintf("%s against the %s.", title, axis) + manyNote(len(study.Series()), "band", strings.ToLower(title[:1])+title[1:]) + o.smoothText()
	} else if drawn < len(set.Lines) {
		c += fmt.Sprintf(" %d of %d lines are drawn; the table has all.", drawn, len(set.Lines))
	}
	if len(set.Problems) > 0 {
		c += fmt.Sprintf(" %s without such a line: %s.", english.Count(len(set.Problems), "run"), strings.TrimSuffix(set.Problems[0].Reason, "."))
	}
	return c + oneCount(study) + notDrawn(study)
}
