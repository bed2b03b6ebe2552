package predict

import (
	"context"
	"errors"
	"fmt"

	"lockstep/pkg/data"
	"lockstep/pkg/train"
)

// ClassNames returns the names of the network's logits at a pixel. It returns nil if there is only
// one logit, and for classification.
func (p *Predictor) ClassNames() []string {
	if p.config.NetworkClasses() == 0 {
		return nil
	}
	return p.config.MaskClasses()
}

func (p *Predictor) newImageScores() train.Scores { return train.NewImageScores(len(p.ClassNames())) }

// addLabelScores compares r with the mask in the file label, and adds the scores to s.
func addLabelScores(ctx context.Context, s *train.Scores, r *Prediction, label string) error {
	mask, height, width, err := r.config.ReadMask(ctx, label)
	if err != nil {
		return fmt.Errorf("read %s: %w", label, err)
	}
	if height != r.Height || width != r.Width {
		return fmt.Errorf("label %s is %d×%d, but the image is %d×%d (height×width): make them equal", label, height, width, r.Height, r.Width)
	}
	return s.AddImage(r.Logits, mask)
}

// HeldOutScores contains the scores of a run's held-out images.
type HeldOutScores struct {
	AsTrained train.Scores // of the tiles that training cuts, without overlap, as in run.json
	Tile      int          // edge of the tiles in pixels; 0: training does not cut the images
	Whole     train.Scores // of complete images
}

// HeldOut scores the network on the held-out images of the run's data, as in training and on whole
// images. The run must have learned segmentation.
func (p *Predictor) HeldOut(ctx context.Context) (s HeldOutScores, err error) {
	if p.isClassifier() {
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
	s.Tile, s.Whole = p.config.Tile, p.newImageScores()
	opened, err := data.Open(ctx, p.config)
	if err != nil {
		return s, err
	}
	images := data.Images(opened.Test)
	for i := range images.Len() {
		img, mask, height, width, err := data.GetSized(ctx, images, i)
		if err != nil {
			return s, err
		}
		r, err := p.predict(ctx, img, []int{images.ImageShape()[0], height, width})
		if err == nil {
			err = s.Whole.AddImage(r.Logits, mask)
		}
		if err != nil {
			return s, fmt.Errorf("predict %s: %w", images.SampleName(i), err)
		}
	}
	return s, nil
}
