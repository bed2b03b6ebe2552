package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/bench"
	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/stack"
)

// ErrNoGPU is wrapped by the error of a benchmark if no GPU can be used. The error lists the places that
// were searched for libraries.
var ErrNoGPU = errors.New("no GPU can be used")

// Models returns the names of the networks that are measured on a GPU.
func Models() []string {
	var names []string
	for _, m := range benchmarkNetworks() {
		names = append(names, m.name)
	}
	return names
}

type benchmarkNetwork struct {
	name  string
	shape bench.Shape
	// eager and compiled are the required ratios of Lockstep's throughput to the throughput of
	// PyTorch in eager mode and with torch.compile.
	eager, compiled float64
	// half is the required ratio to compiled PyTorch in fp16, where cuDNN merges batch norms into
	// its convolutions. 0 means that compiled applies.
	half float64
}

// targetRatio returns the target ratio to PyTorch in mode, or 0 if there is none.
func (m benchmarkNetwork) targetRatio(mode, precision string) float64 {
	switch {
	case mode == "eager":
		return m.eager
	case mode != "max-autotune": // targets exist only for eager and max-autotune
		return 0
	case precision == "fp16" && m.half > 0:
		return m.half
	}
	return m.compiled
}

func benchmarkNetworks() []benchmarkNetwork {
	return []benchmarkNetwork{
		{"unet-512", bench.Shape{Base: 64, Depth: 4, Size: 512, Batch: 16}, 1.1, 1, 0},
		{"unet-128", bench.Shape{Base: 64, Depth: 4, Size: 128, Batch: 16}, 1.3, 1, 0},
		// The U-Net study's network on its images.
		{"unet-study", bench.Shape{Base: 8, Depth: 4, Size: 768, Width: 1024, Batch: 16, Biases: true}, 1.1, 1, 0},
		{"resnet50v2", bench.Shape{Network: "resnet50v2", Batch: 256}, 1.4, 1, 1.2},
		{"resnet152v2", bench.Shape{Network: "resnet152v2", Batch: 256}, 1.4, 1, 1.2},
		{"unet3d-sc21", bench.Shape{Network: "unet3d-sc21", Batch: 64}, 1.1, 1, 0},
	}
}

// Options configures MeasureLayers and MeasurePeers.
type Options struct {
	Model     string // one of Models()
	Precision string // "bf16", "fp16" or "fp32"; empty: "bf16"
	TF32      bool   // use TF32 in fp32
	Device    string // "cuda" or "cuda:1"; empty: "cuda"
	Repeats   int    // measurements; 0: 7
	Steps     int    // consecutive training steps in each measurement; 0: 20
	Trace     string // file for a trace of MeasureLayers; empty: no trace is written
	Kernels   bool   // for MeasureLayers: measure the kernels of captured steps by CUPTI
	Modes     []string
	Peer      comparison.PeerOptions
	Output    io.Writer // progress messages; nil: none

	shape *bench.Shape                                // set by tests in place of the model's shape
	open  func(engine.Options) (engine.Engine, error) // set by tests to use a simulated GPU
	// peerDevice is the device on which PyTorch runs; empty: the GPU.
	peerDevice string
}

// Modes returns the modes in which PyTorch runs: eager, and two modes of torch.compile.
func Modes() []string { return []string{"eager", "default", "max-autotune"} }

func (o Options) withDefaults() Options {
	o.Precision = cmp.Or(o.Precision, "bf16")
	o.Device = cmp.Or(o.Device, "cuda")
	o.Repeats = cmp.Or(o.Repeats, 7)
	o.Steps = cmp.Or(o.Steps, 20)
	if len(o.Modes) == 0 {
		o.Modes = Modes()
	}
	return o
}

