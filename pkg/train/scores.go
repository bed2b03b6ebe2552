package train

import (
	"fmt"
	"math"

	"lockstep/pkg/metric"
	"lockstep/pkg/model"
	"lockstep/pkg/runs"
)

// Scores are the loss and the counts of correct predictions over the complete held-out
// set. They are equal on all ranks.
type Scores struct {
	metric.Counts              // pixel counts, for segmentation
	Hits          *metric.Hits `json:",omitempty"` // sample counts, for classification; else nil
	Samples       int          // number of tiles, or of images if they are not cut into tiles
	Loss          float64      // mean over all pixels (BCE), samples (cross-entropy) or values (L1), without label smoothing and soft Dice
}

// newScores returns empty scores. outputs is the number of network outputs per sample.
func newScores(task model.Task, outputs int) Scores {
	if task == model.Classification {
		return Scores{Hits: &metric.Hits{PerClass: make([]int64, outputs)}}
	}
	return Scores{}
}

// add adds the scores of a batch of n samples. s.Loss is the sum over the samples until
// averageLoss is called.
func (s *Scores) add(task model.Task, outputs, target []float32, n int) error {
	k, m := len(outputs)/n, len(target)/n
	loss := meanAbsoluteError
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

// averageLoss replaces s.Loss, the sum over the samples, by the mean. Call it after the last
// call of add.
func (s *Scores) averageLoss() {
	if s.Samples > 0 {
		s.Loss /= float64(s.Samples)
	}
}

// toSlice returns the scores as numbers that can be added up over ranks; see withSums.
func (s Scores) toSlice() []float64 {
	v := append(s.Counts.Slice(), float64(s.Samples), s.Loss*float64(s.Samples))
	if s.Hits != nil {
		v = append(v, s.Hits.Slice()...)
	}
	return v
}

// withSums returns the scores over all ranks. v is the sum of all ranks' toSlice results.
func (s Scores) withSums(v []float64) Scores {
	s.Counts, s.Samples, s.Loss = metric.CountsFromSlice(v[:4]), int(v[4]), v[5]/v[4]
	if s.Hits != nil {
		h := metric.HitsFromSlice(v[6:])
		s.Hits = &h
	}
	return s
}

// bceWithLogits returns the mean of max(z,0) − z·t + log(1+e^−|z|) over the logits z and
// their targets t, like plan.OpBCEWithLogits.
func bceWithLogits(z, t []float32) float64 {
	sum := 0.0
	for i := range z {
		v := float64(z[i])
		sum += max(v, 0) - v*float64(t[i]) + math.Log1p(math.Exp(-math.Abs(v)))
	}
	return sum / float64(len(z))
}

// softmaxCrossEntropy returns log Σ e^z − z[c] for the logits z of one sample, whose true
// class is c = t[0].
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

// meanAbsoluteError returns the mean of |z − t|.
func meanAbsoluteError(z, t []float32) float64 {
	sum := 0.0
	for i := range z {
		sum += math.Abs(float64(z[i]) - float64(t[i]))
	}
	return sum / float64(len(z))
}

// constantIoU returns the IoU of predicting only background or only foreground, whichever is
// larger.
func (s Scores) constantIoU() float64 {
	iou, _ := s.ConstantScores()
	return iou
}

// hasPixelCounts reports whether the scores are of segmentation.
func (s Scores) hasPixelCounts() bool { return s.Total() > 0 }

// fillRow stores the scores in a row of epochs.csv. IoU and Dice are NaN unless the task is
// segmentation.
func (s Scores) fillRow(row *runs.Epoch) {
	row.ValLoss, row.IoU, row.Dice = s.Loss, math.NaN(), math.NaN()
	if s.hasPixelCounts() {
		row.IoU, row.Dice = s.IoU(), s.Dice()
	}
	if s.Hits != nil {
		row.ValAccuracy = s.Hits.Accuracy()
	}
}

// newTest returns the final scores in the form of run.json, with the scores of the untrained
// network, the path of the checkpoint and the duration of the evaluation in seconds.
func (s Scores) newTest(untrained Scores, checkpoint string, seconds float64) runs.Test {
	nan := math.NaN() // for scores that the task does not have
	t := runs.Test{
		Samples: s.Samples, Loss: s.Loss, Checkpoint: checkpoint, Seconds: seconds,
		IoU: nan, Dice: nan, IoUConstant: nan, DiceConstant: nan, IoUUntrained: nan, DiceUntrained: nan,
	}
	switch {
	case s.hasPixelCounts():
		t.IoU, t.Dice = s.IoU(), s.Dice()
		t.IoUConstant, t.DiceConstant = s.ConstantScores()
		t.IoUUntrained, t.DiceUntrained = untrained.IoU(), untrained.Dice()
	case s.Hits != nil:
		t.Task, t.Accuracy, t.AccuracyConstant = string(model.Classification), s.Hits.Accuracy(), s.Hits.ConstantAccuracy()
		if untrained.Hits != nil {
			t.AccuracyUntrained = untrained.Hits.Accuracy()
		}
	default:
		t.Task, t.LossUntrained = string(model.Regression), untrained.Loss
	}
	return t
}

// format formats the scores for a log line.
func (s Scores) format() string {
	switch {
	case s.hasPixelCounts():
		return fmt.Sprintf("val loss %.6f, IoU %.4f, Dice %.4f", s.Loss, s.IoU(), s.Dice())
	case s.Hits != nil:
		return fmt.Sprintf("val loss %.6f, val accuracy %.4f", s.Loss, s.Hits.Accuracy())
	}
	return fmt.Sprintf("val loss %.6f", s.Loss)
}

// formatUntrained formats s, the scores of the untrained network, for the first log line.
func (s Scores) formatUntrained() string {
	switch {
	case s.hasPixelCounts():
		return fmt.Sprintf("untrained IoU %.4f, constant %.4f", s.IoU(), s.constantIoU())
	case s.Hits != nil:
		return fmt.Sprintf("untrained accuracy %.4f, constant %.4f", s.Hits.Accuracy(), s.Hits.ConstantAccuracy())
	}
	return fmt.Sprintf("untrained loss %.6f", s.Loss)
}

// SummarizeTest summarizes the final scores of a run in a few words.
func SummarizeTest(t runs.Test) string {
	switch model.Task(t.Task) {
	case model.Classification:
		return fmt.Sprintf("accuracy %.4f (constant %.4f, untrained %.4f), loss %.6f", t.Accuracy, t.AccuracyConstant, t.AccuracyUntrained, t.Loss)
	case model.Regression:
		return fmt.Sprintf("loss %.6f (untrained %.6f)", t.Loss, t.LossUntrained)
	}
	return fmt.Sprintf("IoU %.4f (constant %.4f, untrained %.4f), Dice %.4f", t.IoU, t.IoUConstant, t.IoUUntrained, t.Dice)
}
