package cuda

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/autotune"
	"lockstep/pkg/engine/cuda/internal/cudatest"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/internal/enginetest"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/plan"
)

// node is one kernel as a program of its own: its inputs are the program's
// inputs (states where state says so), its outputs the program's outputs.
type node struct {
	op      plan.Op
	attr    plan.KernelAttr
	in, out [][]int
	state   []int // indexes in in
	// fill makes the values of input i; nil for normal ones.
	fill func(rng *rand.Rand, i int, v []float32)
}

// program builds n's program.
func (n node) program() *plan.Program {
	return enginetest.SingleKernelProgram(n.op, n.attr, n.in, n.out, n.state)
}

// noEnvironment is an environment without variables, and without tuning cache.
func noEnvironment(name string) string {
	if name == autotune.CacheVariable {
		return "off"
	}
	return ""
}

// gpuOptions are the defaults on a GPU in a precision, but for the tuning of
// convolutions: the simulated GPU would compute every candidate.
func gpuOptions(precision string) engine.Options {
	o := tunedOptions(precision)
	o.Convolution = "heuristic"
	return o
}

// tunedOptions are the defaults on a GPU in a precision.
func tunedOptions(precision string) engine.Options {
	o := engine.DefaultOptions()
	o.Device, o.Precision = "cuda", precision
	return o
}

// fusing returns options that fuse, or do not.
func fusing(fuse, norms bool) engine.Options {
	o := engine.DefaultOptions()
	o.Fuse, o.FuseNorm = fuse, norms
	return o
}

// openOn starts an engine on a machine.
func openOn(t testing.TB, m *clibtest.Machine, o engine.Options) *Engine {
	t.Helper()
	return openRank(t, m, o, 0)
}

// openRank starts the engine of a local rank on a machine.
func openRank(t testing.TB, m *clibtest.Machine, o engine.Options, localRank int) *Engine {
	t.Helper()
	s, err := m.OpenStack()
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewWithLibraries(s, noEnvironment, o, localRank)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// open starts an engine on a simulated machine of its own.
func open(t testing.TB, o engine.Options) *Engine {
	t.Helper()
	return openOn(t, cudatest.NewMachine(t, clibtest.Options{}), o)
}

// results runs n on e with feature maps and weights rounded to a precision: see
// enginetest.Operation.
func (n node) results(t testing.TB, e engine.Engine, seed uint64, precision string) [][]float64 {
	t.Helper()
	o := enginetest.Operation{Op: n.op, Attr: n.attr, In: n.in, Out: n.out, State: n.state, Fill: n.fill}
	typ := number.ActivationType(precision)
	m := enginetest.OperationHooks{
		FillNaN: poison, CheckPadding: checkPadding,
		Round: func(v []float32) { copy(v, number.Decode(typ, number.Encode(typ, v))) },
	}
	if n.op == plan.OpBCEWithLogitsBackward {
		m.Scale = func(e engine.Executable) float64 {
			if x, ok := e.(*executable); ok {
				return x.last.scale // fp16 has the gradients of a loss that is scaled
			}
			return 1
		}
	}
	return o.Run(t, e, seed, m)
}

// tolerance is what a precision may be off, relative to the greatest value: the
// rounding of a result is 2^−9 in bf16, 2^−12 in fp16; sums are taken in fp32.
func tolerance(precision string) float64 {
	return map[string]float64{"fp32": 1e-5, "bf16": 4e-3, "fp16": 5e-4}[precision]
}

// poison fills the memory of activations and all scratch memory with NaN: what is
// read before it is written shows.
func poison(t testing.TB, e engine.Executable) {
	t.Helper()
	x, ok := e.(*executable)
	if !ok {
		return
	}
	err := x.do(func() error {
		for _, b := range []memoryBlock{x.memory.arena, x.memory.scratch, x.memory.workspace, x.memory.staging} {
			if b.bytes == 0 {
				continue
			}
			if err := x.gpu.driver.MemsetD8Async(b.ptr, 0xff, b.bytes, x.gpu.compute); err != nil {
				return err
			}
		}
		return x.gpu.synchronize()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// someEngines starts an engine in fp32 and one in fp16. The tests of single kernels use bf16.
func someEngines(t *testing.T) map[string]*Engine {
	t.Helper()
	on := map[string]*Engine{}
	for _, precision := range []string{"fp32", "fp16"} {
		on[precision] = open(t, gpuOptions(precision))
	}
	return on
}

// agrees compares n with the reference on engines of someEngines, with factor times the
// tolerance; 0 demands the same numbers but for the rounding of the inputs.
func (n node) agrees(t *testing.T, on map[string]*Engine, factor float64) {
	t.Helper()
	for _, precision := range []string{"fp32", "fp16"} {
		t.Run(precision, func(t *testing.T) {
			want := n.results(t, truth(t), 1, precision)
			got := n.results(t, on[precision], 1, precision)
			for i := range want {
				near(t, "output", got[i], want[i], factor*tolerance(precision))
			}
		})
	}
}

// checkPadding reports the first padding element that is not zero among the
// tensors that are valid after a step.
func checkPadding(e engine.Executable) error {
	x, ok := e.(*executable)
	if !ok {
		return nil // the reference has none
	}
	for id, q := range x.program.Tensors {
		p := x.memory.locations[id]
		if p.space == noSpace || p.pitch != p.paddedChannels() || q.Role == plan.Activation || q.Role == plan.Output && p.form == vectorForm {
			continue // the statistics of a channel of zeros are not zero
		}
		used := make([]bool, p.paddedElementCount())
		p.forEachStridedRun(func(_, at, count, stride int) {
			for range count {
				used[at] = true
				at += stride
			}
		})
		var data []byte
		err := x.do(func() (err error) {
			data, err = x.gpu.readMemory(x.tensorAddress(id), int64(p.bytes()))
			return err
		})
		if err != nil {
			return err
		}
		for i, v := range number.Decode(p.typ, data) {
			if !used[i] && v != 0 {
				return fmt.Errorf("padding element %d of tensor %d (%s, %s) is %v", i, id, q.Name, p.form, v)
			}
		}
	}
	return nil
}
