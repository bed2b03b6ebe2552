package scaling

import (
	"fmt"
	"math"
	"slices"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/curve"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/observe"
)

// TargetTime describes whether and when a run reached the target value of a metric.
type TargetTime struct {
	Series      string
	Workers     int
	Seed        int64
	Run         string
	Reached     bool
	Epoch       int     // first epoch at or past the target; 0 if none, or if the curve was logged by step
	Step        int64   // first step at or past the target; 0 if the log has none
	Seconds     float64 // training time until then, without validation; NaN if unknown
	WallSeconds float64 // time since the run's start or its first record, including validation; NaN if unknown
	Best        float64 // best value of the run
}

// PointTargetTime describes when the runs of a series at one worker count reached the target value
// of a metric.
type PointTargetTime struct {
	Series        string
	Workers       int
	Runs, Reached int
	// Seconds is the training time until the target, or the wall time if the training time is
	// unknown. It is combined over the repeated runs according to the study's Rule. It is NaN
	// unless every run reached the target, because the time of the faster runs alone would be too
	// optimistic.
	Seconds Estimate
}

// TimeTo contains the time to a target for every run.
//
// Its table has one row per run: series, workers, seed, run, reached, epoch, step,
// seconds, wall_seconds, best, and point_seconds with _low and _high, which combine all
// runs of the series at that worker count. Epoch and step are 0 if unknown.
type TimeTo struct {
	analysis
	Metric   string
	Target   float64
	Below    bool // the target is reached at or below its value, else at or above it
	Rows     []TargetTime
	Points   []PointTargetTime
	Problems []runs.Problem
	Sentence string
}

// TimeTo returns when each run first reached the target value of a metric (one of Metrics): at or
// below it for losses, at or above it for IoU, accuracy and similar metrics. Runs that never
// reached it are included.
func (s *Study) TimeTo(metric string, target float64) (*TimeTo, error) {
	if !observe.IsFinite(target) {
		return nil, fmt.Errorf("find time to %s: invalid target %g: use a finite number", metric, target)
	}
	t := &TimeTo{Metric: metric, Target: target, Below: curve.LowerIsBetter(metric)}
	axis := AxisEpoch
	if !slices.ContainsFunc(curve.EpochMetrics(), func(m curve.EpochMetric) bool { return m.Name == metric }) {
		axis = AxisStep
	}
	set, err := s.Curve(metric, axis)
	if err != nil {
		return nil, fmt.Errorf("find time to %s of %g: %w", metric, target, err)
	}
	t.Problems = set.Problems
	for _, l := range set.Lines {
		i := slices.IndexFunc(s.Runs, func(r runs.Run) bool { return r.Dir == l.Run })
		t.Rows = append(t.Rows, TargetTime(curve.FindTargetTime(curve.Line(l), s.Runs[i], axis, target, t.Below)))
	}
	t.Points = s.groupTargetTimesByPoint(t.Rows)
	t.analysis = analysis{t}
	t.Sentence = t.summarize()
	return t, nil
}

func (s *Study) groupTargetTimesByPoint(rows []TargetTime) []PointTargetTime {
	var out []PointTargetTime
	var times [][]float64
	for _, r := range rows {
		i := slices.IndexFunc(out, func(p PointTargetTime) bool { return p.Series == r.Series && p.Workers == r.Workers })
		if i < 0 {
			i = len(out)
			out, times = append(out, PointTargetTime{Series: r.Series, Workers: r.Workers}), append(times, nil)
		}
		out[i].Runs++
		if r.Reached {
			out[i].Reached++
		}
		if v := r.trainOrWallSeconds(); !math.IsNaN(v) {
			times[i] = append(times[i], v)
		}
	}
	for i := range out {
		out[i].Seconds = unknownEstimate()
		if len(times[i]) == out[i].Runs {
			out[i].Seconds = s.estimate(times[i], true)
		}
	}
	return out
}