// Validate returns an error for the first invalid option.
func (o Options) Validate() error {
	o = o.withDefaults()
	if o.Repeats < 1 || o.Steps < 1 {
		return fmt.Errorf("bench on a GPU: got %d repeats of %d steps, want at least 1 of each", o.Repeats, o.Steps)
	}
	for _, m := range o.Modes {
		if !slices.Contains(Modes(), m) {
			return fmt.Errorf("bench on a GPU: unknown mode %q of PyTorch: use %s", m, strings.Join(Modes(), ", "))
		}
	}
	if _, err := o.findNetwork(); err != nil {
		return err
	}
	e := o.engineOptions()
	if _, ok := e.CUDA(); !ok {
		return fmt.Errorf("bench on a GPU: invalid device %q: use cuda, or cuda:1 for the second GPU", o.Device)
	}
	return e.Validate()
}

func (o Options) findNetwork() (benchmarkNetwork, error) {
	for _, m := range benchmarkNetworks() {
		if m.name == o.Model {
			if o.shape != nil {
				return benchmarkNetwork{name: m.name, shape: *o.shape}, nil // without targets, which are for the model's own shape
			}
			return m, nil
		}
	}
	return benchmarkNetwork{}, fmt.Errorf("bench on a GPU: unknown model %q: use %s", o.Model, strings.Join(Models(), ", "))
}

func (o Options) engineOptions() engine.Options {
	e := engine.DefaultOptions()
	e.Device, e.Precision, e.TF32 = o.Device, o.Precision, o.TF32
	return e
}

// precisionName returns the precision's name in the arguments of PyTorch's script.
func (o Options) precisionName() string {
	if o.Precision == "fp32" && o.TF32 {
		return "tf32"
	}
	return o.Precision
}

// checkGPU returns an error that wraps ErrNoGPU if no GPU can be used.
func checkGPU() error {
	if _, err := stack.Open(clib.NewSearch(clib.Environment{})); err != nil {
		return fmt.Errorf("%w: %w", ErrNoGPU, err)
	}
	return nil
}

// MeasurePeers measures training steps (forward, backward and Adam) of Lockstep and of PyTorch in each mode,
// alternating, on data that are already on the GPU. A measurement covers o.Steps consecutive steps, with the
// GPU idle before and after; the results are medians over o.Repeats. Lockstep trains on one batch, which it
// converts to its layout in each step; PyTorch cycles through four. Both sides must have the same number of
// parameters and FLOPs.
//
// If a mode does not start, MeasurePeers returns an error and the other modes' records. The error wraps
// ErrPeerMissing if PyTorch or its GPU is missing, and ErrNoGPU if Lockstep has no GPU.
func MeasurePeers(ctx context.Context, o Options) ([]comparison.Record, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if o.open == nil {
		if err := checkGPU(); err != nil {
			return nil, fmt.Errorf("bench on a GPU: %w", err)
		}
	}
	m, err := o.findNetwork()
	if err != nil {
		return nil, err
	}
	torch, err := o.Peer.ScriptCommand(ctx, torchScript, "PyTorch", "torch")
	if err != nil {
		return nil, fmt.Errorf("bench on a GPU: %w", err)
	}
	b := peerBench{Options: o, model: m, record: comparison.Record{Machine: comparison.DescribeMachine(), Commit: comparison.FindCommit(ctx)}}
	defer b.close()
	if err := b.startSides(ctx, torch); err != nil {
		return nil, fmt.Errorf("bench on a GPU, %s: %w", m.name, comparison.ContextCause(ctx, err))
	}
	records, err := b.measureSides()
	if err = errors.Join(err, b.failed); err != nil {
		return records, fmt.Errorf("bench on a GPU, %s: %w", m.name, comparison.ContextCause(ctx, err))
	}
	return records, nil
}

const torchScript = "torch_gpu.py"

type peerBench struct {
	Options
	model  benchmarkNetwork
	record comparison.Record  // fields that all records share
	sides  []*comparison.Side // Lockstep's first
	modes  []string
	failed error // errors of the modes that did not start
}

func (b *peerBench) close() {
	for _, s := range b.sides {
		s.Close()
	}
}

