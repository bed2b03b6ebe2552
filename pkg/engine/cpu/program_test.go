package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/internal/enginetest"
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
	// convolution is the engine's option; "" for the default.
	convolution string
}

// program builds n's program.
func (n node) program() *plan.Program {
	return enginetest.SingleKernelProgram(n.op, n.attr, n.in, n.out, n.state)
}

// open starts an engine with an instruction set. It skips the test if this processor
// lacks that.
func open(t testing.TB, set string, threads int) engine.Engine {
	t.Helper()
	return openWith(t, set, threads, engine.DefaultOptions().Convolution)
}

// openWith starts an engine as open does, with a choice of the convolutions' algorithm.
func openWith(t testing.TB, set string, threads int, convolution string) engine.Engine {
	t.Helper()
	wide := set == wideGo
	if wide {
		set = "go"
	}
	if _, err := kernel.ChooseKernelSet(set); err != nil {
		t.Skip(err)
	}
	t.Setenv(kernel.InstructionSetEnvVar, set)
	o := engine.DefaultOptions()
	o.Threads, o.Convolution = threads, convolution
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if wide {
		e.(*Engine).kernels = kernel.NewPlainGoAVX512KernelSet()
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// assemblySets are the instruction sets of this architecture that have assembly.
var assemblySets = map[string][]string{"amd64": {"avx2", "avx512"}, "arm64": {"neon"}}[runtime.GOARCH]

// wideGo is plain Go with the matrix kernel's tiles of AVX-512. With it, processors
// without AVX-512 test all but the assembly.
const wideGo = "go, wide"

// results runs n on e: see enginetest.Operation.
func (n node) results(t testing.TB, e engine.Engine, seed uint64) [][]float64 {
	t.Helper()
	o := enginetest.Operation{Op: n.op, Attr: n.attr, In: n.in, Out: n.out, State: n.state, Fill: n.fill}
	return o.Run(t, e, seed, enginetest.OperationHooks{FillNaN: poisoned, CheckPadding: checkPadding})
}

// everyway calls f for each instruction set, with one thread and with three. Under the
// race detector it leaves out one thread, which starts no goroutine.
func everyway(t *testing.T, f func(t *testing.T, set string, threads int)) {
	for _, set := range sets {
		for _, threads := range []int{1, 3} {
			if underRace && threads == 1 {
				continue
			}
			t.Run(set+"/"+string(rune('0'+threads)), func(t *testing.T) { f(t, set, threads) })
		}
	}
}

// agrees compares n with the reference for each instruction set, and checks that every
// number of threads gives the same bits. tol is relative to the greatest value.
func (n node) agrees(t *testing.T, tol float64) {
	t.Helper()
	want := n.results(t, truth(t), 1)
	same := map[string][][]float64{}
	everyway(t, func(t *testing.T, set string, threads int) {
		e := open(t, set, threads)
		if n.convolution != "" {
			e = openWith(t, set, threads, n.convolution)
		}
		got := n.results(t, e, 1)
		for i := range want {
			near(t, "output", got[i], want[i], tol)
			if same[set] != nil {
				near(t, "output by another number of threads", got[i], same[set][i], 0)
			}
		}
		same[set] = got
	})
}

// checkPadding returns an error if a tensor that is valid after a step has padding that
// is not zero.
func checkPadding(e engine.Executable) error {
	x, ok := e.(*executable)
	if !ok {
		return nil // the reference has none
	}
	p := x.program
	for id, t := range p.Tensors {
		if x.data[id] == nil || t.Role == plan.Activation || id == p.Loss || slices.Equal(t.Shape, []int{1}) {
			continue
		}
		used := make([]bool, len(x.data[id]))
		x.layouts[id].ForEachStridedRun(t.Shape, func(_, at, count, stride int) {
			for range count {
				used[at] = true
				at += stride
			}
		})
		for i, u := range used {
			if !u && x.data[id][i] != 0 {
				return fmt.Errorf("padding element %d of %s %v is %v", i, t.Name, t.Shape, x.data[id][i])
			}
		}
	}
	return nil
}

// poison fills memory with NaN whose contents a step must not depend on.
func poison(e engine.Executable) {
	x, ok := e.(*executable)
	if !ok {
		return
	}
	fill := func(v []float32) {
		for i := range v {
			v[i] = float32(math.NaN())
		}
	}
	fill(x.arena)
	fill(x.work.Shared)
	for _, w := range x.workers {
		fill(w.Scratch)
	}
}

// loaderOf loads p and returns the loader, with what it has decided.
func loaderOf(t testing.TB, e engine.Engine, p *plan.Program) *loader {
	t.Helper()
	own, ok := e.(*Engine)
	if !ok {
		t.Fatalf("engine is a %T, want one of this package", e)
	}
	l, err := own.load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
