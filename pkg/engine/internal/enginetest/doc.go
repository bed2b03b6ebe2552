// Package enginetest contains what the tests of several engines share: networks, batches,
// comparisons, and checks that every engine must pass.
//
//	enginetest.Engine{Open: …, FillNaN: …, CheckPadding: …}.Check(t)
package enginetest

import (
	"context"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
)

// EngineUnderTest tells the checks how to open an engine and how to inspect its memory.
type EngineUnderTest struct {
	// Open returns an engine in fp32 that is closed at the end of the test. If change is
	// not nil, it changes the engine's options.
	Open func(t testing.TB, change func(o *engine.Options)) engine.Engine
	// FillNaN fills activations and workspace with NaN, so that the checks detect memory
	// that is read before it is written.
	FillNaN func(t testing.TB, x engine.Executable)
	// CheckPadding returns an error if the padding of a tensor is not zero.
	CheckPadding func(x engine.Executable) error
}

// CheckAll runs all checks as subtests.
func (e EngineUnderTest) CheckAll(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"sync", e.checkReducedGradients},
		{"buckets", e.checkBucketContents},
		{"non-finite", e.checkNonFiniteLoss},
		{"interrupted", e.checkInterruption},
		{"optimizers", e.checkOptimizers},
		{"update errors", e.checkUpdateErrors},
		{"share", e.checkParameterSharing},
		{"names", e.checkTensorNameErrors},
	} {
		t.Run(c.name, c.run)
	}
}

// LoadAndStep loads p on an engine, fills its memory with NaN, sets the initial values of g
// and runs one step on a random batch, without updating the parameters.
func LoadAndStep(t testing.TB, on engine.Engine, p *plan.Program, g *nn.Graph, fillNaN func(t testing.TB, x engine.Executable)) engine.Executable {
	t.Helper()
	x, err := on.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	fillNaN(t, x)
	SetInitialValues(t, x, g)
	SetRandomInputs(t, x, 1)
	if _, err := x.Step(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	return x
}

func (e EngineUnderTest) loadAndStep(t testing.TB, p *plan.Program, g *nn.Graph) engine.Executable {
	t.Helper()
	return LoadAndStep(t, e.Open(t, nil), p, g, e.FillNaN)
}
