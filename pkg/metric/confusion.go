package metric

import (
	"fmt"
	"math"
)

// Confusion counts the pixels of a segmentation into several classes by true class and predicted
// class. Counts of different batches or ranks can be added.
//
// A class that no target has is absent: its scores are NaN, and the means leave it out. Unlike
// the scores of Counts, the scores of the other classes are not smoothed: nothing is added to
// numerators and denominators.
type Confusion struct {
	Classes int
	Counts  []int64 // [Classes, Classes]: the true class, then the predicted one
}

// NewConfusion returns a Confusion for the given number of classes, without any pixels.
func NewConfusion(classes int) *Confusion {
	return &Confusion{Classes: classes, Counts: make([]int64, classes*classes)}
}

// AddLogits adds the counts of one sample, with the logits z [Classes, pixels] and the true class
// indices t [pixels]. The prediction is the first class with the largest logit. NaN is
// never the largest; if all logits of a pixel are NaN, the prediction is class 0. Pixels whose
// target is Ignored are not counted. Any other target that is not a class index is an error.
func (c *Confusion) AddLogits(z, t []float32) error {
	n := len(t)
	if c.Classes < 1 || len(z) != c.Classes*n {
		return fmt.Errorf("count pixels: got %d logits for %d pixels and %d classes", len(z), n, c.Classes)
	}
	for i, truth := range t {
		if truth == Ignored {
			continue
		}
		if !(truth >= 0 && int(truth) < c.Classes && truth == float32(int(truth))) {
			return fmt.Errorf("count pixels: target %d is %g, want a class index from 0 to %d, or %d for a pixel that does not count", i, truth, c.Classes-1, Ignored)
		}
		best, largest := 0, z[i]
		for k := 1; k < c.Classes; k++ {
			if v := z[k*n+i]; v > largest || largest != largest && v == v {
				best, largest = k, v
			}
		}
		c.Counts[int(truth)*c.Classes+best]++
	}
	return nil
}

// Add adds o, which must have as many classes, to c.
func (c *Confusion) Add(o *Confusion) {
	for i, n := range o.Counts {
		c.Counts[i] += n
	}
}

// Total returns the number of counted pixels.
func (c *Confusion) Total() int64 {
	sum := int64(0)
	for _, n := range c.Counts {
		sum += n
	}
	return sum
}

// Pixels returns the number of counted pixels whose true class is k.
func (c *Confusion) Pixels(k int) int64 {
	sum := int64(0)
	for _, n := range c.Counts[k*c.Classes : (k+1)*c.Classes] {
		sum += n
	}
	return sum
}

// Absent returns the classes that no counted pixel has as its true class.
func (c *Confusion) Absent() []int {
	var absent []int
	for k := range c.Classes {
		if c.Pixels(k) == 0 {
			absent = append(absent, k)
		}
	}
	return absent
}

// ClassScores returns the scores of class k: IoU = TP/(TP+FP+FN) and
// Dice = 2TP/(2TP+FP+FN). Both are NaN if the class is absent.
func (c *Confusion) ClassScores(k int) (iou, dice float64) {
	truth, predicted := c.Pixels(k), int64(0)
	if truth == 0 {
		return math.NaN(), math.NaN()
	}
	for row := range c.Classes {
		predicted += c.Counts[row*c.Classes+k]
	}
	right, sum := float64(c.Counts[k*c.Classes+k]), float64(truth+predicted)
	return right / (sum - right), 2 * right / sum
}

// MeanScores returns the means of the scores of the classes that are not absent. They are NaN if
// no pixel was counted.
func (c *Confusion) MeanScores() (iou, dice float64) {
	present := 0
	for k := range c.Classes {
		if i, d := c.ClassScores(k); i == i {
			iou, dice, present = iou+i, dice+d, present+1
		}
	}
	return iou / float64(present), dice / float64(present)
}

// ConstantScores returns the mean scores that can be reached without training, by predicting the
// most frequent class everywhere. The IoU of this class is its share of the pixels, and the IoU
// of every other class is 0.
func (c *Confusion) ConstantScores() (iou, dice float64) {
	constant, best := NewConfusion(c.Classes), 0
	for k := range c.Classes {
		if c.Pixels(k) > c.Pixels(best) {
			best = k
		}
	}
	for k := range c.Classes {
		constant.Counts[k*c.Classes+best] = c.Pixels(k)
	}
	return constant.MeanScores()
}

// Slice returns the counts as a slice that can be summed over ranks. Sums are exact up to 2⁵³
// pixels.
func (c *Confusion) Slice() []float64 {
	v := make([]float64, len(c.Counts))
	for i, n := range c.Counts {
		v[i] = float64(n)
	}
	return v
}

// ConfusionFromSlice converts a result of Slice, or a sum of such results, to the counts of the
// given number of classes. It panics if v does not have classes² elements.
func ConfusionFromSlice(v []float64, classes int) *Confusion {
	c := NewConfusion(classes)
	if len(v) != len(c.Counts) {
		panic(fmt.Sprintf("metric: counts of %d classes have %d numbers, not %d", classes, len(c.Counts), len(v)))
	}
	for i, n := range v {
		c.Counts[i] = int64(n)
	}
	return c
}
