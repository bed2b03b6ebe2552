package observe

import (
	"math"
	"slices"

	"lockstep/pkg/runs"
)

// Metric is a quantity with one value per run. The value is from the test after training or,
// without a test, from the last epoch that has one.
type Metric struct {
	Name   string
	Higher bool // higher values are better; only meaningful for measures of quality
	Test   func(runs.Test) float64
	// Epoch is nil for a metric that is only measured in the test after training.
	Epoch func(runs.Epoch) float64
}

// QualityMetrics returns the measures of quality, the most informative one first.
func QualityMetrics() []Metric {
	return []Metric{
		{Name: "iou", Higher: true, Test: func(t runs.Test) float64 { return t.IoU }, Epoch: func(e runs.Epoch) float64 { return e.IoU }},
		{Name: "dice", Higher: true, Test: func(t runs.Test) float64 { return t.Dice }, Epoch: func(e runs.Epoch) float64 { return e.Dice }},
		{Name: "val_accuracy", Higher: true, Epoch: func(e runs.Epoch) float64 { return e.ValAccuracy }},
		{Name: "accuracy", Higher: true, Epoch: func(e runs.Epoch) float64 { return e.Accuracy }},
		{Name: "test_loss", Test: func(t runs.Test) float64 { return t.Loss }},
		{Name: "val_loss", Epoch: func(e runs.Epoch) float64 { return e.ValLoss }},
		{Name: "train_loss", Epoch: func(e runs.Epoch) float64 { return e.TrainLoss }},
	}
}

// Metrics returns QualityMetrics, and the test scores of the constant prediction and of the
// untrained network.
func Metrics() []Metric {
	return append(
		QualityMetrics(),
		Metric{Name: "iou_constant", Test: func(t runs.Test) float64 { return t.IoUConstant }},
		Metric{Name: "dice_constant", Test: func(t runs.Test) float64 { return t.DiceConstant }},
		Metric{Name: "iou_untrained", Test: func(t runs.Test) float64 { return t.IoUUntrained }},
		Metric{Name: "dice_untrained", Test: func(t runs.Test) float64 { return t.DiceUntrained }},
	)
}

// RunValue returns the metric's value for a run, or NaN.
func (m Metric) RunValue(r runs.Run) float64 { return m.RunValueWith(r, NewLastValues(r)) }

// RunValueWith is like RunValue if the run's last values are already known.
func (m Metric) RunValueWith(r runs.Run, last LastValues) float64 {
	if v := m.TestValue(r); !math.IsNaN(v) || m.Epoch == nil {
		return v
	}
	return m.Epoch(last.Values)
}

// TestValue returns the metric from the test after training, or NaN.
func (m Metric) TestValue(r runs.Run) float64 {
	if m.Test == nil || r.Info.Test == nil {
		return math.NaN()
	}
	return m.Test(*r.Info.Test)
}

// LastEpoch returns the index of the last epoch that has the metric, or -1.
func (m Metric) LastEpoch(r runs.Run) int {
	if m.Epoch == nil {
		return -1
	}
	for i := range slices.Backward(r.Epochs) {
		if !math.IsNaN(m.Epoch(r.Epochs[i])) {
			return i
		}
	}
	return -1
}
