package textlog

import "lockstep/pkg/logread/internal/record"

// A log of a thousand ranks has one line per rank and epoch. Finding the
// destination of its values must not take longer than parsing them. There are
// few ranks, and their epochs are in order, so both are usually found without a
// map.

// rankID identifies a rank of a run. If lines have labels, rank is the rank in
// the label and ordinal is 0. Otherwise rank is -1 and ordinal distinguishes the
// ranks.
type rankID struct{ rank, ordinal int }

// maxIndexedRanks is the number of ranks, starting with -1, whose epochs are in
// a slice. The epochs of higher ranks are in a map.
const maxIndexedRanks = 256

// epochsByRank contains the epochs of a run by rank.
type epochsByRank struct {
	all   []*record.RankEpochs          // in the order of the ranks' first lines
	few   []*record.RankEpochs          // ranks with ordinal 0, by rank + 1
	index map[rankID]*record.RankEpochs // the other ranks
}

// find returns the epochs of a rank, or nil if the rank was not added.
func (e *epochsByRank) find(id rankID) *record.RankEpochs {
	if i := id.rank + 1; id.ordinal == 0 && i < maxIndexedRanks {
		if i < len(e.few) {
			return e.few[i]
		}
		return nil
	}
	return e.index[id]
}

// add adds a rank, which must not exist yet, and returns its empty list of
// epochs.
func (e *epochsByRank) add(id rankID) *record.RankEpochs {
	list := record.NewRankEpochs()
	e.all = append(e.all, list)
	if i := id.rank + 1; id.ordinal == 0 && i < maxIndexedRanks {
		if i >= len(e.few) {
			e.few = append(e.few, make([]*record.RankEpochs, i+1-len(e.few))...)
		}
		e.few[i] = list
		return list
	}
	if e.index == nil {
		e.index = map[rankID]*record.RankEpochs{}
	}
	e.index[id] = list
	return list
}

// intCounter counts the occurrences of integers.
type intCounter struct {
	dense  []int32     // counts of 0, 1, 2, …, as far as these were added in order
	sparse map[int]int // counts of other integers
}

// add counts n and returns the number of its previous occurrences.
func (t *intCounter) add(n int) int {
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
func (t *intCounter) count(n int) int {
	if n >= 0 && n < len(t.dense) {
		return int(t.dense[n])
	}
	return t.sparse[n]
}
