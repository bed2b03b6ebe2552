package train

import (
	"context"
	"errors"
	"fmt"
	"image"
	"math"
	"path/filepath"
	"slices"

	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/runs"
	"lockstep/pkg/train/internal/checkpoint"
	"lockstep/pkg/weights"
)

// Trained is the network in the newest checkpoint of a run folder, usable for samples of any size.
// It is meant for other packages; in notebooks, use Predictor or package predict.
type Trained struct {
	Dir        string // the run folder
	Checkpoint string // relative to the run folder
	Epoch      int    // number of complete epochs in the checkpoint
	Note       string // message that the engine differs from the engine of the training; empty if it does not
	Config     Config
	Test       *runs.Test // the scores in run.json; nil if there are none
	file       checkpoint.Checkpoint
	engine     engine.Engine
}

// OpenTrained loads the newest checkpoint of the run folder dir. Like in scaling.Read, dir is a
// name in the logs folder (unet2d-cells/ddp-n1-s1) or a path. If change is not nil, it may change
// the engine options in the run's config. The error wraps ErrNoCheckpoint if there is no
// checkpoint.
func OpenTrained(ctx context.Context, dir string, change func(*engine.Options)) (*Trained, error) {
	t, trainedOn, err := readTrained(ctx, dir, false)
	if err != nil {
		return nil, err
	}
	options := t.Config.Engine
	if change != nil {
		change(&options)
	}
	if t.engine, t.Note, err = openMatchingEngine(options, trainedOn); err != nil {
		return nil, err
	}
	return t, nil
}

// ReadTrained loads the checkpoint that was evaluated for the scores in the run.json of the run
// folder dir. If this checkpoint is missing or there are no scores, it loads the newest one, and
// Test is nil. It opens no engine, so Load must not be called.
func ReadTrained(ctx context.Context, dir string) (*Trained, error) {
	t, _, err := readTrained(ctx, dir, true)
	return t, err
}

// readTrained loads the newest checkpoint of the run folder dir or, if scored is true, the
// checkpoint described at ReadTrained. trainedOn is the name of the engine that trained the run.
func readTrained(ctx context.Context, dir string, scored bool) (t *Trained, trainedOn string, err error) {
	if dir, err = runs.LocateLogs(dir); err != nil {
		return nil, "", err
	}
	run, err := runs.Read(dir)
	if err != nil {
		return nil, "", err
	}
	t = &Trained{Dir: dir, Test: run.Info.Test}
	if t.Config, err = ConfigOf(run.Info); err != nil {
		return nil, "", fmt.Errorf("open %s: %w", dir, err)
	}
	all, err := checkpoint.ListCheckedPaths(run, checkpointInterval(run.Info))
	if err != nil {
		return nil, "", fmt.Errorf("open %s: %w", dir, err)
	}
	if len(all) == 0 {
		return nil, "", fmt.Errorf("open %s: %w", dir, ErrNoCheckpoint)
	}
	t.Checkpoint = all[len(all)-1]
	switch {
	case !scored || t.Test == nil:
	case slices.Contains(all, t.Test.Checkpoint):
		t.Checkpoint = t.Test.Checkpoint
	default:
		t.Test = nil
	}
	if t.file, err = checkpoint.Read(ctx, filepath.Join(dir, t.Checkpoint)); err != nil {
		return nil, "", err
	}
	t.Epoch = t.file.Epochs
	return t, run.Info.Engine, nil
}

// Program returns the network's program for batches of the given size. image and target are the
// shapes of one sample.
func (t *Trained) Program(batch int, image, target []int) (*plan.Program, model.Task, error) {
	net, err := t.Config.Model.Network(image, target)
	if err != nil {
		return nil, "", err
	}
	if err := t.file.CheckNetwork(net.Name()); err != nil {
		return nil, "", err
	}
	g, err := net.Graph(batch, nn.Eval)
	if err != nil {
		return nil, "", err
	}
	program, err := plan.Lower(g, plan.Options{Fuse: t.Config.Engine.Fuse})
	return program, net.Task(), err
}

// Load loads a program of the network with the weights of the checkpoint.
func (t *Trained) Load(p *plan.Program) (engine.Executable, error) {
	exe, err := t.engine.Load(p, nil)
	if err != nil {
		return nil, err
	}
	if err := t.file.CopyTensorsTo(exe); err != nil {
		return nil, errors.Join(err, exe.Close())
	}
	return exe, nil
}

// Close closes the engine.
func (t *Trained) Close() error { return t.engine.Close() }

// Network returns the network. If the run's data can be read, it is built for samples of the size
// used in training; see Config.Network.
func (t *Trained) Network(ctx context.Context) (model.Network, error) {
	net, err := t.Config.Network(ctx)
	if err != nil {
		return nil, err
	}
	return net, t.file.CheckNetwork(net.Name())
}

// Weights returns the parameters and running statistics of g, a graph of the network, from the
// checkpoint. They are rounded to float32. If averages is true, the parameters are their moving
// averages.
func (t *Trained) Weights(g *nn.Graph, averages bool) ([]weights.Tensor, error) {
	if averages && !t.file.HasAverages {
		return nil, fmt.Errorf("checkpoint %s has no averaged parameters: use a run with ema.decay, or the trained parameters", t.file.Path)
	}
	var all []weights.Tensor
	add := func(prefix string, list []nn.Variable) error {
		for _, v := range list {
			values, ok := t.file.Tensors[prefix+v.Name]
			if !ok || len(values) != v.Elements() {
				return fmt.Errorf("checkpoint %s: tensor %s has %d values, but the network needs %d: was the network trained on images of another size?",
					t.file.Path, prefix+v.Name, len(values), v.Elements())
			}
			w := weights.Tensor{Name: v.Name, Shape: v.Shape, F32: make([]float32, len(values))}
			for i, x := range values {
				w.F32[i] = float32(x)
			}
			all = append(all, w)
		}
		return nil
	}
	prefix := ""
	if averages {
		prefix = averagePrefix
	}
	if err := add(prefix, g.Parameters()); err != nil {
		return nil, err
	}
	return all, add("", g.States())
}

