package textlog

import "lockstep/pkg/logread/internal/record"

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
	all   []*record.Track // as they came
	few   []*record.Track // by label + 1, of nth 0
	index map[trackID]*record.Track
}

// find is the track of that name; nil where there is none.
func (ts *tracks) find(id trackID) *record.Track {
	if i := id.rank + 1; id.nth == 0 && i < fewRanks {
		if i < len(ts.few) {
			return ts.few[i]
		}
		return nil
	}
	return ts.index[id]
}

// add adds a track that is not there.
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
