package jsonlog

import (
	"strings"

	"lockstep/pkg/runs"
)

// place is what a number says about where the other numbers of an object belong.
type place int

const (
	placeEpoch place = iota
	placeStep        // over the whole run
	placeIter        // MMCV: within the epoch; MMEngine: over the whole run, beside a step
)

// placeOf returns the place that a key names.
func placeOf(key []byte) (p place, ok bool) {
	switch string(key) {
	case "epoch", "Epoch", "epoch_num", "current_epoch":
		return placeEpoch, true
	case "step", "global_step", "_step", "iteration", "num_updates", "update", "trainer/global_step", "train/global_step":
		return placeStep, true
	case "iter":
		return placeIter, true
	}
	return 0, false
}

// epochValue returns the field of an epoch that a key names, and whether the value may be a
// percentage. val is set for values of the validation. It returns nil for other keys.
func epochValue(e *runs.Epoch, key string, val bool) (to *float64, percentage bool) {
	key = strings.ToLower(strings.NewReplacer("/", "_", "-", "_", ".", "_", " ", "_").Replace(key))
	if bare, ok := strings.CutPrefix(key, "train_"); ok && !val {
		key = bare
	} else if bare, ok := cutValidation(key); ok {
		key, val = bare, true
	}
	switch key {
	case "loss", "total_loss":
		if val {
			return &e.ValLoss, false
		}
		return &e.TrainLoss, false
	case "accuracy", "acc", "accuracy_top1", "top1_acc", "accuracy_top_1", "acc1", "top1":
		if val {
			return &e.ValAccuracy, true
		}
		return &e.Accuracy, true
	case "lr", "learning_rate", "base_lr":
		if !val {
			return &e.LearningRate, false
		}
	case "miou", "iou", "mean_iou":
		return &e.IoU, true
	case "mdice", "dice", "mean_dice":
		return &e.Dice, true
	case "epoch_time", "epoch_seconds", "time_per_epoch", "seconds_per_epoch", "epoch_duration":
		if !val {
			return &e.Seconds, false
		}
	case "samples_per_second", "samples_per_sec", "throughput", "images_per_second", "images_per_sec":
		if !val {
			return &e.SamplesPerSecond, false
		}
	}
	return nil, false
}

// cutValidation returns key without the prefix of a value of the validation.
func cutValidation(key string) (bare string, ok bool) {
	for _, prefix := range []string{"val_", "valid_", "validation_", "eval_"} {
		if bare, ok = strings.CutPrefix(key, prefix); ok {
			return bare, true
		}
	}
	return key, false
}
