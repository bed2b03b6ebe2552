package model

import "fmt"

// Task is what a network learns. It says what its target holds, what its loss
// is and by what it is scored.
type Task string

// The tasks.
const (
	// Segmentation: logits and target have one shape [K,H,W]; the target is 0 or
	// 1 at each pixel. Loss: binary cross-entropy of the logits. Scores: IoU, Dice.
	Segmentation Task = "segmentation"
	// Classification: logits [K], a number a class; the target [1] holds the
	// class' index as a number. Loss: softmax cross-entropy. Score: accuracy.
	Classification Task = "classification"
	// Regression: output ("logits", though it is none) and target have one shape.
	// Loss: mean absolute difference (L1). Score: the loss on what is held out.
	Regression Task = "regression"
)

// Validate reports a task that is not known.
func (t Task) Validate() error {
	switch t {
	case Segmentation, Classification, Regression:
		return nil
	}
	return fmt.Errorf("validate task %q: it is not known: use %s, %s or %s", string(t), Segmentation, Classification, Regression)
}
