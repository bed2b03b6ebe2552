package reference_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/reference"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// TestEvaluationIsIndependentOfBatch: running statistics make the logits of an
// image the same at batch 1 and 8.
func TestEvaluationIsIndependentOfBatch(t *testing.T) {
	for _, precision := range []string{"fp32", "fp64"} {
		e := open(t, precision)
		u := tinyUNet(t)
		o := plan.Options{Fuse: true}
		train := load(t, e, u, 4, nn.Train, o, nil)
		image, mask := blobs(8, 16)
		half := len(image) / 2
		set(t, train, image[:half], mask[:half])
		for k := 1; k <= 5; k++ {
			step(t, train, nil, &optim.Update{Rule: "adam", LearningRate: 1e-2, Step: k, Beta1: .9, Beta2: .999, Epsilon: 1e-8})
		}
		whole := make([]float32, len(mask))
		eight := load(t, e, u, 8, nn.Eval, o, train)
		set(t, eight, image, mask)
		step(t, eight, nil, nil)
		if err := eight.Output(model.LogitsOutput, whole); err != nil {
			t.Fatal(err)
		}
		one := load(t, e, u, 1, nn.Eval, o, train)
		size := len(image) / 8
		loss := 0.0
		for i := range 8 {
			set(t, one, image[i*size:(i+1)*size], mask[i*size:(i+1)*size])
			step(t, one, nil, nil)
			loss += one.Loss() / 8
			got := make([]float32, size)
			if err := one.Output(model.LogitsOutput, got); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, whole[i*size:(i+1)*size]) {
				t.Errorf("%s: image %d has other logits in a batch of one", precision, i)
			}
		}
		if !near(loss, eight.Loss(), 1e-6) {
			t.Errorf("%s: losses of single images average to %v, the batch has %v", precision, loss, eight.Loss())
		}
	}
}

// TestTrainingIsDeterministic: the same seed gives the same bits.
func TestTrainingIsDeterministic(t *testing.T) {
	run := func() []float64 {
		x := load(t, open(t, "fp32"), tinyUNet(t), 2, nn.Train, plan.Options{Fuse: true}, nil)
		image, mask := blobs(2, 16)
		set(t, x, image, mask)
		var losses []float64
		for k := 1; k <= 5; k++ {
			step(t, x, nil, &optim.Update{Rule: "adam", LearningRate: 1e-2, Step: k, Beta1: .9, Beta2: .999, Epsilon: 1e-8})
			losses = append(losses, x.Loss())
		}
		return append(losses, get(t, x, "down.0.a.conv.weight")...)
	}
	if a, b := run(), run(); !slices.Equal(a, b) {
		t.Error("two runs of one seed differ")
	}
}

// TestPersistentTensors: names do not depend on what ran, a slot is zero until
// then, and a checkpoint of all names continues bit for bit.
func TestPersistentTensors(t *testing.T) {
	e := open(t, "fp32")
	image, mask := blobs(2, 16)
	adam := func(k int) *optim.Update {
		return &optim.Update{Rule: "adam", LearningRate: 1e-2, Step: k, Beta1: .9, Beta2: .999, Epsilon: 1e-8}
	}
	a := load(t, e, tinyUNet(t), 2, nn.Train, plan.Options{Fuse: true}, nil)
	fresh, memory := a.Names(), a.MemoryBytes()
	if v := get(t, a, "optimizer.v.head.weight"); len(v) != 4 || slices.Max(v) != 0 {
		t.Errorf("a slot before the first step is %v, want 4 zeros", v)
	}
	set(t, a, image, mask)
	for k := 1; k <= 3; k++ {
		step(t, a, nil, adam(k))
	}
	if !slices.Equal(fresh, a.Names()) {
		t.Error("training changed the list of names")
	}
	// Adam's two slots: two float32 for each parameter.
	if got, want := a.MemoryBytes()-memory, int64(8*tinyUNet(t).Parameters()); got != want {
		t.Errorf("the slots take %d bytes, want %d", got, want)
	}
	b := load(t, e, tinyUNet(t), 2, nn.Train, plan.Options{Fuse: true}, nil)
	for _, n := range b.Names() {
		if err := b.Set(n, get(t, a, n)); err != nil {
			t.Fatal(err)
		}
	}
	if a.MemoryBytes() != b.MemoryBytes() {
		t.Error("zeros set into a slot took memory")
	}
	set(t, b, image, mask)
	for k := 4; k <= 6; k++ {
		step(t, a, nil, adam(k))
		step(t, b, nil, adam(k))
		if a.Loss() != b.Loss() {
			t.Fatalf("step %d after the checkpoint: loss %v, without interruption %v", k, b.Loss(), a.Loss())
		}
	}
}

