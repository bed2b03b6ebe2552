package predict

import (
	"context"
	"errors"
	"fmt"
	"image"
	"runtime"
	"strconv"

	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/inference"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/train"
)

// DefaultMemoryBytes is the default of Predictor.MemoryBytes.
const DefaultMemoryBytes = inference.DefaultMemoryBytes

// Predictor applies the network of a run to images. It is not safe for concurrent use.
type Predictor struct {
	Run        string // the run folder
	Checkpoint string // relative to the run folder
	Epoch      int    // number of complete epochs in the checkpoint
	Note       string // message that the engine differs from the engine of the training; empty if it does not

	// Flips averages the logits over the image and its mirror images (left to right, top to bottom,
	// both), which takes four times as long.
	Flips bool
	// MemoryBytes limits the memory of the network's intermediate values, without the image and its
	// logits. An image that needs more is cut into windows. 0 means DefaultMemoryBytes.
	MemoryBytes int64
	// Progress, if not nil, is called after each window of an image.
	Progress func(done, total int)

	trained *train.Trained
	config  data.Config
	classes []string // names of the classes of images; nil until an image was classified
	network inference.Network
}

// Open loads the newest checkpoint of a run folder, a name in the logs folder
// (unet2d-cells/ddp-n1-s1) or a path, like scaling.Read. It needs no data of the run. The error
// wraps train.ErrNoCheckpoint if there is no checkpoint.
func Open(ctx context.Context, run string) (*Predictor, error) {
	t, err := train.OpenTrained(ctx, run, setPredictionEngineOptions)
	if err != nil {
		return nil, fmt.Errorf("open predictor: %w", err)
	}
	p := &Predictor{Run: t.Dir, Checkpoint: t.Checkpoint, Epoch: t.Epoch, Note: t.Note, trained: t, config: t.Config.Data, network: newInferenceNetwork(t)}
	if p.config.Task() == data.TaskRegression || p.config.Kind == data.KindStacks {
		return nil, errors.Join(fmt.Errorf("open predictor: run %s learned from volumes (data kind %s): use a run that learned from images", t.Dir, p.config.Kind), t.Close())
	}
	return p, nil
}

func newInferenceNetwork(t *train.Trained) inference.Network {
	return inference.Network{Load: t.Load, Program: func(image, target []int) (*plan.Program, error) {
		program, _, err := t.Program(1, image, target)
		return program, err
	}}
}

func (p *Predictor) isClassifier() bool { return p.config.Task() == data.TaskClassification }

// setPredictionEngineOptions changes the options of training for prediction. The engine uses all cores,
// and convolutions that compute the same bits for a pixel wherever its window begins. (Winograd's
// algorithm and TF32 do not.)
func setPredictionEngineOptions(o *engine.Options) {
	o.Threads = min(runtime.GOMAXPROCS(0), engine.MaxThreads)
	o.TF32 = false
	if o.Device == "cpu" {
		o.Convolution = "direct"
	}
}

// classNames returns the names of the classes by index. If the run's data are not available, the
// names are numbers.
func classNames(ctx context.Context, c data.Config, classes int) []string {
	outline, err := data.Outline(ctx, c)
	if err == nil && len(outline.ClassNames) == classes {
		return outline.ClassNames
	}
	var names []string
	for i := range classes {
		names = append(names, strconv.Itoa(i))
	}
	return names
}

// Close closes the engine.
func (p *Predictor) Close() error {
	return errors.Join(p.network.Close(), p.trained.Close())
}

// File applies the network to the PNG, JPEG or TIFF file at path, as Image does.
func (p *Predictor) File(ctx context.Context, path string) (*Prediction, error) {
	m, err := data.ReadPicture(ctx, path)
	if err == nil {
		var r *Prediction
		if r, err = p.Image(ctx, m); err == nil {
			r.Name = path
			return r, nil
		}
	}
	return nil, fmt.Errorf("predict %s: %w", path, err)
}

// Image applies the network to an image of any size from the network's step (8 pixels for a U-Net
// of depth 3). The image is padded by reflection at the bottom and right to a multiple of the step.
// If that needs more than MemoryBytes, the network is applied to overlapping windows, with the same
// logits to 1e-5 (on a CPU, the same bits).
func (p *Predictor) Image(ctx context.Context, m image.Image) (*Prediction, error) {
	values, shape, err := p.config.NetworkInput(ctx, m)
	if err != nil {
		return nil, err
	}
	return p.predict(ctx, values, shape)
}

// predict applies the network to an image of shape [C,H,W].
func (p *Predictor) predict(ctx context.Context, values []float32, shape []int) (*Prediction, error) {
	r := &Prediction{Height: shape[1], Width: shape[2], image: values, config: p.config}
	p.network.Flips, p.network.MemoryBytes, p.network.Progress = p.Flips, p.MemoryBytes, p.Progress
	var err error
	if p.isClassifier() {
		if r.Logits, err = p.network.Classify(ctx, values, shape); err == nil && p.classes == nil {
			p.classes = classNames(ctx, p.config, len(r.Logits))
		}
		r.classes = p.classes
	} else {
		r.Logits, err = p.network.Segment(ctx, values, shape)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}
