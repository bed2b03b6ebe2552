package cpu

import (
	"math/rand/v2"
	"slices"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
)

// TestHostMemory: what a strategy finds in the memory of the buckets is what Get and Gradient
// return, with channels that do not fill a vector, and the executable uses what it writes.
func TestHostMemory(t *testing.T) {
	g := nn.NewGraph(nn.Train)
	x := g.Input("image", 2, 1, 8, 8)
	for i, name := range []string{"a", "b", "c"} {
		x = g.ReLU(g.Conv2D(name, x, 3+2*i, 3, 1, 1, true))
	}
	g.SetLoss(g.BCEWithLogits(g.Conv2D("head", x, 1, 1, 1, 0, true), g.Input("target", 2, 1, 8, 8)))
	p, err := plan.Lower(g, plan.Options{Fuse: true, BucketBytes: 600})
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(engine.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	exe, err := e.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	memory := exe.Capabilities().HostMemory
	for name, v := range g.InitialValues(1) {
		if err := exe.Set(name, v); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	in := make([]float32, 2*8*8)
	for i := range in {
		in[i] = random.Float32()
	}
	for _, name := range []string{"image", "target"} {
		if err := exe.SetInput(name, in); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := exe.Step(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	buckets, found := memory.Buckets(), 0
	if len(buckets) < 2 || len(buckets) != len(p.Buckets) {
		t.Fatalf("%d buckets, want %d, several", len(buckets), len(p.Buckets))
	}
	for _, b := range buckets {
		for _, m := range b.Parameters {
			found++
			checkParameterMemory(t, exe, b, m)
		}
	}
	if found != len(p.Params) {
		t.Errorf("found %d parameters, want %d", found, len(p.Params))
	}
	if _, err := exe.Capabilities().HostMemory.Unpack("nobody", device.Buffer{}); err == nil {
		t.Error("an unknown parameter was unpacked")
	}
	if err := exe.Capabilities().HostMemory.Pack(p.Params[0].Name, nil, buckets[0].Gradients); err == nil {
		t.Error("no values were packed")
	}
	if err := exe.Close(); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// checkParameterMemory compares the memory of one parameter and its gradient with what exe
// returns, and changes the parameter through its memory.
func checkParameterMemory(t *testing.T, exe engine.Executable, b engine.BucketMemory, m engine.ParameterMemory) {
	t.Helper()
	unpack := func(stored device.Buffer) []float64 {
		v, err := exe.Capabilities().HostMemory.Unpack(m.Name, stored)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	want, err := exe.Get(m.Name)
	if err != nil || !slices.Equal(unpack(m.Weights), want) {
		t.Errorf("%s: weights %v, want %v, error %v", m.Name, unpack(m.Weights), want, err)
	}
	gradient, err := exe.Gradient(m.Name)
	if got := unpack(b.Gradients.Slice(m.Offset, m.Offset+m.Weights.Len())); err != nil || !slices.Equal(got, gradient) {
		t.Errorf("%s: gradient %v, want %v, error %v", m.Name, got, gradient, err)
	}
	for i := range want {
		want[i] = float64(i)
	}
	if err := exe.Capabilities().HostMemory.Pack(m.Name, want, m.Weights); err != nil {
		t.Fatal(err)
	}
	if got, err := exe.Get(m.Name); err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: after Pack %v, want %v, error %v", m.Name, got, want, err)
	}
}
