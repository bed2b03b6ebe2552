// Package cudatest simulates machines with GPUs for the tests of the GPU engine.
package cudatest

import (
	"errors"
	"testing"

	"lockstep/pkg/engine/cuda/kernels/hostsim"
	"lockstep/pkg/internal/clib/clibtest"
)

// NewMachine returns a machine with simulated GPUs that run the engine's kernels on this
// processor. It skips the test if there is no C++ compiler, and under -short.
func NewMachine(t testing.TB, o clibtest.Options) *clibtest.Machine {
	t.Helper()
	if testing.Short() {
		t.Skip("slow")
	}
	sim, err := hostsim.OpenShared()
	if errors.Is(err, hostsim.ErrNoCompiler) {
		t.Skip("no C++ compiler to run the kernels on this processor with:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	o.Execute = sim.Run
	return clibtest.New(o)
}
