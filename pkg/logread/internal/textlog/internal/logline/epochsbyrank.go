package logline

import (
	"math"
	"slices"

	"lockstep/pkg/logread/internal/fields"
	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/runs"
)

// RankID identifies a rank of a run. With labels, Rank is the rank in the label and
// Ordinal is 0. Without, Rank is -1 and Ordinal distinguishes the ranks. It is negative
// for loggers whose lines describe the run and not a rank.
type RankID struct{ Rank, Ordinal int }

// Ordinals for loggers that print lines in addition to those of the program. They may number the
// same epochs differently: MLLOG counts from 0, Keras from 1.
const (
	MLPerfOrdinal   = -1
	DLLoggerOrdinal = -2
)

// EpochsByRank contains the epochs of a run by rank.
type EpochsByRank struct {
	All   []*record.RankEpochs          // of ranks, in the order of their first lines
	extra []*record.RankEpochs          // of loggers with negative ordinals, in the order of their first lines
	index map[RankID]*record.RankEpochs // of all ranks and loggers
	// The last result of FindOrAdd and its ID, which usually recur.
	last   *record.RankEpochs
	lastID RankID
}

// IsEmpty reports whether no epochs were added.
func (e *EpochsByRank) IsEmpty() bool { return len(e.All)+len(e.extra) == 0 }

// Find returns the epochs of a rank, or nil if the rank was not added.
func (e *EpochsByRank) Find(id RankID) *record.RankEpochs { return e.index[id] }

// FindOrAdd returns the epochs of a rank, which it adds if it is new.
func (e *EpochsByRank) FindOrAdd(id RankID) *record.RankEpochs {
	if e.last == nil || e.lastID != id {
		list := e.index[id]
		if list == nil {
			list = &record.RankEpochs{}
			if id.Ordinal < 0 {
				e.extra = append(e.extra, list)
			} else {
				e.All = append(e.All, list)
			}
			record.PutInMap(&e.index, id, list)
		}
		e.lastID, e.last = id, list
	}
	return e.last
}

// FirstEpochNumber returns the lowest number of an epoch of the ranks, or -1 if they have none.
func (e *EpochsByRank) FirstEpochNumber() int {
	first := -1
	for _, list := range e.All {
		for i := range list.Epochs {
			if n := list.Epochs[i].Epoch; first < 0 || n < first {
				first = n
			}
		}
	}
	return first
}

// HaveEqualLengths reports whether there are several ranks that have the same number of epochs, apart from
// the last epoch, which some may not have logged yet. Otherwise a part of one rank's epochs is repeated.
func (e *EpochsByRank) HaveEqualLengths() bool {
	least, most := math.MaxInt, 0
	for _, list := range e.All {
		least, most = min(least, len(list.Epochs)), max(most, len(list.Epochs))
	}
	return len(e.All) > 1 && most-least <= 1
}

// Merge merges the epochs of all ranks and loggers into one list of epochs numbered from 1. Set
// sumRates if the rates of the ranks must be summed. Set fromZero if the log counts epochs from 0,
// even if epoch 0 is not in it.
func (e *EpochsByRank) Merge(sumRates, fromZero bool, report *record.Report) []runs.Epoch {
	for _, list := range slices.Concat(e.All, e.extra) {
		if list.Index != nil { // they were out of order
			slices.SortStableFunc(list.Epochs, record.CompareEpochs)
			list.Index = nil
		}
	}
	var merged []runs.Epoch
	if len(e.All) == 1 {
		merged = e.All[0].Epochs
	} else if len(e.All) > 1 {
		by := make([][]runs.Epoch, len(e.All))
		for i, list := range e.All {
			by[i] = list.Epochs
		}
		report.AddAssumption("the lines of %d ranks are one run: times of the slowest rank, mean losses and accuracies", len(by))
		merged = record.MergeEpochs(by, sumRates, report)
	}
	renumberFromOne(merged, fromZero, report)
	for _, list := range e.extra {
		renumberFromOne(list.Epochs, false, report)
		merged = replaceEpochValues(merged, list.Epochs)
	}
	return merged
}

// renumberFromOne renumbers epochs that are counted from 0, so that they count from 1. epochs are
// sorted; they are counted from 0 if one of them is 0 or fromZero is set.
func renumberFromOne(epochs []runs.Epoch, fromZero bool, report *record.Report) {
	if len(epochs) == 0 || epochs[0].Epoch != 0 && !fromZero {
		return
	}
	report.AddAssumptionOnce("the log counts epochs from 0; here they count from 1")
	for i := range epochs {
		epochs[i].Epoch++
	}
}

// replaceEpochValues replaces values in epochs by the values that other has for the same epochs. It
// also adds the further epochs of other.
func replaceEpochValues(epochs, other []runs.Epoch) []runs.Epoch {
	all := record.RankEpochs{Epochs: epochs}
	for i := range other {
		o, known := &other[i], len(all.Epochs)
		e := all.FindOrAdd(o.Epoch, nil)
		if len(all.Epochs) > known {
			*e = *o
			continue
		}
		if o.Seconds == o.Seconds {
			e.Line = o.Line
		}
		for _, f := range fields.All() {
			if f.OfEpoch != nil && !math.IsNaN(*f.OfEpoch(o)) {
				*f.OfEpoch(e) = *f.OfEpoch(o)
			}
		}
	}
	slices.SortStableFunc(all.Epochs, record.CompareEpochs)
	return all.Epochs
}

// Remove removes epoch n of all ranks.
func (e *EpochsByRank) Remove(n int) {
	for _, list := range e.All {
		list.Remove(n, n)
	}
}
