package jsonlog

import (
	"lockstep/pkg/logread/internal/record"
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

// valueOf returns the value of an epoch that a name sets, by the synonyms of tables. val is
// set for values of the validation, whose names may lack this prefix.
func (r *reader) valueOf(name []byte, val bool) epochValue {
	known := &r.values[0]
	if val {
		known = &r.values[1]
	}
	if v, ok := (*known)[string(name)]; ok {
		return v
	}
	var v epochValue
	if !val {
		v.of, v.percentage = table.EpochValue(string(name))
	} else if v.of, v.percentage = table.EpochValue("val_" + string(name)); v.of == nil {
		if v.of, v.percentage = table.EpochValue(string(name)); isOfTraining(v.of) {
			v.of = nil
		}
	}
	if v.of != nil {
		var e runs.Epoch
		to := v.of(&e)
		v.perEpoch = to == &e.Seconds || to == &e.SamplesPerSecond || to == &e.ValSeconds
	}
	if *known == nil {
		*known = map[string]epochValue{}
	}
	if len(*known) < record.MaxCurveNames {
		(*known)[string(name)] = v
	}
	return v
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
