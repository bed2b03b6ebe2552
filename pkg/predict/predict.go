package predict

import (
	"context"
	"errors"
	"fmt"
	"image"
	"runtime"
	"slices"
	"strconv"

	"github.com/dustin/go-humanize"

	"lockstep/pkg/data"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/train"
)

// DefaultMemoryBytes is the default of Predictor.MemoryBytes.
const DefaultMemoryBytes = 1 << 30

// Predictor applies the network of a run to images. It is not safe for concurrent use.
type Predictor struct {
	Run        string // the run folder
	Checkpoint string // relative to the run folder
	Epoch      int    // number of complete epochs in the checkpoint
	Note       string // message that the engine differs from the engine of the training; empty if it does not

	// Flips averages the logits over the image and its three mirror images (left to right, top to
	// bottom, both), which takes four times as long.
	Flips bool
	// MemoryBytes limits the memory of the network's values, in addition to the image and its
	// logits. An image that needs more is cut into windows. 0: DefaultMemoryBytes.
	MemoryBytes int64
	// Progress is called after each window of an image; nil: not.
	Progress func(done, total int)

	trained *train.Trained
	config  data.Config
	classes []string // names of the classes; nil until an image was classified
	exe     engine.Executable
	field   *plan.Field // of the network; nil: not yet known
	bounded bool        // the field is bounded
}

// Open loads the network of a run: the newest checkpoint of the run folder, which it finds as
// scaling.Read does, in the logs folder (unet2d-cells/ddp-n1-s1) or by a path. It needs no data of
// the run. The error wraps train.ErrNoCheckpoint if there is no checkpoint.
func Open(ctx context.Context, run string) (*Predictor, error) {
	t, err := train.OpenTrained(ctx, run, predictionOptions)
	if err != nil {
		return nil, fmt.Errorf("open predictor: %w", err)
	}
	p := &Predictor{Run: t.Dir, Checkpoint: t.Checkpoint, Epoch: t.Epoch, Note: t.Note, trained: t, config: t.Config.Data}
	if p.config.Task() == data.TaskRegression || p.config.Kind == data.KindStacks {
		return nil, errors.Join(fmt.Errorf("open predictor: run %s learned from volumes (data kind %s): use a run that learned from images", t.Dir, p.config.Kind), t.Close())
	}
	return p, nil
}

// classifies reports whether the network learned classification.
func (p *Predictor) classifies() bool { return p.config.Task() == data.TaskClassification }

// predictionOptions changes the options of training: to all cores, and to convolutions that give
// a pixel the same bits wherever its window begins. (Winograd's algorithm and TF32 round.)
func predictionOptions(o *engine.Options) {
	o.Threads = min(runtime.GOMAXPROCS(0), engine.MaxThreads)
	o.TF32 = false
	if o.Device == "cpu" {
		o.Convolution = "direct"
	}
}

// classNames returns the names of the classes by index, or their numbers if the data of the run are
// not available.
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
	var err error
	if p.exe != nil {
		err = p.exe.Close()
	}
	return errors.Join(err, p.trained.Close())
}

