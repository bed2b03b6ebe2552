package gpu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/bench"
	"lockstep/pkg/bench/internal/beside"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/stack"
)

// ErrMissing is wrapped by the error of a benchmark that needs a GPU where
// none can be used; the error says where its libraries were looked for.
var ErrMissing = errors.New("no GPU can be used")

// Models are the networks that are measured on a GPU.
func Models() []string {
	var names []string
	for _, m := range models() {
		names = append(names, m.name)
	}
	return names
}

// network is a network with what it must reach.
type network struct {
	name  string
	shape bench.Shape
	// The ratios that throughput must reach, against PyTorch as it is and compiled, and
	// the fraction of the roofline.
	eager, compiled, roofline float64
	// half is the ratio against PyTorch compiled in fp16, where cuDNN has batch norm in
	// its convolutions; 0: as compiled.
	half float64
}

// target is the ratio that must be reached against a mode of PyTorch; 0: none.
func (m network) target(mode, precision string) float64 {
	switch {
	case mode == "eager":
		return m.eager
	case mode != "max-autotune": // which is the one to reach
		return 0
	case precision == "fp16" && m.half > 0:
		return m.half
	}
	return m.compiled
}

func models() []network {
	return []network{
		{"unet-512", bench.Shape{Base: 64, Depth: 4, Size: 512, Batch: 16}, 1.1, 1, 0.6, 0},
		{"unet-128", bench.Shape{Base: 64, Depth: 4, Size: 128, Batch: 16}, 1.3, 1, 0.6, 0},
		// The U-Net study's network on its images.
		{"unet-study", bench.Shape{Base: 8, Depth: 4, Size: 768, Width: 1024, Batch: 16, Biases: true}, 1.1, 1, 0.6, 0},
		{"resnet50v2", bench.Shape{Network: "resnet50v2", Batch: 256}, 1.4, 1, 0.6, 1.2},
		{"resnet152v2", bench.Shape{Network: "resnet152v2", Batch: 256}, 1.4, 1, 0.6, 1.2},
		{"unet3d-sc21", bench.Shape{Network: "unet3d-sc21", Batch: 64}, 1.1, 1, 0.45, 0},
	}
}

// Options say what Runs and PeerRuns measure.
type Options struct {
	Model     string // of Models
	Precision string // "bf16", "fp16" or "fp32"; empty: "bf16"
	TF32      bool   // in fp32
	Device    string // "cuda" or "cuda:1"; empty: "cuda"
	Repeats   int    // measurements; 0: 7
	Steps     int    // of training in each, in a row; 0: 20
	Trace     string // file for a trace of Runs; empty: none is kept
	Kernels   bool   // of Runs: ask CUPTI for the kernels of recorded steps
	Modes     []string
	Peer      beside.PeerOptions
	Output    io.Writer // lines on how it goes; nil: none

	shape *bench.Shape                                // a test's, in place of the model's
	open  func(engine.Options) (engine.Engine, error) // a test's: an engine on a simulated GPU
	// peerDevice is where PyTorch runs; empty: the GPU.
	peerDevice string
}

// Modes are the ways in which PyTorch runs: as written, and through
// torch.compile in its two modes.
func Modes() []string { return []string{"eager", "default", "max-autotune"} }

func (o Options) withDefaults() Options {
	if o.Precision == "" {
		o.Precision = "bf16"
	}
	if o.Device == "" {
		o.Device = "cuda"
	}
	if o.Repeats == 0 {
		o.Repeats = 7
	}
	if o.Steps == 0 {
		o.Steps = 20
	}
	if len(o.Modes) == 0 {
		o.Modes = Modes()
	}
	return o
}

