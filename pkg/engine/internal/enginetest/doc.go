// Package enginetest contains what the tests of several engines share: networks, batches,
// comparisons, and checks that every engine must pass.
//
//	enginetest.Engine{Open: …, Poison: …, Padding: …}.Check(t)
package enginetest

import (
	"context"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
)

// Engine is an engine under test.
type Engine struct {
	// Open returns an engine in fp32 that is closed at the end of the test. change, if
	// not nil, changes its options.
	Open func(t testing.TB, change func(o *engine.Options)) engine.Engine
	// Poison fills activations and workspace with NaN, so that a read before a write is
	// detected.
	Poison func(t testing.TB, x engine.Executable)
	// Padding returns an error if the padding of a layout is not zero.
	Padding func(x engine.Executable) error
}

// Check runs all checks.
func (e Engine) Check(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"sync", e.sync},
		{"buckets", e.buckets},
		{"non-finite", e.nonFinite},
		{"interrupted", e.interrupted},
		{"optimizers", e.optimizers},
		{"update errors", e.updateErrors},
		{"share", e.share},
		{"names", e.names},
	} {
		t.Run(c.name, c.run)
	}
}

// Loaded loads p on an engine, fills its memory with NaN, sets initial values and runs
// one step on a batch, without update.
func Loaded(t testing.TB, on engine.Engine, p *plan.Program, g *nn.Graph, poison func(t testing.TB, x engine.Executable)) engine.Executable {
	t.Helper()
	x, err := on.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	poison(t, x)
	Initialise(t, x, g)
	Feed(t, x, 1)
	if _, err := x.Step(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	return x
}

// loaded calls Loaded with a new engine.
func (e Engine) loaded(t testing.TB, p *plan.Program, g *nn.Graph) engine.Executable {
	t.Helper()
	return Loaded(t, e.Open(t, nil), p, g, e.Poison)
}
