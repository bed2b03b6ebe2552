package scaling

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/go-gota/gota/dataframe"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/curve"
	"lockstep/pkg/scaling/internal/grid"
	"lockstep/pkg/scaling/internal/observe"
)

// Axes of Study.Curve.
const (
	AxisEpoch    = curve.AxisEpoch    // epochs done, from 1
	AxisStep     = curve.AxisStep     // optimizer steps done
	AxisRelative = curve.AxisRelative // seconds since the start; for epoch metrics, seconds of training without validation
	AxisWall     = curve.AxisWall     // seconds since 1970
)

// CurveLine contains one metric of one run: Y[i] is the metric's value at position X[i] of the
// axis.
type CurveLine struct {
	Series  string
	Workers int
	Seed    int64
	Run     string
	Name    string // name of the metric in the log
	Rank    int    // −1 if the values are of all ranks together
	X, Y    []float64
}

// CurveSet contains one metric of every counted run, as lines over a common axis.
//
// String and HTML show one row per line. Table, and Write as CSV or JSON, give one row
// per point: series, workers, seed, run, name, rank (−1 for all ranks together), the
// position (in a column named like the axis), value.
type CurveSet struct {
	analysis
	Metric, Axis, AxisLabel string
	Lines                   []CurveLine
	Problems                []runs.Problem // runs without a line, with reasons
}

// Metrics lists the metrics that Curve and TimeTo accept: first the epoch metrics, such as
// val_loss, then the names of logged curves, such as TensorBoard's tags.
func (s *Study) Metrics() []string {
	var names []string
	for _, m := range curve.EpochMetrics() {
		if slices.ContainsFunc(s.Runs, func(r runs.Run) bool {
			return slices.ContainsFunc(r.Epochs, func(e runs.Epoch) bool { return !math.IsNaN(m.Value(e)) })
		}) {
			names = append(names, m.Name)
		}
	}
	var curves []runs.Curve
	for _, r := range s.Runs {
		curves = append(curves, r.Curves...)
	}
	logged := observe.Distinct(curves, func(c runs.Curve) string { return c.Name })
	slices.SortFunc(logged, runs.NaturalCompare)
	return append(names, logged...)
}

// Curve returns a metric of every counted run over an axis: "epoch", "step", "relative"
// (seconds since the start) or "wall" (seconds since 1970). metric is one of Metrics, such
// as val_loss or Loss/train.
func (s *Study) Curve(metric, axis string) (*CurveSet, error) {
	labels := map[string]string{
		AxisEpoch: "epoch", AxisStep: "step", AxisRelative: "time since the start (s)", AxisWall: "time (s since 1970)",
	}
	if labels[axis] == "" {
		return nil, fmt.Errorf("draw curve %s: unknown axis %q: use %s, %s, %s or %s", metric, axis, AxisEpoch, AxisStep, AxisRelative, AxisWall)
	}
	set := &CurveSet{Metric: metric, Axis: axis, AxisLabel: labels[axis]}
	set.analysis = analysis{set}
	for _, g := range s.groupBySeries() {
		for _, r := range g.Runs {
			if observe.HasFailed(r) {
				continue
			}
			lines, why := curve.MetricLines(r, metric, axis)
			if len(lines) == 0 {
				set.Problems = append(set.Problems, runs.Problem{File: r.Dir, Reason: why})
				continue
			}
			for _, l := range lines {
				l.Series, l.Workers, l.Seed, l.Run = g.Name, r.Info.Workers, r.Info.Seed, r.Dir
				set.Lines = append(set.Lines, CurveLine(l))
			}
		}
	}
	slices.SortStableFunc(set.Lines, func(a, b CurveLine) int {
		if a.Series != b.Series {
			return 0 // in the study's order
		}
		return a.Workers - b.Workers
	})
	if len(set.Lines) == 0 {
		why := ""
		if len(set.Problems) > 0 {
			why = ": " + set.Problems[0].Reason
		}
		return nil, fmt.Errorf("draw curve %s over %s: no run has this metric%s; available metrics: %s", metric, axis, why, strings.Join(s.Metrics(), ", "))
	}
	return set, nil
}

// Smoothed returns the line smoothed as in TensorBoard, by an exponential moving average. weight is
// between 0 (no smoothing) and 1 (excluded). The average is divided by the sum of the weights, so
// that the start is not biased towards 0. Values that are not finite are kept and do not affect the
// average.
func (l CurveLine) Smoothed(weight float64) CurveLine {
	weight = min(0.999, max(0, weight))
	out := l
	out.Y = make([]float64, len(l.Y))
	mean, sum := 0.0, 0.0
	for i, y := range l.Y {
		out.Y[i] = y
		if observe.IsFinite(y) {
			mean, sum = weight*mean+(1-weight)*y, weight*sum+(1-weight)
			out.Y[i] = mean / sum
		}
	}
	return out
}

