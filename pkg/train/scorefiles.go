package train

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"lockstep/pkg/data"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/metric"
	"lockstep/pkg/runs"
)

// classNames returns the names of the classes in s, or their indices if the data name none. It
// returns nil unless s.Classes is set.
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

func (t *Trainer) evaluatedPart() string {
	doc, err := t.cfg.jsonDocument()
	if err != nil {
		doc = nil // the caller that records the config reports it
	}
	return runs.Info{Config: doc}.EvaluatedPart()
}

// noteClasses notes what the scores s of several classes mean.
func (r *recorder) noteClasses(s Scores) error {
	if s.Classes == nil {
		return nil
	}
	names := r.t.classNames(s)
	if len(names) == 2 {
		if err := r.note(fmt.Sprintf("two classes and ignored pixels are learned with one logit per class (softmax), so IoU and Dice are the means over %s", english.List(names))); err != nil {
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
	return r.note(fmt.Sprintf("no pixel of the %s masks belongs to %s: left out of the mean IoU and Dice", r.t.evaluatedPart(), english.List(absent)))
}

// recordImages writes images.csv with the held-out images' scores in s, the last epoch's. All ranks
// must call it.
func (t *Trainer) recordImages(ctx context.Context, r *recorder, s Scores) error {
	if t.options.Dir == "" || s.pixels == 0 {
		return nil
	}
	images := t.imageNames()
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
			images[i].IoU, images[i].Dice = one.meanScores()
		}
	}
	return r.writer.WriteImages(images)
}

func (t *Trainer) imageNames() []runs.NamedScores {
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
