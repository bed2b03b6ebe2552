package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Options switch an engine's optimisations; each has a flag of the command and
// stands in run.json. The zero value is refused; start from DefaultOptions.
// What a device does not have (see each field) makes no difference there.
type Options struct {
	// Device is "cpu", "reference", "cuda" (the GPU of this worker's local rank)
	// or "cuda:1" (that GPU).
	Device string `yaml:"device" json:"device"`
	// Convolution is the choice of algorithm. On the CPU "auto", "winograd"
	// (wherever it can be) or "direct"; on a GPU "auto" (the algorithms that
	// cuDNN suggests first are timed once on the real shapes) or "heuristic" (cuDNN's first
	// suggestion, untimed).
	Convolution string `yaml:"convolution" json:"convolution"`
	// Precision is "fp32"; "fp64" on the reference engine; "bf16" and "fp16" on
	// a GPU and, emulated, on the reference engine, for activations and the
	// weights that are multiplied by: the optimiser's weights, gradients and
	// statistics stay fp32.
	Precision string `yaml:"precision" json:"precision"`
	// Fuse makes one kernel of batch norm and ReLU, on a GPU also of a bias and
	// ReLU, of sums of gradients, and of a convolution and a residual sum.
	Fuse bool `yaml:"fuse" json:"fuse"`
	// FuseNorm lets convolutions apply the batch norm and ReLU in front of them as they
	// read, and sum up for its gradient, with Fuse: where cuDNN has that (fp16, images)
	// and it is faster (GPU).
	FuseNorm bool `yaml:"fuse_norm" json:"fuse_norm"`
	// ConcatInPlace lets the operands of a concatenation, and slices, be parts of one
	// memory, which no copy fills: convolutions then read and write maps with gaps between
	// their pixels (GPU).
	ConcatInPlace bool `yaml:"concat_in_place" json:"concat_in_place"`
	// FusedOptimizer updates all parameters in one launch, not each in its own (GPU).
	FusedOptimizer bool `yaml:"fused_optimizer" json:"fused_optimizer"`
	// Graph records a step once as a CUDA graph and launches that (GPU).
	Graph bool `yaml:"graph" json:"graph"`
	// TF32 lets fp32 convolutions round their inputs to 10 bits of mantissa, for
	// the tensor cores (GPU). NVIDIA_TF32_OVERRIDE=0 in the environment wins.
	TF32 bool `yaml:"tf32" json:"tf32"`
	// Overlap reduces a bucket of gradients while backward goes on.
	Overlap bool `yaml:"overlap" json:"overlap"`
	// Threads is the number of threads that compute, per worker (CPU).
	Threads int `yaml:"threads" json:"threads"`
}

// DefaultOptions is the CPU engine with everything on, one thread.
func DefaultOptions() Options {
	return Options{
		Device: "cpu", Convolution: "auto", Precision: "fp32",
		Fuse: true, FuseNorm: true, ConcatInPlace: true, FusedOptimizer: true, Graph: true, TF32: true, Overlap: true, Threads: 1,
	}
}

// kind is what an engine is called in Options.Device, and what it offers.
type kind struct {
	name         string
	convolutions []string
	precisions   []string
}

// kinds are the engines.
func kinds() []kind {
	return []kind{
		{"cpu", []string{"auto", "winograd", "direct"}, []string{"fp32"}},
		{"reference", []string{"auto", "winograd", "direct"}, []string{"fp32", "fp64", "bf16", "fp16"}},
		{"cuda", []string{"auto", "heuristic"}, []string{"fp32", "bf16", "fp16"}},
	}
}

// Validate reports the first option that cannot be.
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
		return bad("convolution %q is not known on %s: use %s", o.Convolution, name, choices(k.convolutions))
	case !slices.Contains(k.precisions, o.Precision):
		return bad("precision %q is not offered on %s: use %s", o.Precision, name, precisions(o.Precision, k))
	case o.Threads < 1 || o.Threads > MaxThreads:
		return bad("threads is %d: use 1 to %d", o.Threads, MaxThreads)
	}
	return nil
}

// MaxThreads bounds the threads of a machine's workers, whatever it allows.
const MaxThreads = 1024

// CUDA says whether the options ask for a GPU, and for which: −1 for the one of
// the worker's local rank.
func (o Options) CUDA() (device int, ok bool) {
	name, device, err := o.split()
	return device, err == nil && name == "cuda"
}

// split takes Device apart; device is −1 where it names none.
func (o Options) split() (name string, device int, err error) {
	name, number, numbered := strings.Cut(o.Device, ":")
	if !slices.ContainsFunc(kinds(), func(k kind) bool { return k.name == name }) {
		return "", 0, fmt.Errorf("device %q is not known: use cpu, reference, cuda, or cuda:1 for the second GPU", o.Device)
	}
	if !numbered {
		return name, -1, nil
	}
	device, err = strconv.Atoi(number)
	if err != nil || device < 0 || name != "cuda" {
		return "", 0, fmt.Errorf("device %q is not known: a number from 0 may stand behind cuda alone, as in cuda:1", o.Device)
	}
	return name, device, nil
}

// choices is "a", "a or b", "a, b or c".
func choices(list []string) string {
	if n := len(list); n > 1 {
		return strings.Join(list[:n-1], ", ") + " or " + list[n-1]
	}
	return list[0]
}

// precisions says what k offers, and which engines have the one asked for.
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
