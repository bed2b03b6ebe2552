package textlog

import "lockstep/pkg/logread/internal/record"

// A log of a thousand ranks has one line per rank and epoch. Finding the
// destination of its values must not take longer than parsing them. There are
// few ranks, and their epochs are in order, so both are usually found without a
// map.

// trackID identifies the track of a rank. If lines have labels, rank is the
// rank in the label and ordinal is 0. Otherwise rank is -1 and ordinal
// distinguishes the ranks.
type trackID struct{ rank, ordinal int }

// maxIndexedRanks is the number of ranks, starting with -1, whose tracks are in
// a slice. Tracks of higher ranks are in a map.
const maxIndexedRanks = 256

// trackSet contains the epochs of a run by rank.
type trackSet struct {
	all   []*record.Track           // in the order of their first lines
	few   []*record.Track           // tracks with ordinal 0 by rank + 1
	index map[trackID]*record.Track // the other tracks
}

// find returns the track of a rank, or nil if it has none.
func (ts *trackSet) find(id trackID) *record.Track {
	if i := id.rank + 1; id.ordinal == 0 && i < maxIndexedRanks {
		if i < len(ts.few) {
			return ts.few[i]
		}
		return nil
	}
	return ts.index[id]
}

// add adds an empty track, which must not exist yet.
func (ts *trackSet) add(id trackID) *record.Track {
	tr := record.NewTrack()
	ts.all = append(ts.all, tr)
	if i := id.rank + 1; id.ordinal == 0 && i < maxIndexedRanks {
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

// counter counts the occurrences of integers.
type counter struct {
	dense  []int32     // counts of 0, 1, 2, …, as far as these were added in order
	sparse map[int]int // counts of other integers
}

// add counts n and returns the number of its previous occurrences.
func (t *counter) add(n int) int {
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

// count returns the number of occurrences of n.
func (t *counter) count(n int) int {
	if n >= 0 && n < len(t.dense) {
		return int(t.dense[n])
	}
	return t.sparse[n]
}
