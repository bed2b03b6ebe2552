package train

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"lockstep/pkg/data"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/metric"
	"lockstep/pkg/model"
	"lockstep/pkg/runs"
)

// Scores contains the loss and the counts of correct predictions over the complete held-out set.
// They are equal on all ranks.
type Scores struct {
	metric.Counts                   // pixel counts, for segmentation with one logit per pixel
	Classes       *metric.Confusion `json:",omitempty"` // pixel counts, for segmentation with one logit per class; else nil
	Hits          *metric.Hits      `json:",omitempty"` // sample counts, for classification; else nil
	Samples       int               // number of tiles, or of images if they are not cut into tiles
	// Loss is the mean loss without class weights, label smoothing and soft Dice. For segmentation
	// (BCE or cross-entropy), it is the mean over all pixels that are not ignored; for
	// classification (cross-entropy), over samples; for regression (L1), over values.
	Loss float64

	pixels int      // per sample, for segmentation, also those that are ignored; else 0
	images []Scores // of each held-out image, for segmentation; of this rank's samples until sumImages is called
}

// newScores returns empty scores. outputs is the number of network outputs per sample, and targets
// the number of target values per sample.
func newScores(task model.Task, outputs, targets int) Scores {
	switch {
	case task == model.Classification:
		return Scores{Hits: &metric.Hits{PerClass: make([]int64, outputs)}}
	case task != model.Segmentation:
		return Scores{}
	case outputs > targets:
		return Scores{pixels: targets, Classes: metric.NewConfusion(outputs / targets)}
	}
	return Scores{pixels: targets}
}

// addSamples adds the scores of n samples. For segmentation, imageOf returns the index of sample i's
// image. s.Loss is the sum over the samples until averageLoss is called.
func (s *Scores) addSamples(task model.Task, outputs, target []float32, n int, imageOf func(i int) int) error {
	k, m := len(outputs)/n, len(target)/n
	for i := range n {
		z, t := outputs[i*k:(i+1)*k], target[i*m:(i+1)*m]
		if err := s.addSample(task, z, t); err != nil {
			return err
		}
		if s.pixels == 0 {
			continue
		}
		image := imageOf(i)
		for len(s.images) <= image {
			s.images = append(s.images, newScores(task, k, m))
		}
		if err := s.images[image].countPixels(z, t); err != nil {
			return err
		}
	}
	return nil
}

func (s *Scores) addSample(task model.Task, outputs, target []float32) error {
	loss := meanAbsoluteError
	switch task {
	case model.Classification:
		if err := s.Hits.AddLogits(outputs, target); err != nil {
			return err
		}
		loss = softmaxCrossEntropy
	case model.Segmentation:
		if err := s.countPixels(outputs, target); err != nil {
			return err
		}
		loss = bceWithLogits
		if s.Classes != nil {
			loss = pixelCrossEntropy
		}
	}
	s.Loss += loss(outputs, target)
	s.Samples++
	return nil
}

func (s *Scores) countPixels(outputs, target []float32) error {
	if s.Classes != nil {
		return s.Classes.AddLogits(outputs, target)
	}
	s.AddLogits(outputs, target)
	return nil
}

// sampleWeight returns the number of samples that the mean loss is taken over. In segmentation, a
// sample counts by the fraction of its pixels that are not ignored.
func (s Scores) sampleWeight() float64 {
	if s.pixels > 0 {
		return float64(s.Total()) / float64(s.pixels)
	}
	return float64(s.Samples)
}

// averageLoss divides s.Loss, the sum over the samples, by sampleWeight. Call it after the last
// addSamples.
func (s *Scores) averageLoss() {
	if w := s.sampleWeight(); w > 0 {
		s.Loss /= w
	}
}

// toSlice returns the scores as numbers that can be summed over ranks; see withSums.
func (s Scores) toSlice() []float64 {
	v := append(s.Counts.Slice(), float64(s.Samples), s.Loss*s.sampleWeight())
	if s.Classes != nil {
		v = append(v, s.Classes.Slice()...)
	}
	if s.Hits != nil {
		v = append(v, s.Hits.Slice()...)
	}
	return v
}

// withSums returns the scores over all ranks. v is the element-wise sum of the results of toSlice
// on all ranks.
func (s Scores) withSums(v []float64) Scores {
	s.Counts, s.Samples, s.Loss = metric.CountsFromSlice(v[:4]), int(v[4]), v[5]
	if s.Classes != nil {
		s.Classes = metric.ConfusionFromSlice(v[6:], s.Classes.Classes)
	}
	if s.Hits != nil {
		h := metric.HitsFromSlice(v[6:])
		s.Hits = &h
	}
	s.averageLoss()
	return s
}

