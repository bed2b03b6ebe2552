// Package huggingface interprets the values that the Trainer of Hugging Face's
// transformers logs. Two readers need it: one for trainer_state.json and one for
// the dictionaries on standard output.
package huggingface

import (
	"math"
	"strconv"

	"lockstep/pkg/logread/internal/progress"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// EpochNumber converts the fractional "epoch" of a Trainer entry to the number of the epoch, from
// 1: both 0.5 and 1.0 are in epoch 1. ok is false if epoch is not a valid position.
func EpochNumber(epoch float64) (n int, ok bool) {
	if !(epoch > 0 && epoch < 1<<30) {
		return 0, false
	}
	return max(1, int(math.Ceil(epoch-1e-6))), true
}

// SetEpochValue sets the value of e that key names. It does nothing for other keys or a nil e.
func SetEpochValue(e *runs.Epoch, key []byte, v float64) {
	if e == nil {
		return
	}
	switch string(key) {
	case "loss":
		e.TrainLoss = v
	case "learning_rate":
		e.LearningRate = v
	case "eval_loss":
		e.ValLoss = v
	case "eval_accuracy":
		e.ValAccuracy = v
	case "eval_mean_iou", "eval_iou":
		e.IoU = v
	case "eval_runtime":
		e.ValSeconds = v
	}
}

// LossAssumption is the assumption that the readers of trainer_state.json and of text logs report
// for a run with epochs.
const LossAssumption = "the training loss of an epoch is the last one logged in that epoch"

// Session determines what the totals in the Trainer's last entry refer to. train_runtime is the
// time of the current session only. train_loss is the sum of the current session's losses, divided
// by the number of all steps. train_samples_per_second counts the samples of all planned steps. See
// Trainer.train and speed_metrics of transformers 4 and 5. Positions are in steps or in epochs;
// only their ratios matter.
type Session struct {
	sum      float64 // of each loss times the length of its logging interval
	position float64 // of the last logged loss
}

// AddLoss adds a logged loss, which is the mean since the previous one.
func (s *Session) AddLoss(position, loss float64) {
	if position > s.position {
		s.sum += loss * (position - s.position)
		s.position = position
	}
}

// FinalEntry contains the values of the Trainer's last entry. Unknown values are NaN.
type FinalEntry struct {
	Seconds          float64 // train_runtime
	SamplesPerSecond float64 // train_samples_per_second
	TrainLoss        float64 // train_loss
	Epochs           float64 // epoch
	Position         float64 // of the end, in the unit of Session.AddLoss
	Planned          float64 // position at which the training would have ended
	Start            float64 // position from which a checkpoint was continued; 0 if none was
}

// ParseFinalEntry parses the Trainer's last entry. position is the position of the entry in steps
// or epochs. ok is false if entry is not the last one.
func ParseFinalEntry(entry progress.DictEntries, position float64) (end FinalEntry, ok bool) {
	end.Seconds, end.Epochs, end.Position = entry.Value("train_runtime"), entry.Value("epoch"), position
	if end.Seconds > 0 {
		end.SamplesPerSecond, end.TrainLoss = entry.Value("train_samples_per_second"), entry.Value("train_loss")
	}
	return end, end.Seconds > 0
}

// resumedLossShare detects resumed runs. If the current session's sum of losses is less than this
// share of the sum of all logged losses, an earlier session trained some of the steps. Losses
// rounded to three or more digits do not cause a smaller share.
const resumedLossShare = 0.98

// SetRunTotals sets the training time, the epochs that it covers, and the throughput of run, and
// reports which of them cannot be used.
func (s *Session) SetRunTotals(end FinalEntry, run *runs.Run, report *record.Report) {
	if !(end.Seconds > 0) {
		return
	}
	share := 1.0 // of the planned positions that this session trained
	if end.Start > 0 && end.Start < end.Position {
		share = (end.Position - end.Start) / end.Position
	}
	switch {
	case share < 1:
		report.AddAssumption("the training was continued from a checkpoint: train_runtime and train_samples_per_second count only the steps after it")
	case s.position > 0 && math.Abs(end.TrainLoss*end.Position) < resumedLossShare*math.Abs(s.sum):
		record.SetConfigValue(&run.Info, "train_runtime", end.Seconds)
		report.AddProblem(0, "train_loss %g is too small for the logged losses, whose mean is %.4g: the training was probably resumed, so train_runtime (%g s) and train_samples_per_second count only a part of its epochs; they are not used",
			end.TrainLoss, s.sum/s.position, end.Seconds)
		return
	case s.position == 0 || math.IsNaN(end.TrainLoss):
		report.AddAssumption("train_runtime counts all epochs: the training was not resumed, which the log cannot show without train_loss and the logged losses")
	}
	record.SetConfigValue(&run.Info, record.TrainingSecondsKey, end.Seconds)
	if end.Epochs > 0 && !math.IsInf(end.Epochs, 0) {
		record.SetConfigValue(&run.Info, record.TrainingEpochsKey, end.Epochs*share)
		report.AddAssumption("train_runtime, %g s, covers %s epochs, including the evaluations between them", end.Seconds, strconv.FormatFloat(end.Epochs*share, 'g', 4, 64))
	}
	s.addThroughputTrial(end, share, run, report)
}

func (s *Session) addThroughputTrial(end FinalEntry, share float64, run *runs.Run, report *record.Report) {
	switch {
	case !(end.SamplesPerSecond > 0):
		return
	case share < 1:
		report.AddProblem(0, "train_samples_per_second %g counts also the samples before the checkpoint; it is not used", end.SamplesPerSecond)
		return
	case end.Planned > end.Position*1.001:
		report.AddProblem(0, "train_samples_per_second %g counts all planned steps, but the training ended before them (at %g of %g); it is not used", end.SamplesPerSecond, end.Position, end.Planned)
		return
	}
	run.Trials = []runs.Trial{{Name: "FULL", Rate: end.SamplesPerSecond, Spread: math.NaN()}}
}
