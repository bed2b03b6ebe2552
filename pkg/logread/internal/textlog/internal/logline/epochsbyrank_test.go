package logline

import "testing"

// TestEpochsByRankOutOfOrder checks that epochs are found if small and large ranks
// are mixed.
func TestEpochsByRankOutOfOrder(t *testing.T) {
	var e EpochsByRank
	ids := []RankID{{-1, 0}, {-1, 1}, {0, 0}, {254, 0}, {255, 0}, {1 << 20, 0}, {3, 0}}
	for _, id := range ids {
		if e.Find(id) != nil {
			t.Errorf("rank %v is there already", id)
		}
		e.FindOrAdd(id)
	}
	for i, id := range ids {
		if e.Find(id) != e.All[i] {
			t.Errorf("the epochs of rank %v are not those that were added", id)
		}
	}
}
