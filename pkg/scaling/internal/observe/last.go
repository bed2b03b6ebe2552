package observe

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"lockstep/pkg/runs"
)

// LastValues are what the epochs of a run end with: of each column the last
// value that is not NaN, NaN where there is none.
type LastValues struct {
	TrainLoss, ValLoss, IoU, Dice, Accuracy, ValAccuracy float64

	// Diverged names the first place where the run's loss is no finite number
	// any more, empty where there is none. The loss of a run that diverged is
	// none: the last finite one would flatter it.
	Diverged string
}

// LastOf reads the epochs of a run, which may be many, once.
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

// Diverged names the first place where a run's loss is no finite number any
// more, empty where there is none. A loss that was never logged is none.
func Diverged(r runs.Run) string {
	// These log their loss always: even a run that starts with NaN has one.
	ours := len(r.Info.Command) == 0 && slices.Contains([]string{"", "run folder", "study CSV"}, r.Kind)
	seen := ours // a NaN in every epoch is a loss, not one that was not logged
	val := 0
	for i := range r.Epochs {
		e := &r.Epochs[i]
		switch {
		case Finite(e.TrainLoss):
			seen = true
		case seen || math.IsInf(e.TrainLoss, 0):
			return fmt.Sprintf("the training loss of epoch %d", e.Epoch)
		}
		if val == 0 && math.IsInf(e.ValLoss, 0) { // it is not computed in every epoch
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
