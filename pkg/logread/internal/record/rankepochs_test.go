package record

import (
	"strings"
	"testing"

	"lockstep/pkg/logread/internal/scan"
)

// TestEpochsOutOfOrder: Find returns each epoch, whatever the order in which the
// epochs were added.
func TestEpochsOutOfOrder(t *testing.T) {
	r, l := &RankEpochs{}, scan.NewLineReader(strings.NewReader(""), 0)
	for i, n := range []int{2, 5, 6, 3, 9, 1} {
		if r.Find(n) != nil {
			t.Errorf("epoch %d is there already", n)
		}
		r.FindOrAdd(n, l).Samples = i
		for k := range r.Epochs {
			if e := r.Find(r.Epochs[k].Epoch); e != &r.Epochs[k] {
				t.Errorf("epoch %d is not found after %d", r.Epochs[k].Epoch, n)
			}
		}
	}
}