// Predictor evaluates the newest checkpoint of a run folder on the run's data.
type Predictor struct {
	Checkpoint string // as in Trained
	Epoch      int
	Note       string
	trained    *Trained
	samples    Samples
	task       model.Task
	exe        engine.Executable
}

// OpenPredictor loads the newest checkpoint of the run folder dir like OpenTrained, and opens the
// run's data. dataPath is the path of the data; if it is "", the path in the run's config is used.
func OpenPredictor(ctx context.Context, dir, dataPath string) (p *Predictor, err error) {
	t, err := OpenTrained(ctx, dir, nil)
	if err != nil {
		return nil, fmt.Errorf("open predictor: %w", err)
	}
	p = &Predictor{Checkpoint: t.Checkpoint, Epoch: t.Epoch, Note: t.Note, trained: t}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
			p = nil
		}
	}()
	if dataPath != "" {
		setDataPath(&t.Config.Data, dataPath)
	}
	if p.samples, err = openSamplesSilently(ctx, t.Config.Data); err != nil {
		return p, err
	}
	program, task, err := t.Program(EvalBatchSize, p.samples.Test.ImageShape(), p.samples.Test.TargetShape())
	if err != nil {
		return p, err
	}
	p.task = task
	p.exe, err = t.Load(program)
	return p, err
}

// Score evaluates the network on the complete held-out set.
func (p *Predictor) Score(ctx context.Context) (Scores, error) {
	s, err := evaluateShard(ctx, p.exe, p.task, p.samples.Test, 1, 0)
	return s, errors.Join(err, s.checkPixelsCounted())
}

// TrainLen returns the number of training samples.
func (p *Predictor) TrainLen() int { return p.samples.Train.Len() }

// TestLen returns the number of held-out samples, which are tiles or whole images.
func (p *Predictor) TestLen() int { return p.samples.Test.Len() }

// Picture draws held-out sample i: side by side, the image, the mask, and the predicted probability
// or, if there are several classes, the predicted class. It includes the image's name and the
// position of the tile. It returns an error unless the task is segmentation.
func (p *Predictor) Picture(ctx context.Context, i int) (image.Image, error) {
	if p.task != model.Segmentation {
		return nil, fmt.Errorf("draw prediction %d: the task is %s, want segmentation", i, p.task)
	}
	ds := p.samples.Test
	img, mask, err := readSample(ds, i, EvalBatchSize)
	if err != nil {
		return nil, err
	}
	_, outputs, err := batchAndOutputSize(p.exe.Program())
	if err != nil {
		return nil, err
	}
	logits := make([]float32, EvalBatchSize*outputs)
	if err := runForward(ctx, p.exe, img, mask, logits); err != nil {
		return nil, err
	}
	shape := ds.ImageShape()
	pixels := shape[1] * shape[2]
	prediction := Panel{"predicted class", nil}
	if outputs == pixels {
		for k, z := range logits {
			logits[k] = float32(1 / (1 + math.Exp(-float64(z))))
		}
		prediction = newGrayPanel("predicted probability", logits, shape[1], shape[2])
	} else {
		prediction.Image = p.samples.newMask(argmaxClasses(logits[:outputs], pixels), shape)
	}
	return SideBySide(ds.SampleName(i), Panel{"image", newImage(img, shape)}, Panel{"mask", p.samples.newMask(mask[:pixels], shape)}, prediction)
}

func argmaxClasses(logits []float32, pixels int) []float32 {
	classes := make([]float32, pixels)
	for i := range classes {
		for k := i; k < len(logits); k += pixels {
			if logits[k] > logits[int(classes[i])*pixels+i] {
				classes[i] = float32(k / pixels)
			}
		}
	}
	return classes
}

// Close closes the engine.
func (p *Predictor) Close() error {
	var err error
	if p.exe != nil {
		err = p.exe.Close()
	}
	return errors.Join(err, p.trained.Close())
}

// maxNetworkSide is the largest width and height, in pixels, of the images that Config.Network
// tries.
const maxNetworkSide = 1 << 12

// Network returns the network of c for samples of the size in c's data. It reads only the outline
// of the data. If the data are pictures that cannot be read, it assumes the smallest square
// pictures that the network accepts, because the weights of most networks do not depend on the
// size.
func (c Config) Network(ctx context.Context) (model.Network, error) {
	c, err := c.ForData()
	if err != nil {
		return nil, err
	}
	outline, err := data.Outline(ctx, c.Data)
	if err == nil {
		var net model.Network
		if net, err = c.Model.Network(outline.Train.ImageShape(), outline.Train.TargetShape()); err == nil {
			return net, nil
		}
	}
	channels := max(1, c.Data.InputChannels)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case c.Model.Spec != nil:
		return c.Model.Spec.Network(nil, nil)
	case c.Data.Task() == data.TaskClassification:
		channels = 3
	case c.Data.Task() == data.TaskRegression || c.Data.Kind == data.KindStacks:
		return nil, err
	}
	for side := 1; side <= maxNetworkSide; side *= 2 {
		target := []int{1, side, side}
		if c.Data.Task() == data.TaskClassification {
			target = []int{1}
		}
		if net, last := c.Model.Network([]int{channels, side, side}, target); last == nil {
			return net, nil
		}
	}
	return nil, err
}