// File applies the network to the PNG, JPEG or TIFF file at path; see Image.
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
// of depth 3). The image is padded by reflection at the bottom and right to a multiple of the
// step. If the network needs more memory than MemoryBytes for the whole image, it is applied to
// overlapping windows, with the same logits to 1e-5 (on a CPU, the same bits).
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
	var err error
	if p.classifies() {
		if r.Logits, err = p.classify(ctx, values, shape); err == nil && p.classes == nil {
			p.classes = classNames(ctx, p.config, len(r.Logits))
		}
		r.classes = p.classes
	} else {
		r.Logits, err = p.segment(ctx, values, shape)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// classify returns the logits of the classes of an image of shape [C,H,W].
func (p *Predictor) classify(ctx context.Context, values []float32, shape []int) ([]float32, error) {
	program, _, err := p.trained.Program(1, shape, []int{1})
	if err == nil {
		err = p.load(program, shape)
	}
	if err != nil {
		return nil, err
	}
	logits := make([]float32, program.Tensors[program.Lookup(plan.Output, model.LogitsOutput)].Elements())
	size := [2]int{shape[1], shape[2]}
	return logits, p.averageFlips(values, size, func(v, sum []float32) error { return p.run(ctx, v, sum) }, logits, [2]int{1, 1})
}

// segment returns the logits of the pixels of an image of shape [C,H,W].
func (p *Predictor) segment(ctx context.Context, values []float32, shape []int) ([]float32, error) {
	channels, h, w := shape[0], shape[1], shape[2]
	if err := p.findField(channels); err != nil {
		return nil, err
	}
	field := *p.field
	if least := field.Step; h < least || w < least {
		return nil, fmt.Errorf("the image has %d×%d pixels (height×width), but the network needs at least %d in each dimension: use a larger image", h, w, least)
	}
	size := [2]int{padded(h, field.Step), padded(w, field.Step)}
	if !p.bounded {
		field.Reach = max(size[0], size[1]) // no window is smaller than the image
	}
	window, err := p.loadWindow(channels, size, field)
	if err != nil {
		return nil, err
	}
	rows, columns := spans(size[0], window[0], field.Halo()), spans(size[1], window[1], field.Halo())
	total, done := len(rows)*len(columns)*p.passes(), 0
	in, out := make([]float32, channels*window[0]*window[1]), make([]float32, window[0]*window[1])
	whole := func(v, logits []float32) error {
		for _, row := range rows {
			for _, column := range columns {
				start := [2]int{row.start, column.start}
				copyPart(in, window, [2]int{}, v, size, start, window)
				if err := p.run(ctx, in, out); err != nil {
					return err
				}
				keep := [2]int{row.keep, column.keep}
				from := [2]int{keep[0] - start[0], keep[1] - start[1]}
				copyPart(logits, size, keep, out, window, from, [2]int{row.end - row.keep, column.end - column.keep})
				if done++; p.Progress != nil {
					p.Progress(done, total)
				}
			}
		}
		return nil
	}
	all := make([]float32, size[0]*size[1])
	if err := p.averageFlips(padImage(values, channels, h, w, size[0], size[1]), size, whole, all, size); err != nil {
		return nil, err
	}
	if size == [2]int{h, w} {
		return all, nil
	}
	logits := make([]float32, h*w)
	copyPart(logits, [2]int{h, w}, [2]int{}, all, size, [2]int{}, [2]int{h, w})
	return logits, nil
}

// passes returns how often the network is applied to each pixel.
func (p *Predictor) passes() int {
	if p.Flips {
		return 4
	}
	return 1
}

// averageFlips calls apply, which computes logits, for the image v of the given size, and, if
// p.Flips is set, for its mirror images. It writes the mean of the logits, which have the size
// outSize, to logits.
func (p *Predictor) averageFlips(v []float32, size [2]int, apply func(v, logits []float32) error, logits []float32, outSize [2]int) error {
	if !p.Flips {
		return apply(v, logits)
	}
	v, once := slices.Clone(v), make([]float32, len(logits))
	n := float32(p.passes())
	for flip := range p.passes() {
		vertical, horizontal := flip&2 != 0, flip&1 != 0
		mirror(v, size, vertical, horizontal)
		if err := apply(v, once); err != nil {
			return err
		}
		mirror(v, size, vertical, horizontal)
		mirror(once, outSize, vertical, horizontal)
		for i, z := range once {
			logits[i] += z / n
		}
	}
	return nil
}

// mirror mirrors each plane of v, of the given size, in place.
func mirror(v []float32, size [2]int, vertical, horizontal bool) {
	h, w := size[0], size[1]
	for plane := range slices.Chunk(v, h*w) {
		if horizontal {
			for row := range slices.Chunk(plane, w) {
				slices.Reverse(row)
			}
		}
		if vertical {
			for y := range h / 2 {
				top, bottom := plane[y*w:][:w], plane[(h-1-y)*w:][:w]
				for x := range top {
					top[x], bottom[x] = bottom[x], top[x]
				}
			}
		}
	}
}

// maxProbe limits the size of the images that findField tries, in pixels.
const maxProbe = 1 << 12

// findField finds the receptive field of the network, for images of the given number of channels, unless
// it is known.
func (p *Predictor) findField(channels int) error {
	if p.field != nil {
		return nil
	}
	f, bounded, err := findField(p.trained, channels)
	if err == nil {
		p.field, p.bounded = &f, bounded
	}
	return err
}

// findField returns the receptive field of a network, from its plan for the smallest square image
// that the network divides evenly. If the field is not bounded, its Step is 1, because the network is
// applied to whole images, which are not padded.
func findField(t *train.Trained, channels int) (f plan.Field, bounded bool, err error) {
	built := false
	for side := 1; side <= maxProbe; side *= 2 {
		program, _, failed := t.Program(1, []int{channels, side, side}, []int{1, side, side})
		if failed != nil {
			err = failed
			continue
		}
		built = true
		if f, bounded = program.ReceptiveField(model.ImageInput, model.LogitsOutput); bounded {
			return f, true, nil
		}
	}
	if built {
		err = nil
	}
	return plan.Field{Step: 1}, false, err
}

// loadWindow loads the program for the largest window of an image that MemoryBytes allows.
func (p *Predictor) loadWindow(channels int, size [2]int, f plan.Field) (window [2]int, err error) {
	limit := p.MemoryBytes
	if limit == 0 {
		limit = DefaultMemoryBytes
	}
	program := func(w [2]int) (*plan.Program, model.Task, error) {
		return p.trained.Program(1, []int{channels, w[0], w[1]}, []int{1, w[0], w[1]})
	}
	window, err = chooseWindow(size, f, limit, func(w [2]int) (int64, error) {
		q, _, err := program(w)
		if err != nil {
			return 0, err
		}
		m := q.Memory()
		return int64(m.Activations + m.Inputs + m.Parameters + m.States), nil
	})
	if err != nil {
		return window, err
	}
	q, task, err := program(window)
	if err != nil {
		return window, err
	}
	if task != model.Segmentation {
		return window, fmt.Errorf("the network learned %s, want %s or %s", task, model.Segmentation, model.Classification)
	}
	return window, p.load(q, []int{channels, window[0], window[1]})
}

// load loads the program for images of the given shape, unless it is loaded.
func (p *Predictor) load(program *plan.Program, shape []int) (err error) {
	if p.exe != nil {
		loaded := p.exe.Program()
		if slices.Equal(loaded.Tensors[loaded.Lookup(plan.Input, model.ImageInput)].Shape[1:], shape) {
			return nil
		}
		exe := p.exe
		p.exe = nil // its memory is freed before more is allocated
		if err := exe.Close(); err != nil {
			return err
		}
	}
	p.exe, err = p.trained.Load(program)
	return err
}

// run applies the loaded program to the image in, and copies the logits to out.
func (p *Predictor) run(ctx context.Context, in, out []float32) error {
	if err := p.exe.SetInput(model.ImageInput, in); err != nil {
		return err
	}
	if _, err := p.exe.Step(ctx, nil, nil); err != nil {
		return err
	}
	return p.exe.Output(model.LogitsOutput, out)
}

// formatBytes formats a number of bytes as in "1.5 GiB".
func formatBytes(n int64) string { return humanize.IBytes(uint64(n)) }
