package train

import (
	"context"
	"errors"
	"fmt"
	"image"
	"math"
	"path/filepath"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/runs"
)

// Predictor evaluates the network of the newest checkpoint in a run folder.
type Predictor struct {
	Checkpoint string // relative to the run folder
	Epoch      int    // number of complete epochs in the checkpoint
	Note       string // message that the engine differs from the engine of the training; empty if it does not
	samples    Samples
	task       model.Task
	engine     engine.Engine
	exe        engine.Executable
}

// OpenPredictor loads the newest checkpoint of the run folder dir, and opens the run's data
// in dataPath, or in the path of the run's config if dataPath is empty. It finds dir as scaling.Read does: in the
// logs folder (unet2d-cells/ddp-n1-s1), or by a path. The error wraps ErrNoCheckpoint if there is no checkpoint.
func OpenPredictor(ctx context.Context, dir, dataPath string) (p *Predictor, err error) {
	dir, err = runs.LocateLogs(dir)
	if err != nil {
		return nil, fmt.Errorf("open predictor: %w", err)
	}
	run, err := runs.Read(dir)
	if err != nil {
		return nil, err
	}
	cfg, err := ConfigOf(run.Info)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	if dataPath != "" {
		setDataPath(&cfg.Data, dataPath)
	}
	all, err := listRunCheckpoints(run)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("open %s: %w", dir, ErrNoCheckpoint)
	}
	p = &Predictor{Checkpoint: all[len(all)-1]}
	if p.samples, err = openData(ctx, cfg.Data); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
			p = nil
		}
	}()
	return p, p.load(ctx, cfg, run.Info.Engine, filepath.Join(dir, p.Checkpoint))
}

// load opens the engine and loads the checkpoint at path. trainedOn is the name of the
// engine that trained the run.
func (p *Predictor) load(ctx context.Context, cfg Config, trainedOn, path string) error {
	image, target := p.samples.Test.ImageShape(), p.samples.Test.TargetShape()
	net, err := cfg.Model.Network(image, target)
	if err != nil {
		return err
	}
	p.task = net.Task()
	file, err := readCheckpoint(ctx, path, net.Name())
	if err != nil {
		return err
	}
	p.Epoch = file.epoch
	if p.engine, p.Note, err = openMatchingEngine(cfg.Engine, trainedOn); err != nil {
		return err
	}
	g, err := net.Graph(EvalBatchSize, nn.Eval)
	if err != nil {
		return err
	}
	program, err := plan.Lower(g, plan.Options{Fuse: cfg.Engine.Fuse})
	if err != nil {
		return err
	}
	if p.exe, err = p.engine.Load(program, nil); err != nil {
		return err
	}
	return file.applyTo(p.exe)
}

// Score evaluates the network on the complete held-out set.
func (p *Predictor) Score(ctx context.Context) (Scores, error) {
	return evaluateShard(ctx, p.exe, p.task, p.samples.Test, 1, 0)
}

// TrainLen returns the number of training samples.
func (p *Predictor) TrainLen() int { return p.samples.Train.Len() }

// TestLen returns the number of held-out samples: tiles, or images if they are not cut into
// tiles.
func (p *Predictor) TestLen() int { return p.samples.Test.Len() }

// Picture draws the image, the mask and the predicted probability of held-out sample i side
// by side, with the name of the image and the place of the tile. It returns an error unless the task is
// segmentation.
func (p *Predictor) Picture(ctx context.Context, i int) (image.Image, error) {
	if p.task != model.Segmentation {
		return nil, fmt.Errorf("draw prediction %d: the task is %s, want segmentation", i, p.task)
	}
	ds := p.samples.Test
	img, mask, err := readSample(ds, i, EvalBatchSize)
	if err != nil {
		return nil, err
	}
	probability := make([]float32, len(mask))
	if err := runForward(ctx, p.exe, img, mask, probability); err != nil {
		return nil, err
	}
	for k, z := range probability {
		probability[k] = float32(1 / (1 + math.Exp(-float64(z))))
	}
	shape := ds.ImageShape()
	return drawSideBySide(ds.SampleName(i), shape[1], shape[2],
		labeledPlane{"image", img}, labeledPlane{"mask", mask}, labeledPlane{"predicted probability", probability})
}

// Close closes the engine.
func (p *Predictor) Close() error {
	var errs []error
	if p.exe != nil {
		errs = append(errs, p.exe.Close())
	}
	if p.engine != nil {
		errs = append(errs, p.engine.Close())
	}
	return errors.Join(errs...)
}
