// Package enginetest is what the tests of several engines share: networks, batches,
// comparisons, and the checks that every engine must pass.
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

// Engine is one that is tested.
type Engine struct {
	// Open starts one in fp32 that ends with the test; change (nil: none) changes its
	// options.
	Open func(t testing.TB, change func(o *engine.Options)) engine.Engine
	// Poison fills the memory of activations and scratch memory with NaN: what is read
	// before it is written shows.
	Poison func(t testing.TB, x engine.Executable)
	// Padding reports what is not zero of a layout's padding.
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

// Loaded is p on an engine, with memory poisoned, initial values set and one step done
// on a batch, without update.
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

func (e Engine) loaded(t testing.TB, p *plan.Program, g *nn.Graph) engine.Executable {
	t.Helper()
	return Loaded(t, e.Open(t, nil), p, g, e.Poison)
}