// curvePoint is the i-th point of a line: one row of the table in a file.
type curvePoint struct {
	line CurveLine
	i    int
}

func (c *CurveSet) pointTable() grid.Grid[curvePoint] {
	g := grid.Grid[curvePoint]{What: "curves", Columns: []grid.Column[curvePoint]{
		{Name: "series", Text: func(p curvePoint) string { return p.line.Series }},
		{Name: "workers", Count: func(p curvePoint) int { return p.line.Workers }},
		{Name: "seed", Count: func(p curvePoint) int { return int(p.line.Seed) }},
		{Name: "run", Text: func(p curvePoint) string { return p.line.Run }},
		{Name: "name", Text: func(p curvePoint) string { return p.line.Name }},
		{Name: "rank", Count: func(p curvePoint) int { return p.line.Rank }},
		{Name: c.Axis, Value: func(p curvePoint) float64 { return p.line.X[p.i] }},
		{Name: "value", Value: func(p curvePoint) float64 { return p.line.Y[p.i] }},
	}}
	for _, l := range c.Lines {
		for i := range l.X {
			g.Rows = append(g.Rows, curvePoint{l, i})
		}
	}
	return g
}

// curveTables has one row per line in String and HTML, and one row per point in files.
type curveTables struct {
	grid.Grid[CurveLine]
	points grid.Grid[curvePoint]
}

func (c curveTables) Table() dataframe.DataFrame { return c.points.Table() }

func (c curveTables) Write(w io.Writer, format string) error {
	if format == FormatTable {
		return c.Grid.Write(w, format)
	}
	return c.points.Write(w, format)
}

func (c *CurveSet) table(maxRows int) resultTable {
	best := slices.Max[[]float64, float64]
	if curve.LowerIsBetter(c.Metric) {
		best = slices.Min[[]float64, float64]
	}
	g := grid.Grid[CurveLine]{What: "curves", Rows: limitRows(c.Lines, maxRows), Columns: []grid.Column[CurveLine]{
		{Name: "series", Brief: true, Text: func(l CurveLine) string { return l.Series }},
		{Name: "workers", Brief: true, Count: func(l CurveLine) int { return l.Workers }},
		{Name: "seed", Brief: true, Count: func(l CurveLine) int { return int(l.Seed) }},
		{Name: "name", Brief: true, Text: func(l CurveLine) string { return l.Name }},
		{Name: "points", Brief: true, Count: func(l CurveLine) int { return len(l.X) }},
		{Name: "first", Brief: true, Value: func(l CurveLine) float64 { return l.Y[0] }},
		{Name: "last", Brief: true, Value: func(l CurveLine) float64 { return l.Y[len(l.Y)-1] }},
		{Name: "best", Brief: true, Value: func(l CurveLine) float64 {
			known := slices.DeleteFunc(slices.Clone(l.Y), func(v float64) bool { return !observe.IsFinite(v) })
			if len(known) == 0 {
				return math.NaN()
			}
			return best(known)
		}},
	}}
	for _, p := range c.Problems {
		g.Remarks = append(g.Remarks, "no line: "+p.String())
	}
	return curveTables{g, c.pointTable()}
}

// LossCurve contains the losses of a series at one worker count by epoch, combined over its
// repeated runs. Failed and canceled runs are left out. All slices have one element per epoch, in
// ascending order; unknown values are NaN. The slices belong to the study and must not be modified.
type LossCurve struct {
	Series  string
	Workers int
	Runs    int // runs that count

	Epoch []float64 // number of the epoch, from 1
	// Elapsed is the training time in seconds until the end of the epoch. Clock also includes
	// validation. Both are medians over the runs, and NaN after the first epoch whose time is
	// unknown.
	Elapsed, Clock []float64
	Train, Val     []float64 // losses, medians over the runs
	// TrainMin and TrainMax are the lowest and highest training loss of the runs.
	TrainMin, TrainMax []float64
}

// LossCurves returns the losses of each series in the study's order, by ascending worker count.
// Points whose runs have no epochs are omitted.
func (s *Study) LossCurves() []LossCurve {
	if s.losses == nil { // a Study that the caller constructed
		return s.computeLossCurves()
	}
	return s.losses()
}

func (s *Study) computeLossCurves() []LossCurve {
	var out []LossCurve
	for _, g := range s.groupBySeries() {
		counts := map[int][]*runs.Run{}
		var workers []int
		for i := range g.Runs {
			r := &g.Runs[i]
			if observe.HasFailed(*r) || len(r.Epochs) == 0 {
				continue
			}
			n := r.Info.Workers
			if counts[n] == nil {
				workers = append(workers, n)
			}
			counts[n] = append(counts[n], r)
		}
		slices.Sort(workers)
		for _, n := range workers {
			c := LossCurve(curve.NewLossCurve(counts[n]))
			c.Series, c.Workers = g.Name, n
			out = append(out, c)
		}
	}
	return out
}
