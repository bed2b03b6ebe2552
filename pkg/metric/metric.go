// Package metric computes the scores of segmentation from counts of pixels (Counts) and of
// classification from counts of samples (Hits). Counts of batches, tiles and the shards of
// a data-parallel evaluation add up, so the score of a test set is exact however the set
// was split. (The mean of the shards' scores is not the score of the set.)
//
// A pixel is predicted to be foreground if its probability σ(z) > 0.5, that is, if its
// logit z > 0. IoU and Dice have 1 added to numerator and denominator (smooth = 1), as in
// the U-Net scaling study, so an empty mask that is predicted to be empty has the score 1.
package metric

import "fmt"

// Counts counts pixels by prediction and truth. The zero value is ready to use.
type Counts struct {
	TP int64 // foreground, predicted foreground
	FP int64 // background, predicted foreground
	FN int64 // foreground, predicted background
	TN int64 // background, predicted background
}

// smooth is added to the numerator and the denominator of IoU and Dice.
const smooth = 1

// CountLogits compares logits z with targets t of the same length. Targets are 0 or 1; a
// target above 0.5 is foreground. A NaN in z is predicted background.
func CountLogits(z, t []float32) Counts {
	var c Counts
	c.AddLogits(z, t)
	return c
}

// CountProbabilities compares probabilities p with targets t of the same length.
func CountProbabilities(p, t []float32) Counts {
	var c Counts
	c.add(p, t, 0.5)
	return c
}

// AddLogits adds the counts of logits z and targets t.
func (c *Counts) AddLogits(z, t []float32) { c.add(z, t, 0) }

// AddProbabilities adds the counts of probabilities p and targets t.
func (c *Counts) AddProbabilities(p, t []float32) { c.add(p, t, 0.5) }

func (c *Counts) add(values, t []float32, threshold float32) {
	if len(values) != len(t) {
		// This is a programming error, like an index out of range.
		panic(fmt.Sprintf("metric: %d predictions for %d targets", len(values), len(t)))
	}
	var n [4]int64 // indexed by 2·truth + prediction
	for i, v := range values {
		k := 0
		if t[i] > 0.5 {
			k = 2
		}
		if v > threshold {
			k++
		}
		n[k]++
	}
	c.TN += n[0]
	c.FP += n[1]
	c.FN += n[2]
	c.TP += n[3]
}

// Add adds the counts of another part of the data.
func (c *Counts) Add(o Counts) {
	c.TP += o.TP
	c.FP += o.FP
	c.FN += o.FN
	c.TN += o.TN
}

// Total returns the number of pixels.
func (c Counts) Total() int64 { return c.TP + c.FP + c.FN + c.TN }

// IoU returns the intersection over union of truth y and prediction p,
// (Σyp + 1) / (Σy + Σp − Σyp + 1).
func (c Counts) IoU() float64 {
	return float64(c.TP+smooth) / float64(c.TP+c.FP+c.FN+smooth)
}

// Dice returns the Dice coefficient of truth y and prediction p,
// (2Σyp + 1) / (Σy + Σp + 1).
func (c Counts) Dice() float64 {
	return float64(2*c.TP+smooth) / float64(2*c.TP+c.FP+c.FN+smooth)
}

// Accuracy returns the fraction of pixels that are predicted correctly; 0 if there are no
// pixels.
func (c Counts) Accuracy() float64 {
	if c.Total() == 0 {
		return 0
	}
	return float64(c.TP+c.TN) / float64(c.Total())
}

// AllZero returns the counts of a predictor that predicts background everywhere.
func (c Counts) AllZero() Counts { return Counts{FN: c.TP + c.FN, TN: c.FP + c.TN} }

// AllOne returns the counts of a predictor that predicts foreground everywhere.
func (c Counts) AllOne() Counts { return Counts{TP: c.TP + c.FN, FP: c.FP + c.TN} }

// Constant returns the scores that need no training: for IoU and for Dice, the better one
// of AllZero and AllOne.
func (c Counts) Constant() (iou, dice float64) {
	zero, one := c.AllZero(), c.AllOne()
	return max(zero.IoU(), one.IoU()), max(zero.Dice(), one.Dice())
}

// Slice returns the counts as numbers that can be summed over ranks. Each is exact up to
// 2⁵³ pixels.
func (c Counts) Slice() []float64 {
	return []float64{float64(c.TP), float64(c.FP), float64(c.FN), float64(c.TN)}
}

// FromSlice returns the counts in the result of Slice, or in a sum of such results. It
// panics if v does not have four elements.
func FromSlice(v []float64) Counts {
	if len(v) != 4 {
		panic(fmt.Sprintf("metric: counts have 4 numbers, not %d", len(v)))
	}
	return Counts{TP: int64(v[0]), FP: int64(v[1]), FN: int64(v[2]), TN: int64(v[3])}
}