// startSides starts PyTorch in each mode and then Lockstep, one after the other, so that each mode has the GPU to
// itself while it chooses its algorithms.
func (b *peerBench) startSides(ctx context.Context, torch []string) error {
	var peers []*comparison.Side
	for _, mode := range b.Modes {
		argv := append(append([]string{}, torch...), b.model.shape.GPUPeerFlags()...)
		argv = append(argv, "--mode", mode, "--precision", b.precisionName())
		if b.peerDevice != "" {
			argv = append(argv, "--device", b.peerDevice)
		}
		s, err := comparison.StartPeer(ctx, comparison.Program{Argv: argv, Workers: 1})
		if errors.Is(err, comparison.ErrPeerMissing) || ctx.Err() != nil {
			for _, p := range peers {
				p.Close()
			}
			return err
		}
		if err != nil {
			b.failed = errors.Join(b.failed, fmt.Errorf("start PyTorch in mode %s: %w", mode, err))
			comparison.Logf(b.Output, "PyTorch, %s: %v", mode, err)
			continue
		}
		comparison.Logf(b.Output, "%s: ready", s.About.Name)
		peers, b.modes = append(peers, s), append(b.modes, mode)
	}
	ours, err := b.startLockstep(ctx)
	b.sides = append([]*comparison.Side{ours}, peers...)
	if err != nil {
		return err
	}
	comparison.Logf(b.Output, "%s: ready", ours.About.Name)
	for _, p := range peers {
		if err := checkSameNetwork(ours.About, p.About); err != nil {
			return err
		}
	}
	return nil
}

func (b *peerBench) startLockstep(ctx context.Context) (*comparison.Side, error) {
	command, err := comparison.WorkerCommand(ctx)
	if err != nil {
		return nil, err
	}
	argv := append(command, "--task", bench.TaskTrain, "--device", b.Device, "--precision", b.Precision, "--tf32="+strconv.FormatBool(b.TF32))
	return comparison.Start(ctx, comparison.Program{Argv: append(argv, b.model.shape.WorkerFlags()...), Workers: 1})
}

// measureSides measures all programs in turn. Each repeat starts with a different program.
func (b *peerBench) measureSides() ([]comparison.Record, error) {
	request := fmt.Sprint(comparison.RequestSteps, " ", b.Steps)
	for _, s := range b.sides { // the first measurement compiles and captures, and is not counted
		if _, err := s.TimeRequest(request); err != nil {
			return nil, err
		}
	}
	seconds := make([][]float64, len(b.sides))
	for i := range b.Repeats {
		for j := range b.sides {
			k := (i + j) % len(b.sides)
			v, err := b.sides[k].TimeRequest(request)
			if err != nil {
				return nil, err
			}
			seconds[k] = append(seconds[k], v)
		}
	}
	images := float64(b.Steps * b.model.shape.Batch)
	var records []comparison.Record
	var first, err error
	for i, mode := range b.modes {
		peer := b.sides[i+1]
		r := b.record
		r.Name, r.Unit, r.Peer = fmt.Sprintf("training %s, %s", b.model.name, b.precisionName()), "images/s", peer.About.Name
		r.Target = b.model.targetRatio(mode, b.Precision)
		r = comparison.CompareRates(r, comparison.PerSecond(images, seconds[0]), comparison.PerSecond(images, seconds[i+1]))
		comparison.Logf(b.Output, "%s: %.2f ms per step, %s: %.2f ms per step", b.sides[0].About.Name, 1e3*comparison.Median(seconds[0])/float64(b.Steps), peer.About.Name, 1e3*comparison.Median(seconds[i+1])/float64(b.Steps))
		records = append(records, r)
		m := b.record
		m.Name = fmt.Sprintf("memory of %s, %s", b.model.name, b.precisionName())
		if m, err = comparison.CompareMemory(m, b.sides[0], peer); err != nil {
			first = errors.Join(first, err)
			continue
		}
		records = append(records, m)
	}
	return records, first
}

func checkSameNetwork(ours, peers comparison.Greeting) error {
	ours.Threads, peers.Threads = 1, 1
	return comparison.CheckSameWork(ours, peers, 1)
}
