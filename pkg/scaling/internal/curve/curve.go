package curve

import (
	"fmt"
	"math"

	"lockstep/pkg/runs"
	"lockstep/pkg/scaling/internal/observe"
)

// Axes of a curve.
const (
	AxisEpoch    = "epoch"    // epochs done, from 1
	AxisStep     = "step"     // optimizer steps done
	AxisRelative = "relative" // seconds since the start; for epoch metrics, seconds of training without validation
	AxisWall     = "wall"     // seconds since 1970
)

// Line contains one metric of one run: Y[i] is the metric's value at position X[i] of the axis; see
// scaling.CurveLine.
type Line struct {
	Series  string
	Workers int
	Seed    int64
	Run     string
	Name    string
	Rank    int
	X, Y    []float64
}

// EpochMetric is a metric with one value per epoch.
type EpochMetric struct {
	Name  string
	Value func(runs.Epoch) float64
}

// EpochMetrics returns the epoch metrics that can be drawn as a curve.
func EpochMetrics() []EpochMetric {
	return []EpochMetric{
		{"train_loss", func(e runs.Epoch) float64 { return e.TrainLoss }},
		{"val_loss", func(e runs.Epoch) float64 { return e.ValLoss }},
		{"iou", func(e runs.Epoch) float64 { return e.IoU }},
		{"dice", func(e runs.Epoch) float64 { return e.Dice }},
		{"accuracy", func(e runs.Epoch) float64 { return e.Accuracy }},
		{"val_accuracy", func(e runs.Epoch) float64 { return e.ValAccuracy }},
		{"lr", func(e runs.Epoch) float64 { return e.LearningRate }},
		{"seconds", func(e runs.Epoch) float64 { return e.Seconds }},
		{"val_seconds", func(e runs.Epoch) float64 { return e.ValSeconds }},
		{"samples_per_second", observe.SamplesPerSecond},
	}
}

// MetricLines returns the lines of a run for a metric, which is the name of an epoch metric or of a
// logged curve. If there are none, it returns the reason as a string.
func MetricLines(r runs.Run, metric, axis string) ([]Line, string) {
	for _, m := range EpochMetrics() {
		if m.Name == metric {
			return epochMetricLine(r, metric, axis, m.Value)
		}
	}
	var lines []Line
	why := fmt.Sprintf("unknown metric %q", metric)
	for _, c := range r.Curves {
		if c.Name != metric {
			continue
		}
		line := Line{Name: c.Name, Rank: c.Rank, Y: c.Values}
		switch {
		case axis == AxisStep:
			for _, step := range c.Steps {
				line.X = append(line.X, float64(step))
			}
		case axis == AxisEpoch:
			why = "the curve was logged by step, not by epoch; use the axis step, relative or wall"
			continue
		case len(c.Times) != len(c.Values) || len(c.Times) == 0:
			why = "the log has no times of this curve; use the axis step"
			continue
		case axis == AxisRelative:
			for _, t := range c.Times {
				line.X = append(line.X, t-c.Times[0])
			}
		default:
			line.X = c.Times
		}
		lines = append(lines, line)
	}
	return lines, why
}

// epochMetricLine returns a slice with the line of an epoch metric. If there is none, it returns the
// reason as a string. Epochs without a value are omitted; later epochs keep their position on the
// axis.
func epochMetricLine(r runs.Run, metric, axis string, value func(runs.Epoch) float64) ([]Line, string) {
	line := Line{Name: metric, Rank: -1}
	why := "the log has no " + metric
	_, global := observe.BatchSizes(r)
	at, steps := 0.0, 0.0
	if axis == AxisWall {
		if r.Info.Started.IsZero() {
			return nil, "the log has no start time; use the axis epoch or relative"
		}
		at = float64(r.Info.Started.UnixNano()) / 1e9
	}
	for _, e := range r.Epochs {
		at += e.Seconds
		if axis == AxisWall && e.ValSeconds > 0 {
			at += e.ValSeconds
		}
		if global > 0 {
			steps += math.Ceil(float64(e.Samples) / float64(global))
		}
		x := map[string]float64{AxisEpoch: float64(e.Epoch), AxisStep: steps, AxisRelative: at, AxisWall: at}[axis]
		switch {
		case math.IsNaN(value(e)):
		case axis == AxisStep && (global == 0 || e.Samples == 0):
			why = "the log has no sample counts or no batch, so the steps are unknown; use the axis epoch or relative"
		case math.IsNaN(x):
			why = "an epoch has no time; use the axis epoch"
		default:
			line.X, line.Y = append(line.X, x), append(line.Y, value(e))
		}
	}
	if len(line.X) == 0 {
		return nil, why
	}
	return []Line{line}, ""
}
