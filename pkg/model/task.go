package model

import "fmt"

// Task is what a network learns. It determines the content of the target, the loss and
// the scores.
type Task string

// The supported tasks.
const (
	// Segmentation: logits and target have the same shape [K,H,W], and the target is 0 or 1
	// at each pixel. Loss: binary cross-entropy of the logits. Or the logits have the shape
	// [K,H,W] with K classes, and the target [1,H,W] contains the index of each pixel's class,
	// or IgnoredTarget. Loss: softmax cross-entropy. Scores: IoU, Dice.
	Segmentation Task = "segmentation"
	// Classification: logits [K], one number per class; the target [1] is the class index
	// as a number. Loss: softmax cross-entropy. Score: accuracy.
	Classification Task = "classification"
	// Regression: output (named "logits") and target have the same shape. Loss: mean
	// absolute difference (L1). Score: the loss on the validation set.
	Regression Task = "regression"
)

// Validate returns an error if t is not one of the tasks above.
func (t Task) Validate() error {
	switch t {
	case Segmentation, Classification, Regression:
		return nil
	}
	return fmt.Errorf("unknown task %q: use %s, %s or %s", string(t), Segmentation, Classification, Regression)
}
