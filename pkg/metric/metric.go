// Package metric computes the scores of segmentation from counts of pixels (Counts for a
// foreground and a background, Confusion for several classes) and of classification from
// counts of samples (Hits). Counts of batches, tiles and the shards of
// a data-parallel evaluation add up, so the score of a test set is exact however the set
// was split. (The mean of the shards' scores is not the score of the set.)
//
// With Counts, a pixel is predicted to be foreground if its probability σ(z) > 0.5, that is,
// if its logit z > 0. IoU and Dice have 1 added to numerator and denominator (smooth = 1), as in
// the U-Net scaling study, so an empty mask that is predicted to be empty has the score 1.
package metric

import "fmt"

// Counts counts pixels by true and predicted class. The zero value is ready to use.
type Counts struct {
	TP int64 // true positives: foreground, predicted foreground
	FP int64 // false positives: background, predicted foreground
	FN int64 // false negatives: foreground, predicted background
	TN int64 // true negatives: background, predicted background
}

// Ignored is the target of pixels that are not counted. It equals data.Ignored.
const Ignored = 255

// scoreSmoothing is added to the numerators and denominators of IoU and Dice, so that they
// are defined without foreground pixels.
const scoreSmoothing = 1

// CountLogits compares logits z with targets t of the same length. A logit above 0 predicts
// foreground, NaN predicts background. A target above 0.5 is foreground; Ignored is not counted.
func CountLogits(z, t []float32) Counts {
	var c Counts
	c.AddLogits(z, t)
	return c
}

// AddLogits adds CountLogits(z, t) to c.
func (c *Counts) AddLogits(z, t []float32) {
	if len(z) != len(t) {
		// This is a programming error, like an index out of range.
		panic(fmt.Sprintf("metric: %d predictions for %d targets", len(z), len(t)))
	}
	var n [4]int64 // indexed by 2·truth + prediction
	for i, v := range z {
		k := 0
		if t[i] > 0.5 {
			if t[i] == Ignored {
				continue
			}
			k = 2
		}
		if v > 0 {
			k++
		}
		n[k]++
	}
	c.TN += n[0]
	c.FP += n[1]
	c.FN += n[2]
	c.TP += n[3]
}

// Add adds o to c.
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
	return float64(c.TP+scoreSmoothing) / float64(c.TP+c.FP+c.FN+scoreSmoothing)
}

// Dice returns the Dice coefficient of truth y and prediction p,
// (2Σyp + 1) / (Σy + Σp + 1).
func (c Counts) Dice() float64 {
	return float64(2*c.TP+scoreSmoothing) / float64(2*c.TP+c.FP+c.FN+scoreSmoothing)
}

// Accuracy returns the fraction of pixels that are predicted correctly, or 0 if there are
// no pixels.
func (c Counts) Accuracy() float64 {
	if c.Total() == 0 {
		return 0
	}
	return float64(c.TP+c.TN) / float64(c.Total())
}

// AllZero returns the counts for the same pixels if background is predicted everywhere.
func (c Counts) AllZero() Counts { return Counts{FN: c.TP + c.FN, TN: c.FP + c.TN} }

// AllOne returns the counts for the same pixels if foreground is predicted everywhere.
func (c Counts) AllOne() Counts { return Counts{TP: c.TP + c.FN, FP: c.FP + c.TN} }

// ConstantScores returns the scores that can be reached without training: the larger IoU and
// the larger Dice coefficient of AllZero and AllOne.
func (c Counts) ConstantScores() (iou, dice float64) {
	zero, one := c.AllZero(), c.AllOne()
	return max(zero.IoU(), one.IoU()), max(zero.Dice(), one.Dice())
}

// Slice returns the counts as a slice that can be summed over ranks: TP, FP, FN and TN.
// Sums are exact up to 2⁵³ pixels.
func (c Counts) Slice() []float64 {
	return []float64{float64(c.TP), float64(c.FP), float64(c.FN), float64(c.TN)}
}

// CountsFromSlice converts a result of Slice, or a sum of such results, to Counts. It panics
// if v does not have four elements.
func CountsFromSlice(v []float64) Counts {
	if len(v) != 4 {
		panic(fmt.Sprintf("metric: counts have 4 numbers, not %d", len(v)))
	}
	return Counts{TP: int64(v[0]), FP: int64(v[1]), FN: int64(v[2]), TN: int64(v[3])}
}
