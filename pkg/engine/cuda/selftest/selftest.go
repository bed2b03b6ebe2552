// Package selftest compares everything that the GPU engine computes with loops in float64
// and with engine/reference: each kernel, each plan that cuDNN offers, and whole steps of
// small networks.
//
//	checks, err := selftest.Run(ctx, selftest.Options{Precisions: []string{"bf16"}})
//	fmt.Println(selftest.Failed(checks), "of", len(checks), "checks failed")
package selftest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda"
	"lockstep/pkg/engine/cuda/autotune"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/engine/reference"
	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/stack"
	"lockstep/pkg/internal/device"
)

// Check is one line of a self-test: the comparison of a result of the GPU with the expected
// result.
type Check struct {
	Name  string `json:"name"`  // "batch_norm training", "conv backward data, every plan"
	Type  string `json:"type"`  // "fp32", "tf32", "bf16" or "fp16"
	Shape string `json:"shape"` // of the operands
	// Error is the greatest difference of an element, relative to the greatest expected
	// element (unless Name says otherwise). Bound is the greatest Error that passes.
	Error   float64  `json:"error"`
	Bound   float64  `json:"bound"`
	OK      bool     `json:"ok"`
	Kernels []string `json:"kernels,omitempty"` // our own kernels that the check ran
	Detail  string   `json:"detail,omitempty"`
}

// Options select the checks of a self-test.
type Options struct {
	Device     string   // "cuda" or "cuda:1"; empty: "cuda"
	Precisions []string // a subset of Precisions(); nil: all of them
	Seed       uint64   // of the random data
	Large      bool     // also use shapes of real networks, where sums take many blocks
	// Only selects the checks whose names contain it; empty: all checks. If it is not
	// empty, the check that every kernel ran is left out.
	Only   string
	Report func(Check)
}

// Precisions returns the precisions that a self-test covers. tf32 is fp32 whose
// convolutions may round their inputs.
func Precisions() []string { return []string{"fp32", "tf32", "bf16", "fp16"} }

// Validate returns an error for the first invalid option.
func (o Options) Validate() error {
	for _, p := range o.Precisions {
		if !slices.Contains(Precisions(), p) {
			return fmt.Errorf("validate self-test: precision %q is not known: use %s", p, strings.Join(Precisions(), ", "))
		}
	}
	return nil
}

// Run runs every kernel, every plan that cuDNN offers for a set of convolutions, and
// complete training steps of U-Nets, with and without graphs. The data are random and the
// memory is filled with NaN first. The results are compared with engine/reference or with
// loops in float64. A kernel that no check ran is a failed check. The error reports what
// prevented the self-test from running; failures are in the checks.
func Run(ctx context.Context, o Options) ([]Check, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	libraries, err := stack.Open(clib.NewSearch(clib.Environment{}))
	if err != nil {
		return nil, fmt.Errorf("self-test: %w", err)
	}
	return RunWithLibraries(ctx, libraries, o)
}

// RunWithLibraries is like Run with libraries that are open already, such as those of a
// simulated machine.
func RunWithLibraries(ctx context.Context, s *stack.Stack, o Options) ([]Check, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Device == "" {
		o.Device = "cuda"
	}
	if o.Precisions == nil {
		o.Precisions = Precisions()
	}
	truth := engine.DefaultOptions()
	truth.Device, truth.Precision = "reference", "fp64"
	reference, err := reference.New(truth)
	if err != nil {
		return nil, err
	}
	var all []Check
	for _, p := range o.Precisions {
		t := &tester{ctx: ctx, options: o, precision: p, truth: reference, stack: s, kernels: map[string]bool{}}
		err := t.runAll()
		all = append(all, t.checks...)
		if err != nil {
			return all, fmt.Errorf("self-test, %s: %w", p, err)
		}
	}
	return all, nil
}

// Failed returns the number of failed checks.
func Failed(checks []Check) (n int) {
	for _, c := range checks {
		if !c.OK {
			n++
		}
	}
	return n
}

// tester runs the checks of one precision.
type tester struct {
	ctx       context.Context
	options   Options
	precision string
	low       device.Type
	truth     engine.Engine
	stack     *stack.Stack
	engine    *cuda.Engine
	random    *rand.Rand
	kernels   map[string]bool // names of the kernels that a check ran
	checks    []Check
}

