package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/inference"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/metric"
	"lockstep/pkg/nn"
	"lockstep/pkg/runs"
	"lockstep/pkg/train/internal/ranks"
)

// NewImageScores returns empty scores for the segmentation of complete images. planes is the number
// of logits per pixel.
func NewImageScores(planes int) Scores {
	s := Scores{pixels: 1} // each pixel has the same weight
	if planes > 1 {
		s.Classes = metric.NewConfusion(planes)
	}
	return s
}

// AddImage adds an image with the given logits [planes,H,W] and mask [H,W] to s. s must have been
// created by NewImageScores.
func (s *Scores) AddImage(logits, mask []float32) error {
	sum := s.Loss * s.sampleWeight()
	if err := s.countPixels(logits, mask); err != nil {
		return err
	}
	loss := bceWithLogits
	if s.Classes != nil {
		loss = pixelCrossEntropy
	}
	s.Loss = sum + loss(logits, mask)*float64(len(mask))
	s.averageLoss()
	s.Samples++
	return nil
}

// scoreTestImages scores the trained network on the complete images of the test part, and records
// the scores. It does nothing unless the data have a test part in addition to the validation part.
// All ranks must call it; each scores a share of the images.
func (t *Trainer) scoreTestImages(ctx context.Context, r *runFiles) error {
	ds := t.samples.Final
	if ds == nil {
		return nil
	}
	begin := time.Now()
	s := NewImageScores(t.outputPlanes())
	err := ranks.RunOnAllRanks(ctx, t.group, "score the test images", func(ctx context.Context) error {
		return t.addTestImageScores(ctx, ds, &s)
	})
	if err != nil {
		return err
	}
	sums := s.toSlice()
	if err := t.allReduce(ctx, sums); err != nil {
		return fmt.Errorf("add up the scores of the test images: %w", err)
	}
	s = s.withSums(sums)
	if err := s.checkPixelsCounted(); err != nil {
		return err
	}
	if err := r.log("test on %s: %s", english.FormatCount(s.Samples, "complete image"), strings.TrimPrefix(s.format(), "val ")); err != nil || r.writer == nil {
		return err
	}
	test := s.newTest(s, t.classNames(s), r.lastCheckpoint(), time.Since(begin).Seconds())
	test.IoUUntrained, test.DiceUntrained = math.NaN(), math.NaN() // the untrained network does not see the test images
	return r.writer.UpdateInfo(func(i *runs.Info) { i.Final = &test })
}

func (t *Trainer) outputPlanes() int {
	_, outputs, err := batchAndOutputSize(t.eval.Program())
	if err != nil {
		return 1 // the network has been evaluated before
	}
	return outputs / numElements(t.samples.Test.TargetShape())
}

func (t *Trainer) addTestImageScores(ctx context.Context, ds data.Dataset, s *Scores) (err error) {
	network := inference.Network{
		Program: func(image, target []int) (*plan.Program, error) {
			net, err := t.buildNetwork(image, target)
			if err != nil {
				return nil, err
			}
			return t.lowerNetwork(net, 1, nn.Eval)
		},
		Load: func(p *plan.Program) (engine.Executable, error) { return t.engine.Load(p, t.eval) },
	}
	defer func() { err = errors.Join(err, network.Close()) }()
	for i := t.group.Rank(); i < ds.Len(); i += t.group.Size() {
		image, mask, height, width, err := data.GetSized(ctx, ds, i)
		if err != nil {
			return err
		}
		logits, err := network.Segment(ctx, image, []int{ds.ImageShape()[0], height, width})
		if err == nil {
			err = s.AddImage(logits, mask)
		}
		if err != nil {
			return fmt.Errorf("score %s: %w", ds.SampleName(i), err)
		}
	}
	return nil
}
