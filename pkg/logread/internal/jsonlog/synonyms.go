package jsonlog

import (
	"lockstep/pkg/logread/internal/table"
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

// epochValue sets a value of an epoch. of is nil for a name that sets none.
type epochValue struct {
	of         func(*runs.Epoch) *float64
	percentage bool // values above 1 are percentages
	perEpoch   bool // in an object with a step, the value is not that of the epoch
}

// valueIn returns the value of an epoch that a name sets, by the synonyms of tables. val is
// set for values of the validation, whose names may lack this prefix.
func (n *jsonName) valueIn(val bool) epochValue {
	to := &n.values[0]
	if val {
		to = &n.values[1]
	}
	if *to != nil {
		return **to
	}
	v := &epochValue{}
	*to = v
	if !val {
		v.of, v.percentage = table.EpochValue(n.text)
	} else if v.of, v.percentage = table.EpochValue("val_" + n.text); v.of == nil {
		if v.of, v.percentage = table.EpochValue(n.text); isOfTraining(v.of) {
			v.of = nil
		}
	}
	if v.of != nil {
		var e runs.Epoch
		field := v.of(&e)
		v.perEpoch = field == &e.Seconds || field == &e.SamplesPerSecond || field == &e.ValSeconds
	}
	return *v
}

// isOfTraining reports whether a value is one of the training, and not of the validation.
func isOfTraining(of func(*runs.Epoch) *float64) bool {
	if of == nil {
		return false
	}
	var e runs.Epoch
	switch of(&e) {
	case &e.TrainLoss, &e.Accuracy, &e.LearningRate, &e.Seconds, &e.SamplesPerSecond:
		return true
	}
	return false
}
