// Package cudatest simulates machines with GPUs for the tests of the GPU engine.
package cudatest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"lockstep/pkg/engine/cuda/kernels/hostsim"
	"lockstep/pkg/internal/clib/clibtest"
)

// Kernels returns the engine's kernels, compiled for this processor once.
var Kernels = sync.OnceValues(func() (*hostsim.Simulator, error) { return hostsim.Open(context.Background()) })

// Machine returns a machine with a simulated GPU that runs the engine's kernels on this
// processor. It skips the test if there is no C++ compiler.
func Machine(t testing.TB, o clibtest.Options) *clibtest.Machine {
	t.Helper()
	sim, err := Kernels()
	if errors.Is(err, hostsim.ErrNoCompiler) {
		t.Skip("no C++ compiler to run the kernels on this processor with:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	o.Execute = sim.Run
	return clibtest.New(o)
}
