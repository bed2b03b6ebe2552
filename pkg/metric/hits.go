package metric

import "fmt"

// Hits are samples of a classification by whether the first guess, the class
// with the largest logit, is right, and by their true class. Like Counts they
// add up over batches and shards.
type Hits struct {
	Right    int64   // guessed right (top-1)
	PerClass []int64 // samples by true class
}

// CountClasses counts logits [n, classes] against class indices t [n]. Of equal
// logits the first class is the guess; a NaN is never one. A target that is no
// class is an error.
func CountClasses(logits, t []float32, classes int) (Hits, error) {
	h := Hits{PerClass: make([]int64, classes)}
	return h, h.AddLogits(logits, t)
}

// AddLogits adds the counts of logits [n, classes] against class indices t [n],
// with as many classes as h.PerClass is long.
func (h *Hits) AddLogits(logits, t []float32) error {
	k := len(h.PerClass)
	if k < 1 || len(logits) != k*len(t) {
		return fmt.Errorf("count classes: %d logits for %d samples of %d classes", len(logits), len(t), k)
	}
	for i, c := range t {
		if c < 0 || int(c) >= k || c != float32(int(c)) {
			return fmt.Errorf("count classes: target %d is %g: expected a class from 0 to %d", i, c, k-1)
		}
		h.PerClass[int(c)]++
		if guess(logits[i*k:(i+1)*k]) == int(c) {
			h.Right++
		}
	}
	return nil
}

// guess is the index of the first largest logit, −1 where all are NaN.
func guess(z []float32) int {
	best := -1
	for i, v := range z {
		if v == v && (best < 0 || v > z[best]) {
			best = i
		}
	}
	return best
}

// Total is the number of samples.
func (h Hits) Total() int64 {
	n := int64(0)
	for _, c := range h.PerClass {
		n += c
	}
	return n
}

// Accuracy is the fraction of samples that are guessed right; 0 where there are none.
func (h Hits) Accuracy() float64 { return h.fraction(h.Right) }

// Constant is what needs no training: the accuracy of always guessing the most
// frequent class.
func (h Hits) Constant() float64 {
	most := int64(0)
	for _, c := range h.PerClass {
		most = max(most, c)
	}
	return h.fraction(most)
}

func (h Hits) fraction(n int64) float64 {
	if total := h.Total(); total > 0 {
		return float64(n) / float64(total)
	}
	return 0
}

// Slice is the counts as numbers to be summed over ranks, 1 + classes of them.
// Each is exact up to 2⁵³ samples.
func (h Hits) Slice() []float64 {
	v := []float64{float64(h.Right)}
	for _, c := range h.PerClass {
		v = append(v, float64(c))
	}
	return v
}

// HitsFromSlice is the counts of a Slice, or of a sum of them.
func HitsFromSlice(v []float64) Hits {
	h := Hits{Right: int64(v[0]), PerClass: make([]int64, len(v)-1)}
	for i, c := range v[1:] {
		h.PerClass[i] = int64(c)
	}
	return h
}
