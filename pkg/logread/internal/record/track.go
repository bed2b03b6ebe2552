package record

import (
	"slices"

	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// Track are the epochs that one rank logged.
type Track struct {
	Epochs []runs.Epoch
	Blank  runs.Epoch  // of which nothing is known: quicker to copy than to set
	Index  map[int]int // index of an epoch's number; nil while they are in order
}

func NewTrack() *Track { return &Track{Blank: UnmeasuredEpoch(0, 0)} }

// Find is the epoch of that number; nil where there is none. It is good until
// the next is added.
func (tr *Track) Find(n int) *runs.Epoch {
	k := len(tr.Epochs)
	if k == 0 {
		return nil
	}
	if tr.Index != nil {
		if i, ok := tr.Index[n]; ok {
			return &tr.Epochs[i]
		}
		return nil
	}
	switch last := &tr.Epochs[k-1]; {
	case n == last.Epoch:
		return last
	case n > last.Epoch:
		return nil
	}
	if k > 1 && tr.Epochs[k-2].Epoch == n { // such as the validation of the one before
		return &tr.Epochs[k-2]
	}
	if i, ok := slices.BinarySearchFunc(tr.Epochs, n, func(e runs.Epoch, n int) int { return e.Epoch - n }); ok {
		return &tr.Epochs[i]
	}
	return nil
}

// Add adds the epoch of a number that is not there; l says how much is to come.
func (tr *Track) Add(n int, l *scan.Lines) *runs.Epoch {
	k := len(tr.Epochs)
	if tr.Index == nil && k > 0 && n < tr.Epochs[k-1].Epoch {
		tr.Index = make(map[int]int, k+1)
		for i, e := range tr.Epochs {
			tr.Index[e.Epoch] = i
		}
	}
	if tr.Index != nil {
		tr.Index[n] = k
	}
	if k == cap(tr.Epochs) {
		tr.Epochs = slices.Grow(tr.Epochs, l.Room(k))
	}
	tr.Epochs = tr.Epochs[:k+1]
	e := &tr.Epochs[k]
	*e = tr.Blank
	e.Epoch, e.Line = n, l.Number
	return e
}