// checkPixelsCounted returns an error if all pixels of the held-out set are ignored.
func (s Scores) checkPixelsCounted() error {
	if s.pixels > 0 && s.Samples > 0 && s.Total() == 0 {
		return fmt.Errorf("every pixel of the masks of all %s is ignored: use other test images, or other data.mask_values", english.FormatCount(s.Samples, "held-out sample"))
	}
	return nil
}

// Total returns the number of pixels that are not ignored, or 0 unless the task is segmentation.
func (s Scores) Total() int64 {
	if s.Classes != nil {
		return s.Classes.Total()
	}
	return s.Counts.Total()
}

// IoU returns the intersection over union of the foreground or, with several classes, the mean over
// the classes in the masks.
func (s Scores) IoU() float64 {
	iou, _ := s.meanIoUAndDice()
	return iou
}

// Dice returns the Dice coefficient of the foreground or, with several classes, the mean over the
// classes in the masks.
func (s Scores) Dice() float64 {
	_, dice := s.meanIoUAndDice()
	return dice
}

func (s Scores) meanIoUAndDice() (iou, dice float64) {
	if s.Classes != nil {
		return s.Classes.MeanScores()
	}
	return s.Counts.IoU(), s.Counts.Dice()
}

// ConstantScores returns the IoU and the Dice coefficient of predicting the same class everywhere.
func (s Scores) ConstantScores() (iou, dice float64) {
	if s.Classes != nil {
		return s.Classes.ConstantScores()
	}
	return s.Counts.ConstantScores()
}

// bceWithLogits returns the sum of max(z,0) − z·t + log(1+e^−|z|) over the logits z whose targets t
// are not data.Ignored, divided by the number of all logits, like plan.OpBCEWithLogits.
func bceWithLogits(z, t []float32) float64 {
	sum := 0.0
	for i := range z {
		if t[i] == data.Ignored {
			continue
		}
		v := float64(z[i])
		sum += max(v, 0) - v*float64(t[i]) + math.Log1p(math.Exp(-math.Abs(v)))
	}
	return sum / float64(len(z))
}

// pixelCrossEntropy returns the sum of log Σ e^z − z[c] over the pixels of a sample with the logits
// z [classes, pixels] and the classes c = t[i] that are not data.Ignored, divided by the number of
// all pixels.
func pixelCrossEntropy(z, t []float32) float64 {
	pixel := make([]float32, len(z)/len(t))
	sum := 0.0
	for i := range t {
		if t[i] == data.Ignored {
			continue
		}
		for k := range pixel {
			pixel[k] = z[k*len(t)+i]
		}
		sum += softmaxCrossEntropy(pixel, t[i:i+1])
	}
	return sum / float64(len(t))
}

// softmaxCrossEntropy returns log Σ e^z − z[c] for one sample or pixel with the class c = t[0].
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

func meanAbsoluteError(z, t []float32) float64 {
	sum := 0.0
	for i := range z {
		sum += math.Abs(float64(z[i]) - float64(t[i]))
	}
	return sum / float64(len(z))
}

func (s Scores) hasPixelCounts() bool { return s.Total() > 0 }

// fillEpochRow stores the scores in a row of epochs.csv. IoU and Dice are NaN unless the task is
// segmentation.
func (s Scores) fillEpochRow(row *runs.Epoch) {
	row.ValLoss, row.IoU, row.Dice = s.Loss, math.NaN(), math.NaN()
	if s.hasPixelCounts() {
		row.IoU, row.Dice = s.IoU(), s.Dice()
	}
	if s.Hits != nil {
		row.ValAccuracy = s.Hits.Accuracy()
	}
}

// classScores returns the scores by class index, or nil unless s.Classes is set.
func (s Scores) classScores(names []string) []runs.NamedScores {
	if s.Classes == nil {
		return nil
	}
	all := make([]runs.NamedScores, s.Classes.Classes)
	for k := range all {
		all[k] = runs.NamedScores{Name: names[k], Pixels: s.Classes.Pixels(k)}
		all[k].IoU, all[k].Dice = s.Classes.ClassScores(k)
	}
	return all
}

// newTest returns the final scores for run.json. checkpoint is the path of the network's
// checkpoint, and seconds the duration of the evaluation.
func (s Scores) newTest(untrained Scores, classes []string, checkpoint string, seconds float64) runs.Test {
	nan := math.NaN() // for scores that the task does not have
	t := runs.Test{
		Samples: s.Samples, Loss: s.Loss, Checkpoint: checkpoint, Seconds: seconds, Classes: s.classScores(classes),
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
		return fmt.Sprintf("val loss %.6f, %s %.4f, Dice %.4f", s.Loss, iouName(s.Classes != nil), s.IoU(), s.Dice())
	case s.Hits != nil:
		return fmt.Sprintf("val loss %.6f, val accuracy %.4f", s.Loss, s.Hits.Accuracy())
	}
	return fmt.Sprintf("val loss %.6f", s.Loss)
}

