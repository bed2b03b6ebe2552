// Package metric scores segmentation from counts of pixels and classification
// from counts of samples (Hits). Counts add up: over batches, over tiles, and
// over the shards of a data-parallel evaluation, so that the score of a whole
// test set is exact however it was split. (A mean of shards' scores is not the
// score of the whole.)
//
// A pixel's prediction is foreground where its probability σ(z) > 0.5, which
// is z > 0. IoU and Dice have 1 added to numerator and denominator (smooth =
// 1), as in the U-Net scaling study, so that an empty mask that is predicted
// empty scores 1.
package metric

import "fmt"

// Counts are pixels by prediction and truth. The zero value is ready for use.
type Counts struct {
	TP int64 // foreground, predicted foreground
	FP int64 // background, predicted foreground
	FN int64 // foreground, predicted background
	TN int64 // background, predicted background
}

// smooth is added to both sides of the fractions.
const smooth = 1

// CountLogits counts logits z against targets t (0 or 1; above 0.5 is
// foreground) of equal length. A NaN counts as background.
func CountLogits(z, t []float32) Counts {
	var c Counts
	c.AddLogits(z, t)
	return c
}

// CountProbabilities counts probabilities p against targets t of equal length.
func CountProbabilities(p, t []float32) Counts {
	var c Counts
	c.add(p, t, 0.5)
	return c
}

// AddLogits adds the counts of logits z against targets t.
func (c *Counts) AddLogits(z, t []float32) { c.add(z, t, 0) }

// AddProbabilities adds the counts of probabilities p against targets t.
func (c *Counts) AddProbabilities(p, t []float32) { c.add(p, t, 0.5) }

func (c *Counts) add(values, t []float32, threshold float32) {
	if len(values) != len(t) {
		// A programmer's mistake, as an index out of range is.
		panic(fmt.Sprintf("metric: %d predictions for %d targets", len(values), len(t)))
	}
	var n [4]int64 // by 2·truth + prediction
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

// Add adds the counts of another part.
func (c *Counts) Add(o Counts) {
	c.TP += o.TP
	c.FP += o.FP
	c.FN += o.FN
	c.TN += o.TN
}

// Total is the number of pixels.
func (c Counts) Total() int64 { return c.TP + c.FP + c.FN + c.TN }

// IoU is the intersection over union of truth y and prediction p,
// (Σyp + 1) / (Σy + Σp − Σyp + 1).
func (c Counts) IoU() float64 {
	return float64(c.TP+smooth) / float64(c.TP+c.FP+c.FN+smooth)
}

// Dice is (2Σyp + 1) / (Σy + Σp + 1).
func (c Counts) Dice() float64 {
	return float64(2*c.TP+smooth) / float64(2*c.TP+c.FP+c.FN+smooth)
}

// Accuracy is the fraction of pixels that are right; 0 where there are none.
func (c Counts) Accuracy() float64 {
	if c.Total() == 0 {
		return 0
	}
	return float64(c.TP+c.TN) / float64(c.Total())
}

// AllZero is the counts of a predictor that says background everywhere.
func (c Counts) AllZero() Counts { return Counts{FN: c.TP + c.FN, TN: c.FP + c.TN} }

// AllOne is the counts of a predictor that says foreground everywhere.
func (c Counts) AllOne() Counts { return Counts{TP: c.TP + c.FN, FP: c.FP + c.TN} }

// Constant is what needs no training: the better of AllZero and AllOne on the
// same truth, for IoU and for Dice.
func (c Counts) Constant() (iou, dice float64) {
	zero, one := c.AllZero(), c.AllOne()
	return max(zero.IoU(), one.IoU()), max(zero.Dice(), one.Dice())
}

// Slice is the counts as numbers to be summed over ranks. Each is exact up to
// 2⁵³ pixels.
func (c Counts) Slice() []float64 {
	return []float64{float64(c.TP), float64(c.FP), float64(c.FN), float64(c.TN)}
}

// FromSlice is the counts of a Slice, or of a sum of them. It panics on
// another length.
func FromSlice(v []float64) Counts {
	if len(v) != 4 {
		panic(fmt.Sprintf("metric: counts have 4 numbers, not %d", len(v)))
	}
	return Counts{TP: int64(v[0]), FP: int64(v[1]), FN: int64(v[2]), TN: int64(v[3])}
}
