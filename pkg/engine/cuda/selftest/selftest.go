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

// Check is one line of a self-test: something that the GPU computed, beside what
// it should be.
type Check struct {
	Name  string `json:"name"`  // "batch_norm training", "conv backward data, every plan"
	Type  string `json:"type"`  // "fp32", "tf32", "bf16" or "fp16"
	Shape string `json:"shape"` // of the operands
	// Error is the greatest difference of an element, relative to the greatest
	// element that should be (unless Name says otherwise); Bound is what it may
	// be.
	Error   float64  `json:"error"`
	Bound   float64  `json:"bound"`
	OK      bool     `json:"ok"`
	Kernels []string `json:"kernels,omitempty"` // of our own that ran for it
	Detail  string   `json:"detail,omitempty"`
}

// Options say what a self-test runs.
type Options struct {
	Device     string   // "cuda" or "cuda:1"; empty: "cuda"
	Precisions []string // of Precisions; nil: all
	Seed       uint64   // of the random data
	Large      bool     // also shapes of real networks, where sums take many blocks
	// Only names the checks to run, by a part of their names; empty: all. That
	// every kernel ran is then not looked at.
	Only   string
	Report func(Check)
}

// Precisions are what a self-test covers. tf32 is fp32 whose convolutions
// may round their inputs.
func Precisions() []string { return []string{"fp32", "tf32", "bf16", "fp16"} }

// Validate reports the first option that cannot be.
func (o Options) Validate() error {
	for _, p := range o.Precisions {
		if !slices.Contains(Precisions(), p) {
			return fmt.Errorf("validate self-test: precision %q is not known: use %s", p, strings.Join(Precisions(), ", "))
		}
	}
	return nil
}

// Run runs every kernel, every plan that cuDNN offers for a set of
// convolutions, and whole steps of U-Nets, recorded and not, on random data in
// memory that was filled with NaN before, and compares with engine/reference or
// with loops in float64. A kernel that no check ran is a check that failed. The
// error says what kept it from running, not what failed: that is in the checks.
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

// RunWithLibraries is Run with open libraries, such as those of a simulated machine.
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
		err := t.all()
		all = append(all, t.checks...)
		if err != nil {
			return all, fmt.Errorf("self-test, %s: %w", p, err)
		}
	}
	return all, nil
}

// Failed counts the checks that failed.
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
	kernels   map[string]bool // that a check ran, by name
	checks    []Check
}

// start starts an engine of the precision. Algorithms are cuDNN's first
// suggestion: tuning all of them is slow, and each is run by itself anyway.
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
			return "" // the test says itself what it wants
		}
		return os.Getenv(name)
	}, o, 0)
}

func (t *tester) all() (err error) {
	if t.engine, err = t.start(nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.engine.Close()) }()
	t.random = rand.New(rand.NewPCG(t.options.Seed, uint64(slices.Index(Precisions(), t.precision))))
	for _, f := range []func() error{t.operations, t.fusions, t.residuals, t.statistics, t.normGraphs, t.direct, t.networks, t.exchange, t.synchronised} {
		if err := f(); err != nil {
			return err
		}
	}
	if t.options.Only == "" {
		t.complete()
	}
	return nil
}

// wanted reports whether the check of that name is to be run.
func (t *tester) wanted(name string) bool { return strings.Contains(name, t.options.Only) }

// complete fails for each kernel that no check ran.
func (t *tester) complete() {
	types := []kernels.Type{kernels.F32}
	if t.low != device.F32 {
		types = append(types, number.KernelType(t.low))
	}
	for _, k := range kernels.List(types...) {
		// What measures the other precision's tensor cores belongs to that one.
		if !t.kernels[k.Name] && !strings.HasPrefix(k.Name, "mma_ceiling") && !t.elsewhere(k.Name) {
			t.add(Check{Name: k.Name, Error: math.MaxFloat64, Detail: "no check ran this kernel"})
		}
	}
}

// elsewhere reports whether a kernel is one that the checks of another precision run: in 16
// bits those of fp32, and what goes with batch norms in cuDNN's graphs, which it has in fp16.
func (t *tester) elsewhere(name string) bool {
	if name == "bn_sums" || strings.HasPrefix(name, "bn_scale_shift_") {
		return t.low != device.F16 || strings.HasSuffix(name, "_"+kernels.F32.String())
	}
	return t.low != device.F32 && strings.HasSuffix(name, "_"+kernels.F32.String())
}

// add ends a check: its verdict, and the report.
func (t *tester) add(c Check) {
	c.Type = t.precision
	c.OK = c.Error <= c.Bound
	if math.IsNaN(c.Error) || math.IsInf(c.Error, 0) {
		c.Error, c.OK = math.MaxFloat64, false // JSON has no other numbers
		if c.Detail == "" {
			c.Detail = "a result is not a number: something was not written, or read before it was"
		}
	}
	t.checks = append(t.checks, c)
	if t.options.Report != nil {
		t.options.Report(c)
	}
}

// failed ends a check that could not be run.
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

// mismatch is the greatest difference, relative to the greatest number wanted;
// NaN where a result is none.
func mismatch(got, want []float64) float64 {
	if len(got) != len(want) {
		return math.NaN()
	}
	top, worst := 1e-30, 0.0
	for i, w := range want {
		top = max(top, math.Abs(w))
		worst = max(worst, math.Abs(got[i]-w)) // max hands a NaN on
	}
	return worst / top
}

// bound is what a result may be off that is rounded so often: half the distance
// of two neighbouring numbers of the precision each time, and some of fp32's for
// sums. TF32 rounds each factor of a product to 11 bits.
func (t *tester) bound(roundings float64) float64 {
	return roundings * map[string]float64{"fp32": 1e-5, "tf32": 2e-3, "bf16": 4e-3, "fp16": 5e-4}[t.precision]
}

// exact is bound where nothing is multiplied by the tensor cores.
func (t *tester) exact(roundings float64) float64 {
	if t.precision == "tf32" {
		return roundings * 1e-5
	}
	return t.bound(roundings)
}

// normal are n random numbers that the precision can hold.
func (t *tester) normal(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(t.random.NormFloat64())
	}
	return t.rounded(v)
}

func (t *tester) rounded(v []float32) []float32 { return number.Decode(t.low, number.Encode(t.low, v)) }

// ran notes that checks ran the kernels with these names, and returns the names.
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
