package record

import (
	"slices"

	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// RankEpochs contains the epochs that one rank logged.
type RankEpochs struct {
	Epochs []runs.Epoch
	Index  map[int]int // index in Epochs of each epoch number; nil while Epochs is sorted
}

// Find returns the epoch with number n, or nil if there is none. The
// pointer is valid until the next Add.
func (r *RankEpochs) Find(n int) *runs.Epoch {
	k := len(r.Epochs)
	if k == 0 {
		return nil
	}
	if r.Index != nil {
		if i, ok := r.Index[n]; ok {
			return &r.Epochs[i]
		}
		return nil
	}
	switch last := &r.Epochs[k-1]; {
	case n == last.Epoch:
		return last
	case n > last.Epoch:
		return nil
	}
	if k > 1 && r.Epochs[k-2].Epoch == n { // for example, the validation of the previous epoch was logged late
		return &r.Epochs[k-2]
	}
	if i, ok := slices.BinarySearchFunc(r.Epochs, n, func(e runs.Epoch, n int) int { return e.Epoch - n }); ok {
		return &r.Epochs[i]
	}
	return nil
}

// Add adds epoch n, which must not exist yet and is described by the current
// line of l. From the part of the log that was read so far, Add estimates for
// how many epochs to allocate memory.
func (r *RankEpochs) Add(n int, l *scan.LineReader) *runs.Epoch {
	k := len(r.Epochs)
	if r.Index == nil && k > 0 && n < r.Epochs[k-1].Epoch {
		r.Index = make(map[int]int, k+1)
		for i, e := range r.Epochs {
			r.Index[e.Epoch] = i
		}
	}
	if r.Index != nil {
		r.Index[n] = k
	}
	if k == cap(r.Epochs) {
		r.Epochs = slices.Grow(r.Epochs, l.EstimateRemaining(k))
	}
	r.Epochs = append(r.Epochs, NewUnmeasuredEpoch(n, l.Number))
	return &r.Epochs[k]
}

// Remove removes the epochs with the numbers from first to last.
func (r *RankEpochs) Remove(first, last int) {
	r.Epochs = slices.DeleteFunc(r.Epochs, func(e runs.Epoch) bool { return first <= e.Epoch && e.Epoch <= last })
	if r.Index == nil {
		return
	}
	r.Index = map[int]int{}
	for i := range r.Epochs {
		r.Index[r.Epochs[i].Epoch] = i
	}
}
