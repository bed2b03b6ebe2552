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

// Find returns the epoch with number n, or nil if there is none or r is nil. The
// pointer is valid until the next epoch is added.
func (r *RankEpochs) Find(n int) *runs.Epoch {
	if r == nil || len(r.Epochs) == 0 {
		return nil
	}
	k := len(r.Epochs)
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

// FindOrAdd returns epoch n, and adds it if it is new. l, unless it is nil, reads
// the line that describes the epoch. From the part of the log that it has read so
// far, FindOrAdd estimates for how many epochs to allocate memory.
func (r *RankEpochs) FindOrAdd(n int, l *scan.LineReader) *runs.Epoch {
	if e := r.Find(n); e != nil {
		return e
	}
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
	line := 0
	if l != nil {
		line = l.Number
		if k == cap(r.Epochs) {
			r.Epochs = slices.Grow(r.Epochs, l.EstimateRemaining(k))
		}
	}
	r.Epochs = append(r.Epochs, NewUnmeasuredEpoch(n, line))
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
