package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Options configures an engine. Each field has a flag of the command and is recorded in
// run.json. The zero value is invalid; start from DefaultOptions. An option that a device
// does not support (see each field) has no effect there.
type Options struct {
	// Device is "cpu", "reference", "cuda" (the GPU of this worker's local rank)
	// or "cuda:1" (that GPU).
	Device string `yaml:"device" json:"device"`
	// Convolution selects the algorithm. On the CPU: "auto", "winograd" (wherever
	// possible) or "direct". On a GPU: "auto" (time cuDNN's first suggestions on the real
	// shapes) or "heuristic" (cuDNN's first suggestion, without timing).
	Convolution string `yaml:"convolution" json:"convolution"`
	// Precision is "fp32"; "fp64" only on the reference engine; "bf16" and "fp16" on a
	// GPU and, emulated, on the reference engine. The 16-bit types apply to activations
	// and to the weights used in multiplications. The optimizer's weights, gradients and
	// statistics stay in fp32.
	Precision string `yaml:"precision" json:"precision"`
	// Fuse fuses batch norm and ReLU into one kernel. On a GPU it also fuses bias and
	// ReLU, sums of gradients, and a convolution with a residual sum.
	Fuse bool `yaml:"fuse" json:"fuse"`
	// FuseNorm fuses batch norm and ReLU into the convolution that reads their result,
	// and the sums for the batch norm's gradient, if cuDNN supports it (fp16, images) and
	// it is faster. It needs Fuse (GPU).
	FuseNorm bool `yaml:"fuse_norm" json:"fuse_norm"`
	// ConcatInPlace stores the operands of a concatenation, and slices, as parts of one
	// buffer, without copies. Convolutions then read and write maps with gaps between
	// pixels (GPU).
	ConcatInPlace bool `yaml:"concat_in_place" json:"concat_in_place"`
	// FusedOptimizer updates all parameters in one kernel launch instead of one per
	// parameter (GPU).
	FusedOptimizer bool `yaml:"fused_optimizer" json:"fused_optimizer"`
	// Graph captures a step in a CUDA graph and replays it (GPU).
	Graph bool `yaml:"graph" json:"graph"`
	// TF32 lets fp32 convolutions round their inputs to 10 bits of mantissa, to use the
	// tensor cores (GPU). NVIDIA_TF32_OVERRIDE=0 in the environment takes precedence.
	TF32 bool `yaml:"tf32" json:"tf32"`
	// Overlap reduces each bucket of gradients during the backward pass.
	Overlap bool `yaml:"overlap" json:"overlap"`
	// Threads is the number of compute threads per worker (CPU).
	Threads int `yaml:"threads" json:"threads"`
}

// DefaultOptions returns options for the CPU engine with one thread and all
// optimizations.
func DefaultOptions() Options {
	return Options{
		Device: "cpu", Convolution: "auto", Precision: "fp32",
		Fuse: true, FuseNorm: true, ConcatInPlace: true, FusedOptimizer: true, Graph: true, TF32: true, Overlap: true, Threads: 1,
	}
}

// kind describes an engine: its name in Options.Device and its supported options.
type kind struct {
	name         string
	convolutions []string
	precisions   []string
}

// kinds returns all engines.
func kinds() []kind {
	return []kind{
		{"cpu", []string{"auto", "winograd", "direct"}, []string{"fp32"}},
		{"reference", []string{"auto", "winograd", "direct"}, []string{"fp32", "fp64", "bf16", "fp16"}},
		{"cuda", []string{"auto", "heuristic"}, []string{"fp32", "bf16", "fp16"}},
	}
}

// Validate returns an error for the first invalid option.
func (o Options) Validate() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("validate engine options: "+format, a...)
	}
	name, _, err := o.split()
	if err != nil {
		return bad("%w", err)
	}
	all := kinds()
	k := all[slices.IndexFunc(all, func(k kind) bool { return k.name == name })]
	switch {
	case !slices.Contains(k.convolutions, o.Convolution):
		return bad("unknown convolution %q on %s: use %s", o.Convolution, name, choices(k.convolutions))
	case !slices.Contains(k.precisions, o.Precision):
		return bad("precision %q is not supported on %s: use %s", o.Precision, name, precisions(o.Precision, k))
	case o.Threads < 1 || o.Threads > MaxThreads:
		return bad("threads is %d: use 1 to %d", o.Threads, MaxThreads)
	}
	return nil
}

// MaxThreads is the upper limit of the total number of threads of a machine's workers.
const MaxThreads = 1024

// CUDA reports whether the options select a GPU, and returns its index; −1 means the GPU
// of the worker's local rank.
func (o Options) CUDA() (device int, ok bool) {
	name, device, err := o.split()
	return device, err == nil && name == "cuda"
}

// split parses Device. device is −1 if Device has no number.
func (o Options) split() (name string, device int, err error) {
	name, number, numbered := strings.Cut(o.Device, ":")
	if !slices.ContainsFunc(kinds(), func(k kind) bool { return k.name == name }) {
		return "", 0, fmt.Errorf("unknown device %q: use cpu, reference, cuda, or cuda:1 for the second GPU", o.Device)
	}
	if !numbered {
		return name, -1, nil
	}
	device, err = strconv.Atoi(number)
	if err != nil || device < 0 || name != "cuda" {
		return "", 0, fmt.Errorf("invalid device %q: only cuda may have a number, from 0, as in cuda:1", o.Device)
	}
	return name, device, nil
}

// choices formats a list as "a", "a or b", "a, b or c".
func choices(list []string) string {
	if n := len(list); n > 1 {
		return strings.Join(list[:n-1], ", ") + " or " + list[n-1]
	}
	return list[0]
}

// precisions lists the precisions of k, and the engines that support the wanted one.
func precisions(wanted string, k kind) string {
	s := choices(k.precisions)
	var others []string
	for _, other := range kinds() {
		if other.name != k.name && slices.Contains(other.precisions, wanted) {
			others = append(others, other.name)
		}
	}
	if len(others) > 0 {
		s += fmt.Sprintf(" (%s only on %s)", wanted, choices(others))
	}
	return s
}
