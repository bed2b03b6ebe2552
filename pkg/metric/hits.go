package metric

import "fmt"

// Hits counts the samples of a classification: how many are classified correctly (the class
// with the largest logit is the true class), and how many belong to each class. Counts of
// different batches or ranks can be added.
type Hits struct {
	Right    int64   // samples that are classified correctly (top-1)
	PerClass []int64 // number of samples by true class
}

// CountClasses compares logits [n, classes] with the true class indices t [n]. If several
// logits are the largest, the first of them is the prediction. NaNs are ignored. A target
// that is not a class index is an error.
func CountClasses(logits, t []float32, classes int) (Hits, error) {
	h := Hits{PerClass: make([]int64, classes)}
	return h, h.AddLogits(logits, t)
}

// AddLogits adds the counts of logits [n, classes] and class indices t [n]. The number of
// classes is the length of h.PerClass.
func (h *Hits) AddLogits(logits, t []float32) error {
	k := len(h.PerClass)
	if k < 1 || len(logits) != k*len(t) {
		return fmt.Errorf("count classes: got %d logits for %d samples and %d classes", len(logits), len(t), k)
	}
	for i, c := range t {
		if c < 0 || int(c) >= k || c != float32(int(c)) {
			return fmt.Errorf("count classes: target %d is %g, want a class index from 0 to %d", i, c, k-1)
		}
		h.PerClass[int(c)]++
		if argmax(logits[i*k:(i+1)*k]) == int(c) {
			h.Right++
		}
	}
	return nil
}

// argmax returns the index of the first largest logit, or −1 if all are NaN.
func argmax(z []float32) int {
	best := -1
	for i, v := range z {
		if v == v && (best < 0 || v > z[best]) {
			best = i
		}
	}
	return best
}

// Total returns the number of samples.
func (h Hits) Total() int64 {
	n := int64(0)
	for _, c := range h.PerClass {
		n += c
	}
	return n
}

// Accuracy returns the fraction of samples that are classified correctly, or 0 if there are
// no samples.
func (h Hits) Accuracy() float64 { return h.fractionOfTotal(h.Right) }

// ConstantAccuracy returns the accuracy that can be reached without training, by always
// predicting the most frequent class.
func (h Hits) ConstantAccuracy() float64 {
	most := int64(0)
	for _, c := range h.PerClass {
		most = max(most, c)
	}
	return h.fractionOfTotal(most)
}

func (h Hits) fractionOfTotal(n int64) float64 {
	if total := h.Total(); total > 0 {
		return float64(n) / float64(total)
	}
	return 0
}

// Slice returns the counts as a slice that can be summed over ranks: Right, followed by
// PerClass. Sums are exact up to 2⁵³ samples.
func (h Hits) Slice() []float64 {
	v := []float64{float64(h.Right)}
	for _, c := range h.PerClass {
		v = append(v, float64(c))
	}
	return v
}

// HitsFromSlice converts a result of Slice, or a sum of such results, to Hits.
func HitsFromSlice(v []float64) Hits {
	h := Hits{Right: int64(v[0]), PerClass: make([]int64, len(v)-1)}
	for i, c := range v[1:] {
		h.PerClass[i] = int64(c)
	}
	return h
}