func TestErrors(t *testing.T) {
	e := open(t, "fp32")
	x := load(t, e, tinyUNet(t), 2, nn.Train, plan.Options{}, nil)
	eval := load(t, e, tinyUNet(t), 1, nn.Eval, plan.Options{}, x)
	other, err := model.UNet2D(model.UNet2DConfig{Base: 4, Depth: 3, InChannels: 1, OutChannels: 1, Height: 16, Width: 16, Norm: "batch"})
	if err != nil {
		t.Fatal(err)
	}
	wider, err := model.UNet2D(model.UNet2DConfig{Base: 8, Depth: 2, InChannels: 1, OutChannels: 1, Height: 16, Width: 16, Norm: "batch"})
	if err != nil {
		t.Fatal(err)
	}
	share := func(e engine.Engine, n model.Network) error {
		g, err := n.Graph(1, nn.Eval)
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Lower(g, plan.Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = e.Load(p, x)
		return err
	}
	stepError := func(x engine.Executable, u optim.Update) error {
		_, err := x.Step(context.Background(), nil, &u)
		return err
	}
	getError := func(name string) error { _, err := x.Get(name); return err }
	gradError := func(x engine.Executable, name string) error { _, err := x.Gradient(name); return err }
	newError := func(change func(o *engine.Options)) error {
		o := engine.DefaultOptions()
		o.Device = "reference"
		change(&o)
		_, err := reference.New(o)
		return err
	}
	loadError := func(p *plan.Program) error { _, err := e.Load(p, nil); return err }
	tests := []struct {
		name string
		err  error
		want string
	}{
		{"unknown input", x.SetInput("picture", nil), `unknown input "picture"`},
		{"input too short", x.SetInput("image", make([]float32, 3)), "3 values for shape [2 1 16 16]"},
		{"unknown output", x.Output("mask", nil), `unknown output "mask"`},
		{"output too short", x.Output("logits", make([]float32, 3)), "got a slice of 3 values for shape [2 1 16 16]"},
		{"unknown tensor", getError("tail.weight"), `get tensor: the program has no parameter, state or optimizer slot "tail.weight"`},
		{"slot of a state", getError("optimizer.m.down.0.a.norm.running_mean"), "the program has no parameter"},
		{"set unknown", x.Set("tail.weight", nil), "set tensor: the program has no parameter"},
		{"set too short", x.Set("head.weight", nil), `set tensor "head.weight": got 0 values, want 4`},
		{"set a slot too long", x.Set("optimizer.m.head.weight", make([]float64, 5)), "got 5 values, want 4"},
		{"unknown gradient", gradError(x, "tail.weight"), `read gradient of "tail.weight"`},
		{"gradient of an eval program", gradError(eval, "head.weight"), "the program has no such gradient"},
		{"update of an eval program", stepError(eval, optim.Update{Rule: "sgd"}), "the program computes no gradients"},
		{"rule", stepError(x, optim.Update{Rule: "lion"}), `unknown rule "lion": use sgd, adam, adamw, lars, lamb`},
		{"step 0", stepError(x, optim.Update{Rule: "adam"}), "invalid step 0: Adam counts steps from 1"},
		{"share with a deeper net", share(e, other), "share parameters: the other program has no tensor down.2.a.conv.weight"},
		{"share with a wider net", share(e, wider), "down.0.a.conv.weight has shape [4 1 3 3] in the other program, want [8 1 3 3]"},
		{"share between engines", share(open(t, "fp32"), tinyUNet(t)), "the other program was loaded by another engine"},
		{"share between precisions", share(open(t, "fp64"), tinyUNet(t)), "the other program was loaded by another engine"},
		{"no program", loadError(nil), "load program: the program is nil"},
		{"bad program", loadError(&plan.Program{Loss: 3}), "load program: validate program: loss (tensor 3) is not a scalar"},
		{"device", newError(func(o *engine.Options) { o.Device = "cpu" }), `got device "cpu", want reference`},
		{"options", newError(func(o *engine.Options) { o.Threads = 0 }), "threads is 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.err == nil || !strings.Contains(tt.err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", tt.err, tt.want)
			}
		})
	}
}
