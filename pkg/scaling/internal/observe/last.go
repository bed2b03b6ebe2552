package observe

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/runs"
)

// LastValues contains the last known value of each epoch metric of a run, or NaN.
type LastValues struct {
	Values runs.Epoch

	// Diverged is the result of DescribeDivergence. The losses of a diverged run are NaN, because
	// its last finite loss would be misleading.
	Diverged string
}

// NewLastValues finds all last values in one pass over the epochs, because a run may have many
// epochs.
func NewLastValues(r runs.Run) LastValues {
	l := LastValues{Diverged: DescribeDivergence(r)}
	last := &l.Values
	values := []*float64{&last.TrainLoss, &last.ValLoss, &last.IoU, &last.Dice, &last.Accuracy, &last.ValAccuracy}
	for _, v := range values {
		*v = math.NaN()
	}
	for missing, i := len(values), len(r.Epochs)-1; i >= 0 && missing > 0; i-- {
		e := &r.Epochs[i]
		for k, v := range [...]float64{e.TrainLoss, e.ValLoss, e.IoU, e.Dice, e.Accuracy, e.ValAccuracy} {
			if math.IsNaN(*values[k]) && !math.IsNaN(v) {
				*values[k] = v
				missing--
			}
		}
	}
	if l.Diverged != "" {
		last.TrainLoss, last.ValLoss = math.NaN(), math.NaN()
	}
	return l
}

// DescribeDivergence describes where a run's loss first became NaN or infinite, such as "the
// training loss of epoch 3". It returns "" if all losses are finite. A loss that was never logged
// does not count as diverged.
func DescribeDivergence(r runs.Run) string {
	// Lockstep's formats always contain the loss, so NaN in the first epoch means divergence. Losses
	// that are not real have been removed before, and a replay of published numbers may have none.
	lockstepLog := r.Info.Unreal == "" && r.Info.Source == "" && len(r.Info.Command) == 0 && slices.Contains([]string{"", "run folder", "study CSV"}, r.Kind)
	seen := lockstepLog // whether the run has logged a loss
	val := 0
	for i := range r.Epochs {
		e := &r.Epochs[i]
		switch {
		case IsFinite(e.TrainLoss):
			seen = true
		case seen || math.IsInf(e.TrainLoss, 0):
			return fmt.Sprintf("the training loss of epoch %d", e.Epoch)
		}
		if val == 0 && math.IsInf(e.ValLoss, 0) { // validation may skip epochs, so NaN is not divergence
			val = i + 1
		}
	}
	if val > 0 {
		return fmt.Sprintf("the validation loss of epoch %d", r.Epochs[val-1].Epoch)
	}
	for _, c := range r.Curves {
		if !strings.Contains(strings.ToLower(c.Name), "loss") {
			continue
		}
		for i, v := range c.Values {
			if !IsFinite(v) && i < len(c.Steps) {
				return fmt.Sprintf("%s of step %d", c.Name, c.Steps[i])
			}
		}
	}
	return ""
}
