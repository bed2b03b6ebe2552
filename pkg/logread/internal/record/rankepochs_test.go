package record

import (
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/scan"
)

// TestEpochsOutOfOrder: Find returns each epoch, whatever the order in which the
// epochs were added.
func TestEpochsOutOfOrder(t *testing.T) {
	tr, l := NewRankEpochs(), scan.NewLineReader(strings.NewReader(""), 0)
	for i, n := range []int{2, 5, 6, 3, 9, 1} {
		if tr.Find(n) != nil {
			t.Errorf("epoch %d is there already", n)
		}
		tr.Add(n, l).Samples = i
		for k := range tr.Epochs {
			if e := tr.Find(tr.Epochs[k].Epoch); e != &tr.Epochs[k] {
				t.Errorf("epoch %d is not found after %d", tr.Epochs[k].Epoch, n)
			}
		}
	}
}
