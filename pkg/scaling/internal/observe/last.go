package observe

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/runs"
)

// LastValues contains, for each column of the epochs, the last value that is not NaN;
// NaN if there is none.
type LastValues struct {
	TrainLoss, ValLoss, IoU, Dice, Accuracy, ValAccuracy float64

	// Diverged names the first place at which the run's loss is not finite, or is "" if
	// there is none. The losses of a diverged run are NaN, because its last finite loss
	// would be misleading.
	Diverged string
}

// LastOf returns the last values of a run. It reads the epochs once, because there may
// be many.
func LastOf(r runs.Run) LastValues {
	l := LastValues{Diverged: Diverged(r)}
	values := []*float64{&l.TrainLoss, &l.ValLoss, &l.IoU, &l.Dice, &l.Accuracy, &l.ValAccuracy}
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
		l.TrainLoss, l.ValLoss = math.NaN(), math.NaN()
	}
	return l
}

// Diverged names the first place at which a run's loss is not finite, such as "the
// training loss of epoch 3". It returns "" if there is none. A loss that was never
// logged does not count as diverged.
func Diverged(r runs.Run) string {
	// Lockstep's formats always contain the loss, so NaN in the first epoch means
	// divergence.
	lockstepLog := len(r.Info.Command) == 0 && slices.Contains([]string{"", "run folder", "study CSV"}, r.Kind)
	seen := lockstepLog // whether the run has logged a loss
	val := 0
	for i := range r.Epochs {
		e := &r.Epochs[i]
		switch {
		case Finite(e.TrainLoss):
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
			if !Finite(v) && i < len(c.Steps) {
				return fmt.Sprintf("%s of step %d", c.Name, c.Steps[i])
			}
		}
	}
	return ""
}
