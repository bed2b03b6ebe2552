package predict

import (
	"context"
	"errors"
	"fmt"

	"lockstep/pkg/data"
	"lockstep/pkg/train"
)

// add compares r with the mask in the file label.
func (s *FileScores) add(ctx context.Context, r *Prediction, label string) error {
	mask, height, width, err := r.config.ReadMask(ctx, label)
	if err != nil {
		return fmt.Errorf("read %s: %w", label, err)
	}
	if height != r.Height || width != r.Width {
		return fmt.Errorf("label %s is %d×%d, but the image is %d×%d (height×width): make them equal", label, height, width, r.Height, r.Width)
	}
	s.AddLogits(r.Logits, mask)
	s.Images++
	return nil
}

// HeldOutScores are the scores of the held-out images of a run.
type HeldOutScores struct {
	AsTrained train.Scores // of the tiles that training cuts, without overlap, as in run.json
	Tile      int          // edge of the tiles in pixels; 0: training does not cut the images
	Whole     FileScores   // of whole images
}

// HeldOut scores the network on the held-out images of the run's data, as in training and on whole
// images. The run must have learned segmentation.
func (p *Predictor) HeldOut(ctx context.Context) (s HeldOutScores, err error) {
	if p.classifies() {
		return s, errors.New("score held-out images: the network learned classification, whose scores run.json has: want segmentation")
	}
	trained, err := train.OpenPredictor(ctx, p.Run, "")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, trained.Close()) }()
	if s.AsTrained, err = trained.Score(ctx); err != nil {
		return s, err
	}
	c := p.config
	s.Tile, c.Tile = c.Tile, 0
	opened, err := data.Open(ctx, c)
	if err != nil {
		return s, err
	}
	img, mask := data.NewBuffers(opened.Test)
	for i := range opened.Test.Len() {
		if err := opened.Test.Get(i, img, mask); err != nil {
			return s, err
		}
		r, err := p.predict(ctx, img, opened.Test.ImageShape())
		if err != nil {
			return s, fmt.Errorf("predict %s: %w", opened.Test.SampleName(i), err)
		}
		s.Whole.AddLogits(r.Logits, mask)
		s.Whole.Images++
	}
	return s, nil
}
