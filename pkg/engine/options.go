package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/internal/english"
)

// Options configures an engine. Each field has a command-line flag and is recorded in run.json.
// The zero value is invalid; start from DefaultOptions. A field has no effect on devices that
// do not support it; see the comment of the field.
type Options struct {
	// Device is "cpu", "reference", "cuda" (the GPU with the index of this worker's local
	// rank) or, for example, "cuda:1" (the GPU with index 1).
	Device string `yaml:"device" json:"device"`
	// Convolution selects the algorithm. On the CPU: "auto", "winograd" (wherever possible)
	// or "direct". On a GPU: "auto" (measure the time of cuDNN's first suggestions for the
	// actual shapes) or "heuristic" (use cuDNN's first suggestion without measuring).
	Convolution string `yaml:"convolution" json:"convolution"`
	// Precision is "fp32", or "fp64" (reference engine only), or "bf16" or "fp16" (GPU; the
	// reference engine emulates them). The 16-bit types apply to activations and to the
	// weights used in multiplications. The optimizer's weights, the gradients of parameters
	// and the statistics remain in fp32. On a CPU with AVX512_BF16, "bf16" rounds the
	// operands of convolutions where that is faster, and stores activations in fp32; see
	// package cpu.
	Precision string `yaml:"precision" json:"precision"`
	// Fuse fuses batch norm and ReLU into one kernel. On a GPU it also fuses bias and
	// ReLU, sums of gradients, and a convolution with a residual sum.
	Fuse bool `yaml:"fuse" json:"fuse"`
	// FuseNorm fuses the sums for the gradient of a batch norm with ReLU into the data
	// gradient of the convolution after it. It takes effect only with Fuse, where cuDNN
	// supports it (fp16, images), and where it is measured to be faster (GPU).
	FuseNorm bool `yaml:"fuse_norm" json:"fuse_norm"`
	// ConcatInPlace stores the operands of a concatenation, and the results of slices, as
	// parts of one buffer instead of copying them. Convolutions then read and write feature
	// maps with gaps between pixels (GPU).
	ConcatInPlace bool `yaml:"concat_in_place" json:"concat_in_place"`
	// FusedOptimizer updates all parameters in one kernel launch instead of one each (GPU).
	FusedOptimizer bool `yaml:"fused_optimizer" json:"fused_optimizer"`
	// Graph captures a step in a CUDA graph and replays it (GPU).
	Graph bool `yaml:"graph" json:"graph"`
	// TF32 allows fp32 convolutions to round their inputs to a mantissa of 10 bits, so that
	// they run on tensor cores (GPU). NVIDIA_TF32_OVERRIDE=0 in the environment takes
	// precedence.
	TF32 bool `yaml:"tf32" json:"tf32"`
	// Overlap reduces each bucket of gradients while the backward pass is still running.
	Overlap bool `yaml:"overlap" json:"overlap"`
	// Threads is the number of compute threads per worker (CPU).
	Threads int `yaml:"threads" json:"threads"`
	// InstructionSet is one of AllInstructionSets (CPU). If it is "", the engine uses the one
	// in the environment variable LOCKSTEP_CPU, or the best one. Workers set it to an
	// instruction set that all of them support; it is not part of configs.
	InstructionSet string `yaml:"-" json:"-"`
}

// DefaultOptions returns options for the CPU engine with one thread and all
// optimizations.
func DefaultOptions() Options {
	return Options{
		Device: "cpu", Convolution: "auto", Precision: "fp32",
		Fuse: true, FuseNorm: true, ConcatInPlace: true, FusedOptimizer: true, Graph: true, TF32: true, Overlap: true, Threads: 1,
	}
}

// supportedOptions are the values of options that an engine supports.
type supportedOptions struct {
	device       string
	convolutions []string
	precisions   []string
}

// listSupportedOptions returns the supported options of every engine, even of engines that are
// not linked into this program.
func listSupportedOptions() []supportedOptions {
	return []supportedOptions{
		{"cpu", []string{"auto", "winograd", "direct"}, []string{"fp32", "bf16"}},
		{"reference", []string{"auto", "winograd", "direct"}, []string{"fp32", "fp64", "bf16", "fp16"}},
		{"cuda", []string{"auto", "heuristic"}, []string{"fp32", "bf16", "fp16"}},
	}
}

// Validate returns an error for the first invalid option.
func (o Options) Validate() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("validate engine options: "+format, a...)
	}
	name, _, err := o.parseDevice()
	if err != nil {
		return bad("%w", err)
	}
	all := listSupportedOptions()
	k := all[slices.IndexFunc(all, func(k supportedOptions) bool { return k.device == name })]
	switch {
	case !slices.Contains(k.convolutions, o.Convolution):
		return bad("unknown convolution %q on %s: use %s", o.Convolution, name, english.JoinOr(k.convolutions))
	case !slices.Contains(k.precisions, o.Precision):
		return bad("precision %q is not supported on %s: use %s", o.Precision, name, describePrecisions(o.Precision, k))
	case o.Threads < 1 || o.Threads > MaxThreads:
		return bad("threads is %d: use 1 to %d", o.Threads, MaxThreads)
	}
	return nil
}

// MaxThreads limits the total number of threads of all workers on a machine.
const MaxThreads = 1024

// CUDA reports whether Device is a GPU. device is the GPU's index, or −1 if the worker's local
// rank selects the GPU.
func (o Options) CUDA() (device int, ok bool) {
	name, device, err := o.parseDevice()
	return device, err == nil && name == "cuda"
}

// parseDevice splits Device into the engine's name and the number after the colon. device is −1
// if there is no number.
func (o Options) parseDevice() (name string, device int, err error) {
	name, number, numbered := strings.Cut(o.Device, ":")
	if !slices.ContainsFunc(listSupportedOptions(), func(k supportedOptions) bool { return k.device == name }) {
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

// describePrecisions lists the precisions that engine k supports, and then the other engines
// that support the precision wanted.
func describePrecisions(wanted string, k supportedOptions) string {
	s := english.JoinOr(k.precisions)
	var others []string
	for _, other := range listSupportedOptions() {
		if other.device != k.device && slices.Contains(other.precisions, wanted) {
			others = append(others, other.device)
		}
	}
	if len(others) > 0 {
		s += fmt.Sprintf(" (%s only on %s)", wanted, english.JoinOr(others))
	}
	return s
}