// Validate reports the first option that cannot be.
func (o Options) Validate() error {
	o = o.withDefaults()
	if o.Repeats < 1 || o.Steps < 1 {
		return fmt.Errorf("bench on a GPU: %d repeats of %d steps: use at least 1 of each", o.Repeats, o.Steps)
	}
	for _, m := range o.Modes {
		if !slices.Contains(Modes(), m) {
			return fmt.Errorf("bench on a GPU: mode %q of PyTorch is not known: use %s", m, strings.Join(Modes(), ", "))
		}
	}
	if _, err := o.model(); err != nil {
		return err
	}
	e := o.engine()
	if _, ok := e.CUDA(); !ok {
		return fmt.Errorf("bench on a GPU: device %q is none: use cuda, or cuda:1 for the second GPU", o.Device)
	}
	return e.Validate()
}

func (o Options) model() (network, error) {
	for _, m := range models() {
		if m.name == o.Model {
			if o.shape != nil {
				return network{name: m.name, shape: *o.shape}, nil // whose targets do not hold
			}
			return m, nil
		}
	}
	return network{}, fmt.Errorf("bench on a GPU: model %q is not known: use %s", o.Model, strings.Join(Models(), ", "))
}

// engine are the engine's options.
func (o Options) engine() engine.Options {
	e := engine.DefaultOptions()
	e.Device, e.Precision, e.TF32 = o.Device, o.Precision, o.TF32
	return e
}

// precisionName is what PyTorch's side calls the precision.
func (o Options) precisionName() string {
	if o.Precision == "fp32" && o.TF32 {
		return "tf32"
	}
	return o.Precision
}

// ready is an error that wraps ErrMissing where no GPU can be used.
func ready() error {
	if _, err := stack.Open(clib.NewSearch(clib.Environment{})); err != nil {
		return fmt.Errorf("%w: %w", ErrMissing, err)
	}
	return nil
}

// PeerRuns measures training steps of ours and of PyTorch, in each of its
// modes, in turns: forward, backward and Adam on data that lie on the GPU
// already. A side does Steps in a row, the GPU idle before and after, and the
// medians of Repeats such rows count. Our side trains on one batch, which it
// brings into its layout anew in each step; PyTorch takes four in turns. Both
// must have the same parameters and FLOPs. A mode that does not start is an
// error, beside the records of the others; an error wraps ErrPeerMissing where
// PyTorch, or its GPU, is not on this machine, ErrMissing where ours is not.
func PeerRuns(ctx context.Context, o Options) ([]beside.Record, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if o.open == nil {
		if err := ready(); err != nil {
			return nil, fmt.Errorf("bench on a GPU: %w", err)
		}
	}
	m, err := o.model()
	if err != nil {
		return nil, err
	}
	torch, err := o.Peer.Torch(ctx, torchScript)
	if err != nil {
		return nil, fmt.Errorf("bench on a GPU: %w", err)
	}
	b := peers{Options: o, model: m, record: beside.Record{Machine: beside.Machine(), Commit: beside.Commit(ctx)}}
	defer b.close()
	if err := b.start(ctx, torch); err != nil {
		return nil, fmt.Errorf("bench on a GPU, %s: %w", m.name, beside.Stopped(ctx, err))
	}
	records, err := b.measure()
	if err = errors.Join(err, b.failed); err != nil {
		return records, fmt.Errorf("bench on a GPU, %s: %w", m.name, beside.Stopped(ctx, err))
	}
	return records, nil
}

// gpuScript is PyTorch's side on a GPU.
const torchScript = "torch_gpu.py"

// peers are both sides.
type peers struct {
	Options
	model  network
	record beside.Record  // what all have in common
	sides  []*beside.Side // ours first
	modes  []string
	failed error // of modes that did not start
}

func (b *peers) close() {
	for _, s := range b.sides {
		s.Close()
	}
}

