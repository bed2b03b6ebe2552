package enginetest

import (
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// checkParameterSharing checks that an evaluation program reads the parameters and states of
// the training program with which it shares them. It also checks that sharing fails if the
// other program lacks parameters or belongs to another engine.
func (e EngineUnderTest) checkParameterSharing(t *testing.T) {
	on := e.Open(t, nil)
	g, train := LowerUNet(t, SmallUNetConfig(), 3, nn.Train, plan.Options{Fuse: true})
	_, eval := LowerUNet(t, SmallUNetConfig(), 1, nn.Eval, plan.Options{Fuse: true})
	x, err := on.Load(train, nil)
	if err != nil {
		t.Fatal(err)
	}
	SetInitialValues(t, x, g)
	y, err := on.Load(eval, x)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{train.Params[0].Name, train.Tensors[train.States[0]].Name, "optimizer.v." + train.Params[1].Name} {
		v, err := x.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range v {
			v[i] = float64(i%7) + 1
		}
		if err := x.Set(name, v); err != nil {
			t.Fatal(err)
		}
		if got, err := y.Get(name); err != nil {
			t.Error(err)
		} else if !slices.Equal(got, v) {
			t.Errorf("%s has different values in the two programs that share it", name)
		}
	}
	if !slices.Equal(x.Names(), y.Names()) {
		t.Error("programs that share parameters have different names of tensors")
	}
	other := SmallUNetConfig()
	other.Depth = 2
	_, shallow := LowerUNet(t, other, 3, nn.Train, plan.Options{})
	z, err := on.Load(shallow, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := on.Load(train, z); err == nil || !strings.Contains(err.Error(), "share") {
		t.Errorf("load a network that shares the parameters of a shallower one: got error %v, want one that contains \"share\"", err)
	}
	if _, err := e.Open(t, nil).Load(eval, x); err == nil || !strings.Contains(err.Error(), "another engine") {
		t.Errorf("load a program that shares parameters with a program of another engine: got error %v, want one that contains \"another engine\"", err)
	}
}

// checkTensorNameErrors checks that Get, Set and Gradient return errors for unknown names, and Set
// for wrong lengths.
func (e EngineUnderTest) checkTensorNameErrors(t *testing.T) {
	on := e.Open(t, nil)
	_, p := LowerUNet(t, SmallUNetConfig(), 1, nn.Train, plan.Options{})
	x, err := on.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := 4*len(p.Params) + len(p.States); len(x.Names()) != want {
		t.Errorf("got %d names, want %d: the parameters, three slots per parameter, and the states", len(x.Names()), want)
	}
	before := x.MemoryBytes()
	for _, name := range x.Names() {
		v, err := x.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Set(name, v); err != nil {
			t.Fatal(err)
		}
		if err := x.Set(name, append(v, 0)); err == nil {
			t.Errorf("setting %s to more values than it has must fail", name)
		}
	}
	// Set must not allocate slots for zeros, not even if it fails as in the loop above.
	if after := x.MemoryBytes(); after != before {
		t.Errorf("setting slots to zero allocated %d bytes", after-before)
	}
	for _, f := range []func() error{
		func() error { _, err := x.Get("nobody"); return err },
		func() error { return x.Set("optimizer.m.nobody", nil) },
		func() error { _, err := x.Gradient("nobody"); return err },
		func() error { return x.SetInput("nobody", nil) },
		func() error { return x.SetInput(model.ImageInput, make([]float32, 3)) },
		func() error { return x.Output("nobody", nil) },
		func() error { return x.Output(model.LogitsOutput, make([]float32, 3)) },
	} {
		if err := f(); err == nil {
			t.Error("an unknown name or a wrong length must be an error")
		}
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []func() error{
		func() error { return x.SetInput(model.ImageInput, nil) },
		func() error { return x.Output(model.LogitsOutput, nil) },
		func() error { _, err := x.Step(t.Context(), nil, nil); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("calling a closed executable: got error %v, want one that contains \"closed\"", err)
		}
	}
}
