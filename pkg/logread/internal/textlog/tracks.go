package textlog

import "lockstep/pkg/logread/internal/record"

// A log of a thousand ranks has a line for each rank and epoch. Finding the
// place for its values must not take longer than parsing them. There are few
// ranks, and their epochs come in order, so that both are usually found without
// a map.

// trackID identifies a track: the label of a rank, or a count of ranks among
// lines without labels.
type trackID struct{ rank, nth int }

// fewRanks is the number of labels, from -1 on, that need no map.
const fewRanks = 256

// tracks are the epochs of a run, by the rank that logged them.
type tracks struct {
	all   []*record.Track // in the order of their first lines
	few   []*record.Track // by label + 1, for nth 0
	index map[trackID]*record.Track
}

// find returns the track of a rank, or nil.
func (ts *tracks) find(id trackID) *record.Track {
	if i := id.rank + 1; id.nth == 0 && i < fewRanks {
		if i < len(ts.few) {
			return ts.few[i]
		}
		return nil
	}
	return ts.index[id]
}

// add adds a track, which must not exist yet.
func (ts *tracks) add(id trackID) *record.Track {
	tr := record.NewTrack()
	ts.all = append(ts.all, tr)
	if i := id.rank + 1; id.nth == 0 && i < fewRanks {
		if i >= len(ts.few) {
			ts.few = append(ts.few, make([]*record.Track, i+1-len(ts.few))...)
		}
		ts.few[i] = tr
		return tr
	}
	if ts.index == nil {
		ts.index = map[trackID]*record.Track{}
	}
	ts.index[id] = tr
	return tr
}

// tally counts how often each number occurs.
type tally struct {
	dense  []int32 // counts of 0, 1, 2, …, as far as they came in order
	sparse map[int]int
}

// add counts n, and returns how often it occurred before.
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

// count returns how often n has occurred.
func (t *tally) count(n int) int {
	if n >= 0 && n < len(t.dense) {
		return int(t.dense[n])
	}
	return t.sparse[n]
}