// start starts all sides. PyTorch's modes choose their algorithms one after
// another, with the GPU for themselves; ours has been closed by then, and comes
// last.
func (b *peers) start(ctx context.Context, torch []string) error {
	var peers []*beside.Side
	for _, mode := range b.Modes {
		argv := append(append([]string{}, torch...), b.model.shape.GPUArguments()...)
		argv = append(argv, "--mode", mode, "--precision", b.precisionName())
		if b.peerDevice != "" {
			argv = append(argv, "--device", b.peerDevice)
		}
		s, err := beside.StartPeer(ctx, beside.Program{Argv: argv, Workers: 1})
		if errors.Is(err, beside.ErrPeerMissing) || ctx.Err() != nil {
			for _, p := range peers {
				p.Close()
			}
			return err
		}
		if err != nil {
			b.failed = errors.Join(b.failed, fmt.Errorf("start PyTorch, %s: %w", mode, err))
			beside.Say(b.Output, "PyTorch, %s: %v", mode, err)
			continue
		}
		beside.Say(b.Output, "%s: ready", s.About.Name)
		peers, b.modes = append(peers, s), append(b.modes, mode)
	}
	ours, err := b.startOurs(ctx)
	b.sides = append([]*beside.Side{ours}, peers...)
	if err != nil {
		return err
	}
	beside.Say(b.Output, "%s: ready", ours.About.Name)
	for _, p := range peers {
		if err := sameNetwork(ours.About, p.About); err != nil {
			return err
		}
	}
	return nil
}

func (b *peers) startOurs(ctx context.Context) (*beside.Side, error) {
	command, err := beside.OwnCommand(ctx)
	if err != nil {
		return nil, err
	}
	argv := append(command, "--task", bench.TaskTrain, "--device", b.Device, "--precision", b.Precision, "--tf32="+strconv.FormatBool(b.TF32))
	return beside.Start(ctx, beside.Program{Argv: append(argv, b.model.shape.OwnArguments()...), Workers: 1})
}

// measure asks all sides in turns, another one first each time.
func (b *peers) measure() ([]beside.Record, error) {
	request := fmt.Sprint(beside.RequestSteps, " ", b.Steps)
	for _, s := range b.sides { // what the first row compiles and records does not count
		if _, err := s.Seconds(request); err != nil {
			return nil, err
		}
	}
	seconds := make([][]float64, len(b.sides))
	for i := range b.Repeats {
		for j := range b.sides {
			k := (i + j) % len(b.sides)
			v, err := b.sides[k].Seconds(request)
			if err != nil {
				return nil, err
			}
			seconds[k] = append(seconds[k], v)
		}
	}
	images := float64(b.Steps * b.model.shape.Batch)
	var records []beside.Record
	var first error
	for i, mode := range b.modes {
		peer := b.sides[i+1]
		r := b.record
		r.Name, r.Unit, r.Peer = fmt.Sprintf("training %s, %s", b.model.name, b.precisionName()), "images/s", peer.About.Name
		r.Target = b.model.target(mode, b.Precision)
		r = beside.Compared(r, beside.PerSecond(images, seconds[0]), beside.PerSecond(images, seconds[i+1]))
		beside.Say(b.Output, "%s: %.2f ms a step, %s: %.2f ms", b.sides[0].About.Name, 1e3*beside.Median(seconds[0])/float64(b.Steps), peer.About.Name, 1e3*beside.Median(seconds[i+1])/float64(b.Steps))
		records = append(records, r)
		m, err := b.memory(peer)
		if err != nil {
			first = errors.Join(first, err)
			continue
		}
		records = append(records, m)
	}
	return records, first
}

func (b *peers) memory(peer *beside.Side) (beside.Record, error) {
	r := b.record
	r.Name, r.Unit, r.Peer = fmt.Sprintf("memory of %s, %s", b.model.name, b.precisionName()), "MiB", peer.About.Name
	a, err := b.sides[0].PeakBytes()
	if err != nil {
		return r, err
	}
	p, err := peer.PeakBytes()
	if err != nil {
		return r, err
	}
	return beside.ComparedCost(r, []float64{a / (1 << 20)}, []float64{p / (1 << 20)}), nil
}

// sameNetwork is an error unless both sides train the same network.
func sameNetwork(ours, peers beside.Greeting) error {
	ours.Threads, peers.Threads = 1, 1
	return beside.SameWork(ours, peers, 1)
}
