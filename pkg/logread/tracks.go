package logread

import (
	"slices"

	"lockstep/pkg/runs"
)

// A log of a thousand ranks has a line of each rank and epoch: to find where
// its values go must not cost more than to read them. Ranks are few and epochs
// come in order, so that both are found without a map; what is otherwise is
// found by one.

// trackID names a track: the label of a rank, or the how-manieth rank it is
// among lines without labels.
type trackID struct{ rank, nth int }

// fewRanks are those that need no map: labels from -1 on.
const fewRanks = 256

// tracks are the epochs of a run by the rank that logged them.
type tracks struct {
	all   []*track // as they came
	few   []*track // by label + 1, of nth 0
	index map[trackID]*track
}

// find is the track of that name; nil where there is none.
func (ts *tracks) find(id trackID) *track {
	if i := id.rank + 1; id.nth == 0 && i < fewRanks {
		if i < len(ts.few) {
			return ts.few[i]
		}
		return nil
	}
	return ts.index[id]
}

// add adds a track that is not there.
func (ts *tracks) add(id trackID) *track {
	tr := newTrack()
	ts.all = append(ts.all, tr)
	if i := id.rank + 1; id.nth == 0 && i < fewRanks {
		if i >= len(ts.few) {
			ts.few = append(ts.few, make([]*track, i+1-len(ts.few))...)
		}
		ts.few[i] = tr
		return tr
	}
	if ts.index == nil {
		ts.index = map[trackID]*track{}
	}
	ts.index[id] = tr
	return tr
}

// track are the epochs that one rank logged.
type track struct {
	epochs []runs.Epoch
	blank  runs.Epoch  // of which nothing is known: quicker to copy than to set
	at     map[int]int // index of an epoch's number; nil while they are in order
}

func newTrack() *track { return &track{blank: unmeasured(0, 0)} }

// find is the epoch of that number; nil where there is none. It is good until
// the next is added.
func (tr *track) find(n int) *runs.Epoch {
	k := len(tr.epochs)
	if k == 0 {
		return nil
	}
	if tr.at != nil {
		if i, ok := tr.at[n]; ok {
			return &tr.epochs[i]
		}
		return nil
	}
	switch last := &tr.epochs[k-1]; {
	case n == last.Epoch:
		return last
	case n > last.Epoch:
		return nil
	}
	if k > 1 && tr.epochs[k-2].Epoch == n { // such as the validation of the one before
		return &tr.epochs[k-2]
	}
	if i, ok := slices.BinarySearchFunc(tr.epochs, n, func(e runs.Epoch, n int) int { return e.Epoch - n }); ok {
		return &tr.epochs[i]
	}
	return nil
}

// add adds the epoch of a number that is not there; l says how much is to come.
func (tr *track) add(n int, l *lines) *runs.Epoch {
	k := len(tr.epochs)
	if tr.at == nil && k > 0 && n < tr.epochs[k-1].Epoch {
		tr.at = make(map[int]int, k+1)
		for i, e := range tr.epochs {
			tr.at[e.Epoch] = i
		}
	}
	if tr.at != nil {
		tr.at[n] = k
	}
	if k == cap(tr.epochs) {
		tr.epochs = slices.Grow(tr.epochs, l.room(k))
	}
	tr.epochs = tr.epochs[:k+1]
	e := &tr.epochs[k]
	*e = tr.blank
	e.Epoch, e.Line = n, l.number
	return e
}

// tally counts how often each number came.
type tally struct {
	dense  []int32 // of 0, 1, 2, … as far as they came in order, from 0 or 1
	sparse map[int]int
}

// add counts n, and says how often it came before.
func (t *tally) add(n int) int {
	if k := len(t.dense); n == k || n == k+1 {
		for ; k <= n; k++ {
			t.dense = append(t.dense, int32(t.sparse[k]))
		}
	}
	if n >= 0 && n < len(t.dense) {
		t.dense[n]++
		return int(t.dense[n]) - 1
	}
	if t.sparse == nil {
		t.sparse = map[int]int{}
	}
	t.sparse[n]++
	return t.sparse[n] - 1
}

// of is how often n came.
func (t *tally) of(n int) int {
	if n >= 0 && n < len(t.dense) {
		return int(t.dense[n])
	}
	return t.sparse[n]
}
