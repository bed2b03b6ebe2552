// Package tidy turns runs into rows with one measured value each, and writes rows as CSV and JSON.
package tidy

import (
	"slices"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// Row is one measured value. It is converted to logread.Row, which documents its fields.
type Row struct {
	Run     string
	Series  string
	Workers int
	Seed    int64
	Rank    int // -1 if it does not apply
	Epoch   int // 0 if it does not apply
	Step    int // -1 if it does not apply
	Name    string
	Value   float64
}

// RowIterator calls use for each row. It stops and returns the error if use returns one.
type RowIterator func(use func(Row) error) error

// Value is a measured value with its name.
type Value struct {
	Name string
	V    float64
}

// EpochValues returns the values of an epoch, named as the columns of epochs.csv.
func EpochValues(e runs.Epoch) []Value {
	values := []Value{
		{"seconds", e.Seconds},
		{"samples_per_second", e.SamplesPerSecond},
		{"train_loss", e.TrainLoss},
		{"val_loss", e.ValLoss},
		{"iou", e.IoU},
		{"dice", e.Dice},
		{"val_seconds", e.ValSeconds},
		{"lr", e.LearningRate},
		{"accuracy", e.Accuracy},
		{"val_accuracy", e.ValAccuracy},
	}
	if e.Samples > 0 { // otherwise unknown
		counts := []Value{{"samples", float64(e.Samples)}, {"padding_samples", float64(e.PaddingSamples)}}
		values = slices.Insert(values, 1, counts...)
	}
	return values
}

func classValues(prefix string, c runs.NamedScores) []Value {
	return []Value{{prefix + "iou/" + c.Name, c.IoU}, {prefix + "dice/" + c.Name, c.Dice}}
}

// runValues returns the values of the complete run: test results, durations and energy.
func runValues(run runs.Run) []Value {
	var values []Value
	info := run.Info
	if t := info.Test; t != nil {
		values = []Value{
			{"test_loss", t.Loss},
			{"test_iou", t.IoU},
			{"test_dice", t.Dice},
			{"test_iou_constant", t.IoUConstant},
			{"test_dice_constant", t.DiceConstant},
			{"test_iou_untrained", t.IoUUntrained},
			{"test_dice_untrained", t.DiceUntrained},
			{"test_seconds", t.Seconds},
		}
		for _, c := range t.Classes {
			values = append(values, classValues("test_", c)...)
		}
		if t.Accuracy > 0 { // otherwise unknown, or the task has none
			values = append(values, Value{"test_accuracy", t.Accuracy})
		}
	}
	if s, ok := info.Config[record.TrainingSecondsKey].(float64); ok {
		values = append(values, Value{record.TrainingSecondsKey, s})
	}
	if run.WallSeconds > 0 { // otherwise unknown
		values = append(values, Value{"wall_seconds", run.WallSeconds})
	}
	if info.EnergyJoules > 0 {
		values = append(values, Value{"energy_joules", info.EnergyJoules})
	}
	if info.SentFormula > 0 { // beside sent_bytes_per_step of the epochs
		values = append(values, Value{"sent_bytes_per_step_formula", info.SentFormula})
	}
	return values
}

// stepValues returns the values of a step. Their names are those in steps-<rank>.jsonl. Staleness
// is omitted for most strategies, which have none.
func stepValues(s runs.Step) []Value {
	values := []Value{
		{"samples", float64(s.Samples)},
		{"data_seconds", s.Data},
		{"forward_seconds", s.Forward},
		{"backward_seconds", s.Backward},
		{"wait_seconds", s.Wait},
		{"all_reduce_seconds", s.AllReduce},
		{"optimizer_seconds", s.Optimizer},
		{"until_collective_seconds", s.UntilCollective},
		{"loss", s.Loss},
	}
	if s.Staleness != 0 {
		values = append(values, Value{"staleness", float64(s.Staleness)})
	}
	if s.Sent != 0 {
		values = append(values, Value{"sent_bytes", float64(s.Sent)})
	}
	if s.Dropped {
		values = append(values, Value{"dropped", 1})
	}
	return values
}