// start starts an engine for the precision. It uses cuDNN's first suggestion for each
// convolution: tuning would be slow, and each plan is checked separately anyway.
func (t *tester) start(change func(*engine.Options)) (*cuda.Engine, error) {
	o := engine.DefaultOptions()
	o.Device, o.Precision, o.Convolution, o.TF32 = t.options.Device, t.precision, "heuristic", t.precision == "tf32"
	if t.precision == "tf32" {
		o.Precision = "fp32"
	}
	if change != nil {
		change(&o)
	}
	t.low = number.Low(o.Precision)
	return cuda.NewWithLibraries(t.stack, func(name string) string {
		switch name {
		case autotune.CacheVariable:
			return "off"
		case "NVIDIA_TF32_OVERRIDE":
			return "" // the check itself decides about TF32
		}
		return os.Getenv(name)
	}, o, 0)
}

func (t *tester) runAll() (err error) {
	if t.engine, err = t.start(nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.engine.Close()) }()
	t.random = rand.New(rand.NewPCG(t.options.Seed, uint64(slices.Index(Precisions(), t.precision))))
	for _, f := range []func() error{t.operations, t.fusions, t.residuals, t.statistics, t.normGraphs, t.direct, t.networks, t.exchange, t.synchronizedNorms} {
		if err := f(); err != nil {
			return err
		}
	}
	if t.options.Only == "" {
		t.complete()
	}
	return nil
}

// wanted reports whether the check with this name is selected.
func (t *tester) wanted(name string) bool { return strings.Contains(name, t.options.Only) }

// complete adds a failed check for each kernel that no check ran.
func (t *tester) complete() {
	types := []kernels.Type{kernels.F32}
	if t.low != device.F32 {
		types = append(types, number.KernelType(t.low))
	}
	for _, k := range kernels.List(types...) {
		// The other precision's checks run the kernel that measures its tensor cores.
		if !t.kernels[k.Name] && !strings.HasPrefix(k.Name, "mma_ceiling") && !t.forOtherPrecision(k.Name) {
			t.add(Check{Name: k.Name, Error: math.MaxFloat64, Detail: "no check ran this kernel"})
		}
	}
}

// forOtherPrecision reports whether the checks of another precision run a kernel: in 16 bits the
// fp32 kernels, and in all precisions but fp16 the kernels for batch norms in cuDNN's
// graphs, which only fp16 uses.
func (t *tester) forOtherPrecision(name string) bool {
	if name == "bn_sums" || strings.HasPrefix(name, "bn_scale_shift_") {
		return t.low != device.F16 || strings.HasSuffix(name, "_"+kernels.F32.String())
	}
	return t.low != device.F32 && strings.HasSuffix(name, "_"+kernels.F32.String())
}

// add sets the verdict of a check and reports it.
func (t *tester) add(c Check) {
	c.Type = t.precision
	c.OK = c.Error <= c.Bound
	if math.IsNaN(c.Error) || math.IsInf(c.Error, 0) {
		c.Error, c.OK = math.MaxFloat64, false // JSON cannot represent infinity and NaN
		if c.Detail == "" {
			c.Detail = "a result is not a number: something was not written, or read before it was"
		}
	}
	t.checks = append(t.checks, c)
	if t.options.Report != nil {
		t.options.Report(c)
	}
}

// failed adds a check that could not be run. It returns err if the self-test cannot go on.
func (t *tester) failed(c Check, err error) error {
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	if err := t.engine.Probe().Lost(); err != nil {
		return err
	}
	c.Error, c.Detail = math.MaxFloat64, err.Error()
	t.add(c)
	return nil
}

// mismatch returns the greatest difference, relative to the greatest expected number. It is
// NaN if a result is NaN.
func mismatch(got, want []float64) float64 {
	if len(got) != len(want) {
		return math.NaN()
	}
	top, worst := 1e-30, 0.0
	for i, w := range want {
		top = max(top, math.Abs(w))
		worst = max(worst, math.Abs(got[i]-w)) // max propagates NaN
	}
	return worst / top
}

// bound returns the bound for a result with the given number of roundings: for each, half
// the distance of neighboring numbers in the precision, plus some roundings of fp32 sums.
// TF32 rounds each factor of a product to 11 bits.
func (t *tester) bound(roundings float64) float64 {
	return roundings * map[string]float64{"fp32": 1e-5, "tf32": 2e-3, "bf16": 4e-3, "fp16": 5e-4}[t.precision]
}

// exact is like bound, for results without products of the tensor cores.
func (t *tester) exact(roundings float64) float64 {
	if t.precision == "tf32" {
		return roundings * 1e-5
	}
	return t.bound(roundings)
}

// normal returns n random numbers that the precision can represent.
func (t *tester) normal(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(t.random.NormFloat64())
	}
	return t.rounded(v)
}

func (t *tester) rounded(v []float32) []float32 { return number.Decode(t.low, number.Encode(t.low, v)) }

// ran records that checks ran the kernels with these names, and returns the names.
func (t *tester) ran(names []string) []string {
	for _, name := range names {
		t.kernels[name] = true
	}
	return names
}

// elements returns the product of a shape's dimensions.
func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
