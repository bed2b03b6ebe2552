package train

import (
	"fmt"
	"math"

	"lockstep/pkg/metric"
	"lockstep/pkg/model"
	"lockstep/pkg/runs"
)

// Scores are counts and loss over the whole held-out set, equal on all ranks.
type Scores struct {
	metric.Counts              // of pixels, for segmentation
	Hits          *metric.Hits `json:",omitempty"` // of samples, for classification
	Samples       int          // tiles, or images where they are not cut
	Loss          float64      // mean over all pixels (BCE), samples (cross-entropy) or values (L1), without label smoothing and soft Dice
}

// newScores is no score yet. outputs is the number of a sample's outputs.
func newScores(task model.Task, outputs int) Scores {
	if task == model.Classification {
		return Scores{Hits: &metric.Hits{PerClass: make([]int64, outputs)}}
	}
	return Scores{}
}

// add counts n samples; s.Loss is their sum until mean.
func (s *Scores) add(task model.Task, outputs, target []float32, n int) error {
	k, m := len(outputs)/n, len(target)/n
	loss := meanL1
	switch task {
	case model.Classification:
		if err := s.Hits.AddLogits(outputs, target); err != nil {
			return err
		}
		loss = softmaxCrossEntropy
	case model.Segmentation:
		s.AddLogits(outputs, target)
		loss = bceWithLogits
	}
	for i := range n {
		s.Loss += loss(outputs[i*k:(i+1)*k], target[i*m:(i+1)*m])
	}
	s.Samples += n
	return nil
}

// mean ends add.
func (s *Scores) mean() {
	if s.Samples > 0 {
		s.Loss /= float64(s.Samples)
	}
}

// slice is what is summed over ranks to get the scores of all of them.
func (s Scores) slice() []float64 {
	v := append(s.Counts.Slice(), float64(s.Samples), s.Loss*float64(s.Samples))
	if s.Hits != nil {
		v = append(v, s.Hits.Slice()...)
	}
	return v
}

// ofSums is the scores of a sum of slices.
func (s Scores) ofSums(v []float64) Scores {
	s.Counts, s.Samples, s.Loss = metric.FromSlice(v[:4]), int(v[4]), v[5]/v[4]
	if s.Hits != nil {
		h := metric.HitsFromSlice(v[6:])
		s.Hits = &h
	}
	return s
}

// bceWithLogits is the mean of max(z,0) − z·t + log(1+e^−|z|), as plan.OpBCEWithLogits.
func bceWithLogits(z, t []float32) float64 {
	sum := 0.0
	for i := range z {
		v := float64(z[i])
		sum += max(v, 0) - v*float64(t[i]) + math.Log1p(math.Exp(-math.Abs(v)))
	}
	return sum / float64(len(z))
}

// softmaxCrossEntropy is log Σ e^z − z of the true class, whose index is t[0].
func softmaxCrossEntropy(z, t []float32) float64 {
	top := math.Inf(-1)
	for _, v := range z {
		top = max(top, float64(v))
	}
	sum := 0.0
	for _, v := range z {
		sum += math.Exp(float64(v) - top)
	}
	return top + math.Log(sum) - float64(z[int(t[0])])
}

// meanL1 is the mean of |z − t|.
func meanL1(z, t []float32) float64 {
	sum := 0.0
	for i := range z {
		sum += math.Abs(float64(z[i]) - float64(t[i]))
	}
	return sum / float64(len(z))
}

// constantIoU is the IoU of the better of the all-0 and all-1 predictors.
func (s Scores) constantIoU() float64 {
	iou, _ := s.Constant()
	return iou
}

// segmented says whether pixels were counted.
func (s Scores) segmented() bool { return s.Total() > 0 }

// fill writes the scores into a row of epochs.csv; what is not scored is NaN.
func (s Scores) fill(row *runs.Epoch) {
	row.ValLoss, row.IoU, row.Dice = s.Loss, math.NaN(), math.NaN()
	if s.segmented() {
		row.IoU, row.Dice = s.IoU(), s.Dice()
	}
	if s.Hits != nil {
		row.ValAccuracy = s.Hits.Accuracy()
	}
}

// test is run.json's record of s, beside the scores of the untrained network.
func (s Scores) test(untrained Scores, checkpoint string, seconds float64) runs.Test {
	nan := math.NaN() // what the task has no score for
	t := runs.Test{
		Samples: s.Samples, Loss: s.Loss, Checkpoint: checkpoint, Seconds: seconds,
		IoU: nan, Dice: nan, IoUConstant: nan, DiceConstant: nan, IoUUntrained: nan, DiceUntrained: nan,
	}
	switch {
	case s.segmented():
		t.IoU, t.Dice = s.IoU(), s.Dice()
		t.IoUConstant, t.DiceConstant = s.Constant()
		t.IoUUntrained, t.DiceUntrained = untrained.IoU(), untrained.Dice()
	case s.Hits != nil:
		t.Task, t.Accuracy, t.AccuracyConstant = string(model.Classification), s.Hits.Accuracy(), s.Hits.Constant()
		if untrained.Hits != nil {
			t.AccuracyUntrained = untrained.Hits.Accuracy()
		}
	default:
		t.Task, t.LossUntrained = string(model.Regression), untrained.Loss
	}
	return t
}

// line is s in a few words.
func (s Scores) line() string {
	switch {
	case s.segmented():
		return fmt.Sprintf("val loss %.6f, IoU %.4f, Dice %.4f", s.Loss, s.IoU(), s.Dice())
	case s.Hits != nil:
		return fmt.Sprintf("val loss %.6f, val accuracy %.4f", s.Loss, s.Hits.Accuracy())
	}
	return fmt.Sprintf("val loss %.6f", s.Loss)
}

// before is what the untrained network scores, for the first line of a run.
func (s Scores) before() string {
	switch {
	case s.segmented():
		return fmt.Sprintf("untrained IoU %.4f, constant %.4f", s.IoU(), s.constantIoU())
	case s.Hits != nil:
		return fmt.Sprintf("untrained accuracy %.4f, constant %.4f", s.Hits.Accuracy(), s.Hits.Constant())
	}
	return fmt.Sprintf("untrained loss %.6f", s.Loss)
}

// Headline says what a run came to, in a few words.
func Headline(t runs.Test) string {
	switch model.Task(t.Task) {
	case model.Classification:
		return fmt.Sprintf("accuracy %.4f (constant %.4f, untrained %.4f), loss %.6f", t.Accuracy, t.AccuracyConstant, t.AccuracyUntrained, t.Loss)
	case model.Regression:
		return fmt.Sprintf("loss %.6f (untrained %.6f)", t.Loss, t.LossUntrained)
	}
	return fmt.Sprintf("IoU %.4f (constant %.4f, untrained %.4f), Dice %.4f", t.IoU, t.IoUConstant, t.IoUUntrained, t.Dice)
}