func (s Scores) formatUntrained() string {
	switch {
	case s.hasPixelCounts():
		constant, _ := s.ConstantScores()
		return fmt.Sprintf("untrained %s %.4f, constant %.4f", iouName(s.Classes != nil), s.IoU(), constant)
	case s.Hits != nil:
		return fmt.Sprintf("untrained accuracy %.4f, constant %.4f", s.Hits.Accuracy(), s.Hits.ConstantAccuracy())
	}
	return fmt.Sprintf("untrained loss %.6f", s.Loss)
}

// iouName returns the name of the IoU in messages: that of the foreground or, if classes is true,
// the mean over classes.
func iouName(classes bool) string {
	if classes {
		return "mean IoU"
	}
	return "IoU"
}

// SummarizeTest summarizes the final scores of a run in a few words.
func SummarizeTest(t runs.Test) string {
	switch model.Task(t.Task) {
	case model.Classification:
		return fmt.Sprintf("accuracy %.4f (constant %.4f, untrained %.4f), loss %.6f", t.Accuracy, t.AccuracyConstant, t.AccuracyUntrained, t.Loss)
	case model.Regression:
		return fmt.Sprintf("loss %.6f (untrained %.6f)", t.Loss, t.LossUntrained)
	}
	return fmt.Sprintf("%s %.4f (constant %.4f, untrained %.4f), Dice %.4f", iouName(t.Classes != nil), t.IoU, t.IoUConstant, t.IoUUntrained, t.Dice)
}

// classNames returns the names of the classes in s, or their indices if the data do not name the
// classes. It returns nil unless s.Classes is set.
func (t *Trainer) classNames(s Scores) []string {
	if s.Classes == nil {
		return nil
	}
	if names := t.samples.ClassNames; len(names) == s.Classes.Classes {
		return names
	}
	names := make([]string, s.Classes.Classes)
	for k := range names {
		names[k] = strconv.Itoa(k)
	}
	return names
}

func (t *Trainer) evaluatedDataPart() string {
	doc, err := t.cfg.jsonDocument()
	if err != nil {
		doc = nil // the caller that records the config reports it
	}
	return runs.Info{Config: doc}.EvaluatedPart()
}

// logClassScoreNote logs a note about what the scores s of several classes mean.
func (r *runFiles) logClassScoreNote(s Scores) error {
	if s.Classes == nil {
		return nil
	}
	names := r.t.classNames(s)
	if len(names) == 2 {
		if err := r.logNote(fmt.Sprintf("two classes and ignored pixels are learned with one logit per class (softmax), so IoU and Dice are the means over %s", english.JoinAnd(names))); err != nil {
			return err
		}
	}
	var absent []string
	for _, k := range s.Classes.Absent() {
		absent = append(absent, names[k])
	}
	if len(absent) == 0 {
		return nil
	}
	return r.logNote(fmt.Sprintf("no pixel of the %s masks belongs to %s: left out of the mean IoU and Dice", r.t.evaluatedDataPart(), english.JoinAnd(absent)))
}

// writeImageScores writes images.csv with the scores of the held-out images. s contains the scores
// of the last epoch. All ranks must call it.
func (t *Trainer) writeImageScores(ctx context.Context, r *runFiles, s Scores) error {
	if t.options.Dir == "" || s.pixels == 0 {
		return nil
	}
	images := t.namedImageScores()
	empty := Scores{pixels: s.pixels}
	if s.Classes != nil {
		empty.Classes = metric.NewConfusion(s.Classes.Classes)
	}
	var sums []float64
	for i := range images {
		if i < len(s.images) {
			sums = append(sums, s.images[i].toSlice()...)
		} else { // later ranks evaluate it
			sums = append(sums, empty.toSlice()...)
		}
	}
	if err := t.allReduce(ctx, sums); err != nil {
		return fmt.Errorf("add up the scores of images: %w", err)
	}
	if r.writer == nil {
		return nil
	}
	size := len(sums) / len(images)
	for i := range images {
		one := empty.withSums(sums[i*size : (i+1)*size])
		if images[i].Pixels = one.Total(); images[i].Pixels == 0 {
			images[i].IoU, images[i].Dice = math.NaN(), math.NaN()
		} else {
			images[i].IoU, images[i].Dice = one.meanIoUAndDice()
		}
	}
	return r.writer.WriteImages(images)
}

func (t *Trainer) namedImageScores() []runs.NamedScores {
	ds := t.samples.Test
	images := make([]runs.NamedScores, data.ImageOf(ds, ds.Len()-1)+1)
	if names := t.samples.TestImages; len(names) == len(images) {
		for i, name := range names {
			images[i].Name = name
		}
		return images
	}
	for i := ds.Len() - 1; i >= 0; i-- { // the first sample of an image counts
		images[data.ImageOf(ds, i)].Name = ds.SampleName(i)
	}
	return images
}
