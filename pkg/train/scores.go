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

// add adds the scores of n samples. Until mean is called, s.Loss is the sum over samples.
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

// mean turns the sum of losses into their mean; call it after the last add.
func (s *Scores) mean() {
	if s.Samples > 0 {
		s.Loss /= float64(s.Samples)
	}
}

// slice returns the scores as numbers that can be added up over ranks; see ofSums.
func (s Scores) slice() []float64 {
	v := append(s.Counts.Slice(), float64(s.Samples), s.Loss*float64(s.Samples))
	if s.Hits != nil {
		v = append(v, s.Hits.Slice()...)
	}
	return v
}

// ofSums returns the scores of all ranks from v, the sum of their slices.
func (s Scores) ofSums(v []float64) Scores {
	s.Counts, s.Samples, s.Loss = metric.FromSlice(v[:4]), int(v[4]), v[5]/v[4]
	if s.Hits != nil {
		h := metric.HitsFromSlice(v[6:])
		s.Hits = &h
	}
	return s
}

// bceWithLogits returns the mean of max(z,0) − z·t + log(1+e^−|z|), as plan.OpBCEWithLogits.
func bceWithLogits(z, t []float32) float64 {
	sum := 0.0
	for i := range z {
		v := float64(z[i])
		sum += max(v, 0) - v*float64(t[i]) + math.Log1p(math.Exp(-math.Abs(v)))
	}
	return sum / float64(len(z))
}

// softmaxCrossEntropy returns log Σ e^z − z of the true class, whose index is t[0].
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

// meanL1 returns the mean of |z − t|.
func meanL1(z, t []float32) float64 {
	sum := 0.0
	for i := range z {
		sum += math.Abs(float64(z[i]) - float64(t[i]))
	}
	return sum / float64(len(z))
}

// constantIoU returns the IoU of the better of two constant predictors: all 0 and all 1.
func (s Scores) constantIoU() float64 {
	iou, _ := s.Constant()
	return iou
}

// segmented reports whether the scores contain pixel counts.
func (s Scores) segmented() bool { return s.Total() > 0 }

// fill stores the scores in a row of epochs.csv. IoU and Dice are NaN unless the task is
// segmentation.
func (s Scores) fill(row *runs.Epoch) {
	row.ValLoss, row.IoU, row.Dice = s.Loss, math.NaN(), math.NaN()
	if s.segmented() {
		row.IoU, row.Dice = s.IoU(), s.Dice()
	}
	if s.Hits != nil {
		row.ValAccuracy = s.Hits.Accuracy()
	}
}

// test returns the record for run.json with these scores, those of the untrained network,
// the checkpoint's path and the seconds of the evaluation.
func (s Scores) test(untrained Scores, checkpoint string, seconds float64) runs.Test {
	nan := math.NaN() // for scores that the task does not have
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

// line formats the scores for a log line.
func (s Scores) line() string {
	switch {
	case s.segmented():
		return fmt.Sprintf("val loss %.6f, IoU %.4f, Dice %.4f", s.Loss, s.IoU(), s.Dice())
	case s.Hits != nil:
		return fmt.Sprintf("val loss %.6f, val accuracy %.4f", s.Loss, s.Hits.Accuracy())
	}
	return fmt.Sprintf("val loss %.6f", s.Loss)
}

// before formats the scores of the untrained network for the first line of the log.
func (s Scores) before() string {
	switch {
	case s.segmented():
		return fmt.Sprintf("untrained IoU %.4f, constant %.4f", s.IoU(), s.constantIoU())
	case s.Hits != nil:
		return fmt.Sprintf("untrained accuracy %.4f, constant %.4f", s.Hits.Accuracy(), s.Hits.Constant())
	}
	return fmt.Sprintf("untrained loss %.6f", s.Loss)
}

// Headline summarizes the final scores of a run in a few words.
func Headline(t runs.Test) string {
	switch model.Task(t.Task) {
	case model.Classification:
		return fmt.Sprintf("accuracy %.4f (constant %.4f, untrained %.4f), loss %.6f", t.Accuracy, t.AccuracyConstant, t.AccuracyUntrained, t.Loss)
	case model.Regression:
		return fmt.Sprintf("loss %.6f (untrained %.6f)", t.Loss, t.LossUntrained)
	}
	return fmt.Sprintf("IoU %.4f (constant %.4f, untrained %.4f), Dice %.4f", t.IoU, t.IoUConstant, t.IoUUntrained, t.Dice)
}