// summarize says how many runs reached the target, and which series and worker count reached it
// first.
func (t *TimeTo) summarize() string {
	sign := "≥"
	if t.Below {
		sign = "≤"
	}
	reached := slices.DeleteFunc(slices.Clone(t.Rows), func(r TargetTime) bool { return !r.Reached })
	text := fmt.Sprintf("%s %s %s: reached by %d of %s", t.Metric, sign, english.FormatNumber(t.Target), len(reached), english.FormatCount(len(t.Rows), "run"))
	var soonest *PointTargetTime
	for i, p := range t.Points {
		if !math.IsNaN(p.Seconds.Value) && (soonest == nil || p.Seconds.Value < soonest.Seconds.Value) {
			soonest = &t.Points[i]
		}
	}
	if soonest == nil {
		return text
	}
	return text + fmt.Sprintf(", soonest by %s at %s: %s", soonest.Series, english.FormatCount(soonest.Workers, "worker"), soonest.format())
}

func (p PointTargetTime) format() string {
	switch {
	case p.Reached < p.Runs:
		return fmt.Sprintf("reached by %d of %s", p.Reached, english.FormatCount(p.Runs, "run"))
	case math.IsNaN(p.Seconds.Value):
		return "reached, but the logs have no time"
	}
	text := english.FormatNumber(p.Seconds.Value) + " s"
	if !math.IsNaN(p.Seconds.Low) {
		text += " " + p.Seconds.formatInterval()
	}
	return text + fmt.Sprintf(", n = %d", p.Seconds.N)
}

// trainOrWallSeconds returns the training time until the target, or else the wall time.
func (x TargetTime) trainOrWallSeconds() float64 {
	if math.IsNaN(x.Seconds) {
		return x.WallSeconds
	}
	return x.Seconds
}

func (t *TimeTo) table(maxRows int) resultTable {
	g := grid.Grid[TargetTime]{What: "time to target", Rows: limitRows(t.Rows, maxRows), Columns: []grid.Column[TargetTime]{
		{Name: "series", Brief: true, Text: func(r TargetTime) string { return r.Series }},
		{Name: "workers", Brief: true, Count: func(r TargetTime) int { return r.Workers }},
		{Name: "seed", Brief: true, Count: func(r TargetTime) int { return int(r.Seed) }},
		{Name: "run", Text: func(r TargetTime) string { return r.Run }},
		{Name: "reached", Brief: true, Flag: func(r TargetTime) bool { return r.Reached }},
		{Name: "epoch", Brief: true, Optional: true, Count: func(r TargetTime) int { return r.Epoch }},
		{Name: "step", Brief: true, Optional: true, Count: func(r TargetTime) int { return int(r.Step) }},
		{Name: "seconds", Brief: true, Optional: true, Value: func(r TargetTime) float64 { return r.Seconds }},
		{Name: "wall_seconds", Brief: true, Optional: true, Value: func(r TargetTime) float64 { return r.WallSeconds }},
		{Name: "best", Brief: true, Value: func(r TargetTime) float64 { return r.Best }},
		{Name: "point_seconds", Value: func(r TargetTime) float64 { return t.findPointTargetTime(r).Seconds.Value }},
		{Name: "point_seconds_low", Value: func(r TargetTime) float64 { return t.findPointTargetTime(r).Seconds.Low }},
		{Name: "point_seconds_high", Value: func(r TargetTime) float64 { return t.findPointTargetTime(r).Seconds.High }},
	}}
	g.Remarks = []string{t.Sentence}
	for _, p := range t.Points {
		g.Remarks = append(g.Remarks, fmt.Sprintf("%s at %s: %s", p.Series, english.FormatCount(p.Workers, "worker"), p.format()))
	}
	g.Remarks = append(g.Remarks, "seconds are training time; wall_seconds also include validation if the log contains it")
	for _, p := range t.Problems {
		g.Remarks = append(g.Remarks, "no row: "+p.String())
	}
	return g
}

func (t *TimeTo) findPointTargetTime(r TargetTime) PointTargetTime {
	for _, p := range t.Points {
		if p.Series == r.Series && p.Workers == r.Workers {
			return p
		}
	}
	return PointTargetTime{Seconds: unknownEstimate()}
}
