// Package selftest compares the results of the GPU engine with loops in float64 and with
// engine/reference: each kernel, each plan that cuDNN offers, and complete steps of small
// networks.
//
//	checks, err := selftest.Run(ctx, selftest.Options{Precisions: []string{"bf16"}})
//	fmt.Println(selftest.CountFailed(checks), "of", len(checks), "checks failed")
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

// Check is the result of one check of a self-test: it compares a result of the GPU with the
// expected result.
type Check struct {
	Name  string `json:"name"`  // "batch_norm training", "conv backward data, every plan"
	Type  string `json:"type"`  // "fp32", "tf32", "bf16" or "fp16"
	Shape string `json:"shape"` // shapes of the operands
	// Error is the greatest absolute difference between an actual and an expected element,
	// relative to the greatest expected element. Some checks measure something else, which Name
	// then says. The check passes if Error is at most Bound.
	Error   float64  `json:"error"`
	Bound   float64  `json:"bound"`
	OK      bool     `json:"ok"`
	Kernels []string `json:"kernels,omitempty"` // the engine's own kernels that the check ran
	Detail  string   `json:"detail,omitempty"`
}

// Options select the checks of a self-test.
type Options struct {
	Device     string   // "cuda" or "cuda:1"; empty: "cuda"
	Precisions []string // a subset of Precisions(); nil: all of them
	Seed       uint64   // seed of the random data
	Large      bool     // also use shapes of real networks, whose sums need many blocks
	// Only selects the checks whose names contain this text. If it is empty, all checks run,
	// and also the check that every kernel has been launched.
	Only   string
	Report func(Check)
}

// Precisions returns all precisions that a self-test can check. "tf32" is fp32 whose
// convolutions may round their inputs.
func Precisions() []string { return []string{"fp32", "tf32", "bf16", "fp16"} }

// Validate returns an error for the first invalid option.
func (o Options) Validate() error {
	for _, p := range o.Precisions {
		if !slices.Contains(Precisions(), p) {
			return fmt.Errorf("validate self-test: unknown precision %q, want one of %s", p, strings.Join(Precisions(), ", "))
		}
	}
	return nil
}

// Run checks every kernel, every plan that cuDNN offers for a set of convolutions, and
// complete training steps of small networks, with and without graphs. Data are random, and
// memory is filled with NaN first. The results are compared with engine/reference or with
// loops in float64. A kernel that no check runs counts as a failed check. Failures are in
// the returned checks; the error is the reason why the self-test could not run.
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

// RunWithLibraries is like Run, but uses libraries that are open already, such as those of
// a simulated machine.
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
			return all, fmt.Errorf("run self-test in %s: %w", p, err)
		}
	}
	return all, nil
}

// CountFailed returns the number of failed checks.
func CountFailed(checks []Check) (n int) {
	for _, c := range checks {
		if !c.OK {
			n++
		}
	}
	return n
}

// tester runs the checks in one precision.
type tester struct {
	ctx       context.Context
	options   Options
	precision string
	low       device.ElementType
	truth     engine.Engine
	stack     *stack.Stack
	engine    *cuda.Engine
	random    *rand.Rand
	kernels   map[string]bool // names of the kernels that a check ran
	checks    []Check
}

// startEngine starts an engine. change, if not nil, changes its options. The engine uses
// cuDNN's first suggestion for each convolution: tuning would be slow, and each plan is
// checked separately anyway.
func (t *tester) startEngine(change func(*engine.Options)) (*cuda.Engine, error) {
	o := engine.DefaultOptions()
	o.Device, o.Precision, o.Convolution, o.TF32 = t.options.Device, t.precision, "heuristic", t.precision == "tf32"
	if t.precision == "tf32" {
		o.Precision = "fp32"
	}
	if change != nil {
		change(&o)
	}
	t.low = number.ActivationType(o.Precision)
	return cuda.NewWithLibraries(t.stack, func(name string) string {
		switch name {
		case autotune.CacheVariable:
			return "off"
		case "NVIDIA_TF32_OVERRIDE":
			return "" // the check sets TF32 itself
		}
		return os.Getenv(name)
	}, o, 0)
}

