package predict

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/data"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/model"
	"lockstep/pkg/model/onnx"
	"lockstep/pkg/model/pytorch"
	"lockstep/pkg/nn"
	"lockstep/pkg/train"
)

// Export formats.
const (
	formatPyTorch = "pytorch"
	formatONNX    = "onnx"
)

// ExportFormats returns the values of ExportOptions.To. The output for pytorch is a folder with the
// weights and a Python file, which contains the module and functions that read and predict images.
// The output for onnx is one file.
func ExportFormats() []string { return []string{formatPyTorch, formatONNX} }

// ExportOptions configures Export.
type ExportOptions struct {
	To       string // one of ExportFormats
	Averages bool   // the averaged parameters (ema.decay) instead of the trained ones
}

// Exported describes what Export has written.
type Exported struct {
	Files []string
	About []string // the network, the checkpoint, and its scores
}

// Export writes the network of a run to out, for use without Lockstep. It finds the run as Open
// does. It uses the checkpoint to which the scores in run.json belong, or else the newest one. It
// needs no data of the run. It returns an error if the format does not support a layer.
func Export(ctx context.Context, run, out string, o ExportOptions) (e Exported, err error) {
	e.Files = []string{out}
	switch o.To {
	case formatPyTorch:
		if info, err := os.Stat(out); err == nil && !info.IsDir() {
			return e, fmt.Errorf("export: %s is a file: choose a folder", out)
		}
		e.Files = pytorch.Files(out)
	case formatONNX:
	default:
		return e, fmt.Errorf("export: unknown format %q: use %s", o.To, english.JoinOr(ExportFormats()))
	}
	t, err := train.ReadTrained(ctx, run)
	if err != nil {
		return e, fmt.Errorf("export: %w", err)
	}
	for _, path := range e.Files {
		if err := wholefile.CheckOverwrite(path, t.Dir); err != nil {
			return e, err
		}
	}
	e.About, err = exportTrainedNetwork(ctx, t, out, o)
	if err != nil {
		err = fmt.Errorf("export %s: %w", t.Dir, err)
	}
	return e, err
}

func exportTrainedNetwork(ctx context.Context, t *train.Trained, out string, o ExportOptions) (about []string, err error) {
	net, err := t.Network(ctx)
	if err != nil {
		return nil, err
	}
	if o.To == formatPyTorch {
		if err := pytorch.Check(net); err != nil {
			return nil, err
		}
	}
	g, err := net.Graph(1, nn.Eval)
	if err != nil {
		return nil, err
	}
	tensors, err := t.Weights(g, o.Averages)
	if err != nil {
		return nil, err
	}
	about = describeTrainedNetwork(t, net, o.Averages)
	c := t.Config.Data
	d := pytorch.Description{
		About: about, ClassNames: maskClassNames(c), MaskValues: c.MaskLevels(),
		Channels: net.InputShape()[0], ToGray: c.ToGray, Range: c.Range, ReadsGray: c.Reading == data.ReadingGray, Resize: c.Resize,
	}
	outputs := g.Outputs()[0].Shape[1]
	switch net.Task() {
	case model.Segmentation:
		if c.Kind == data.KindStacks {
			break
		}
		network := newInferenceNetwork(t)
		if err := network.FindReceptiveField(d.Channels); err != nil {
			return nil, err
		}
		if d.Step = network.Field.Step; network.Bounded {
			d.Halo = network.Field.Halo()
		}
	case model.Classification:
		d.ClassNames = classNames(ctx, c, outputs)
	}
	if o.To == formatPyTorch {
		return about, pytorch.Write(out, net, tensors, d)
	}
	return about, onnx.Write(out, net, tensors, strings.Join(slices.Concat(about, describeImageAndLogits(net.Task(), d, outputs)), "\n"))
}

// describeImageAndLogits describes the image and the logits of a network, in lines. outputs is the
// number of logits per image or per pixel.
func describeImageAndLogits(task model.Task, d pytorch.Description, outputs int) []string {
	switch {
	case task == model.Classification:
		size := "any size"
		if d.Resize > 0 {
			size = fmt.Sprintf("scaled to %d×%d pixels", d.Resize, d.Resize)
		}
		return []string{"image       red, green and blue, 0 to 1; " + size, "logits      of the classes " + strings.Join(d.ClassNames, ", ")}
	case d.Halo > 0:
		colors, values := "gray values", "0 to 1"
		if d.Channels == 3 {
			colors = "red, green and blue"
		}
		if d.ToGray {
			colors = "gray values (of colors, 0.299 red + 0.587 green + 0.114 blue)"
		}
		if len(d.Range) == 2 {
			values = fmt.Sprintf("%g to %g of 16 bits scaled to 0 to 1 and rounded to multiples of 1/255; values outside become 0 or 1", d.Range[0], d.Range[1])
		}
		logits := fmt.Sprintf("of %s, which is where they exceed 0", d.ClassNames[1])
		if outputs > 1 {
			logits = "of the classes in this order; the class of a pixel has the largest logit"
		}
		var classes []string
		for i, name := range d.ClassNames {
			classes = append(classes, fmt.Sprintf("%s (%d)", name, d.MaskValues[i]))
		}
		return []string{
			fmt.Sprintf("image       %s, %s; height and width are multiples of %d", colors, values, d.Step),
			fmt.Sprintf("logits      %s; a window has the logits of the image %d pixels from its border", logits, d.Halo),
			"classes     (and their values in masks) " + strings.Join(classes, ", "),
		}
	}
	return nil
}

// describeTrainedNetwork describes a network, its checkpoint and its scores in lines.
func describeTrainedNetwork(t *train.Trained, net model.Network, averages bool) []string {
	dir := filepath.ToSlash(t.Dir)
	of := "trained parameters"
	if averages {
		of = "averaged parameters"
	}
	scores := "not in run.json"
	if t.Test != nil && !averages {
		scores = train.SummarizeTest(*t.Test) + ", as trained"
	}
	return []string{
		"network     " + net.Name(),
		"run         " + filepath.Base(filepath.Dir(dir)) + "/" + filepath.Base(dir),
		fmt.Sprintf("checkpoint  %s, after epoch %d; %s", filepath.ToSlash(t.Checkpoint), t.Epoch, of),
		"scores      " + scores,
	}
}