// runAll runs all selected checks.
func (t *tester) runAll() (err error) {
	if t.engine, err = t.startEngine(nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.engine.Close()) }()
	t.random = rand.New(rand.NewPCG(t.options.Seed, uint64(slices.Index(Precisions(), t.precision))))
	for _, f := range []func() error{t.checkOperations, t.checkBiasReLUFusions, t.checkResidualFusions, t.checkFusedStatistics, t.checkNormGradientGraphs, t.checkDirectLaunches, t.checkNetworks, t.checkNCCLExchange, t.checkSyncNorms} {
		if err := f(); err != nil {
			return err
		}
	}
	if t.options.Only == "" {
		t.failUnlaunchedKernels()
	}
	return nil
}

// isSelected reports whether the check with this name is selected.
func (t *tester) isSelected(name string) bool { return strings.Contains(name, t.options.Only) }

// failUnlaunchedKernels adds a failed check for each kernel that no check has launched.
func (t *tester) failUnlaunchedKernels() {
	types := []kernels.ElementType{kernels.F32}
	if t.low != device.F32 {
		types = append(types, number.KernelType(t.low))
	}
	for _, k := range kernels.ListKernels(types...) {
		// Each of these kernels is checked in its own precision only.
		if !t.kernels[k.Name] && !strings.HasPrefix(k.Name, "mma_ceiling") && !t.isKernelForOtherPrecision(k.Name) {
			t.addCheck(Check{Name: k.Name, Error: math.MaxFloat64, Detail: "no check ran this kernel"})
		}
	}
}

// isKernelForOtherPrecision reports whether the named kernel is checked only in another
// precision. The fp32 kernels are not checked in 16 bits. The kernel for statistics that
// cuDNN's graphs compute is checked only in fp16.
func (t *tester) isKernelForOtherPrecision(name string) bool {
	if name == "bn_sums" {
		return t.low != device.F16
	}
	return t.low != device.F32 && strings.HasSuffix(name, "_"+kernels.F32.String())
}

// addCheck sets c.OK, stores c and reports it.
func (t *tester) addCheck(c Check) {
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

// addFailure adds a failed check for err. It returns an error if the self-test cannot go
// on.
func (t *tester) addFailure(c Check, err error) error {
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	if err := t.engine.Probe().Lost(); err != nil {
		return err
	}
	c.Error, c.Detail = math.MaxFloat64, err.Error()
	t.addCheck(c)
	return nil
}

// maxRelativeError returns the greatest absolute difference between got and want, relative to the
// greatest absolute value in want. It is NaN if got contains NaN or the lengths differ.
func maxRelativeError(got, want []float64) float64 {
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

// errorBound returns the bound for results with the given number of roundings. Each
// rounding contributes half the distance between neighboring numbers in the precision, plus
// some roundings of fp32 sums. TF32 rounds each factor of a product to 11 bits.
func (t *tester) errorBound(roundings float64) float64 {
	return roundings * map[string]float64{"fp32": 1e-5, "tf32": 2e-3, "bf16": 4e-3, "fp16": 5e-4}[t.precision]
}

// errorBoundWithoutTensorCores is like errorBound, for results that are computed without
// tensor cores.
func (t *tester) errorBoundWithoutTensorCores(roundings float64) float64 {
	if t.precision == "tf32" {
		return roundings * 1e-5
	}
	return t.errorBound(roundings)
}

// randomNumbers returns n normally distributed numbers, rounded to the precision.
func (t *tester) randomNumbers(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(t.random.NormFloat64())
	}
	return t.roundToPrecision(v)
}

// roundToPrecision returns v rounded to the precision.
func (t *tester) roundToPrecision(v []float32) []float32 {
	return number.Decode(t.low, number.Encode(t.low, v))
}

// recordKernels records that checks have launched the named kernels, and returns names.
func (t *tester) recordKernels(names []string) []string {
	for _, name := range names {
		t.kernels[name] = true
	}
	return names
}

// elementCount returns the number of elements of a tensor with the given shape.
func elementCount(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
