package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// RecordingSync is a GradSync that records buckets and does not change them.
type RecordingSync struct {
	Buckets []device.Buffer
	Waits   int
	Err     error // returned by Bucket
}

// Bucket records b. It returns an error if buckets arrive out of order.
func (s *RecordingSync) Bucket(i int, b device.Buffer, _ device.Stream) error {
	if i != len(s.Buckets) {
		return fmt.Errorf("bucket %d comes as number %d", i, len(s.Buckets))
	}
	s.Buckets = append(s.Buckets, b)
	return s.Err
}

// Wait counts its calls.
func (s *RecordingSync) Wait() error { s.Waits++; return nil }

// Capturable returns false.
func (s *RecordingSync) Capturable() bool { return false }

// NoOpSync is a GradSync that does nothing.
type NoOpSync struct{}

// Bucket does nothing.
func (NoOpSync) Bucket(int, device.Buffer, device.Stream) error { return nil }

// Wait does nothing.
func (NoOpSync) Wait() error { return nil }

// Capturable returns false.
func (NoOpSync) Capturable() bool { return false }

// doubling doubles every gradient in Wait, like a sum over two equal workers.
type doubling struct{ RecordingSync }

func (s *doubling) Wait() error {
	for _, b := range s.Buckets {
		for i := range b.F32 {
			b.F32[i] *= 2
		}
	}
	s.Buckets = nil
	return s.RecordingSync.Wait()
}

// sync checks that buckets arrive in order and contain all gradients, and that Gradient
// and the optimizer use the reduced gradients, with and without overlap.
func (e Engine) sync(t *testing.T) {
	for _, overlap := range []bool{true, false} {
		var err error
		g, p := Lowered(t, SmallUNet(), 2, nn.Train, plan.Options{Fuse: true, BucketBytes: 2048})
		if len(p.Buckets) < 3 {
			t.Fatalf("the test needs several buckets, not %d", len(p.Buckets))
		}
		x := Loaded(t, e.Open(t, func(o *engine.Options) { o.Overlap = overlap }), p, g, e.Poison)
		alone := map[string][]float64{}
		for _, q := range p.Params {
			if alone[q.Name], err = x.Gradient(q.Name); err != nil {
				t.Fatal(err)
			}
		}
		Initialise(t, x, g) // the states moved
		var s doubling
		timing, err := x.Step(context.Background(), &s, &optim.Update{Rule: "sgd", LearningRate: 0.5})
		if err != nil {
			t.Fatal(err)
		}
		if s.Waits != 1 || timing.Forward <= 0 || timing.Backward <= 0 || timing.Optimizer <= 0 {
			t.Errorf("waited %d times, timing %+v", s.Waits, timing)
		}
		start := g.InitialValues(3)
		for _, q := range p.Params {
			got, err1 := x.Gradient(q.Name)
			w, err2 := x.Get(q.Name)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			for i := range got {
				if got[i] != 2*alone[q.Name][i] {
					t.Fatalf("gradient %s[%d] is %v after the reduction, %v before", q.Name, i, got[i], alone[q.Name][i])
				}
				if want := start[q.Name][i] - got[i]*0.5; math.Abs(w[i]-want) > 1e-6*(1+math.Abs(want)) {
					t.Fatalf("%s[%d] is %v, not %v", q.Name, i, w[i], want)
				}
			}
		}
	}
}

// buckets checks that a bucket is the memory of exactly its gradients.
func (e Engine) buckets(t *testing.T) {
	g, p := Lowered(t, SmallUNet(), 2, nn.Train, plan.Options{BucketBytes: 2048})
	x := e.loaded(t, p, g)
	var s RecordingSync
	if _, err := x.Step(context.Background(), &s, nil); err != nil {
		t.Fatal(err)
	}
	if len(s.Buckets) != len(p.Buckets) {
		t.Fatalf("%d buckets of %d", len(s.Buckets), len(p.Buckets))
	}
	for i, b := range p.Buckets {
		want := 0.0
		for _, j := range b.Params {
			v, err := x.Gradient(p.Params[j].Name)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range v {
				want += math.Abs(f)
			}
		}
		got := 0.0
		for _, f := range s.Buckets[i].F32 {
			got += math.Abs(float64(f))
		}
		if math.Abs(got-want) > 1e-9*(1+want) {
			t.Errorf("bucket %d holds %v, its gradients %v", i, got, want)
		}
	}
}

// nonFinite checks that a loss of NaN or infinity ends the step before buckets and
// optimizer, and changes nothing.
func (e Engine) nonFinite(t *testing.T) {
	g, p := Lowered(t, SmallUNet(), 2, nn.Train, plan.Options{Fuse: true})
	x := e.loaded(t, p, g)
	u := &optim.Update{Rule: "adam", LearningRate: 1e-3, Step: 1, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	if _, err := x.Step(context.Background(), nil, u); err != nil {
		t.Fatal(err)
	}
	before := Snapshot(t, x)
	v := make([]float32, p.Tensors[p.Lookup(plan.Input, model.ImageInput)].Elements())
	v[5] = float32(math.Inf(1))
	if err := x.SetInput(model.ImageInput, v); err != nil {
		t.Fatal(err)
	}
	var s RecordingSync
	_, err := x.Step(context.Background(), &s, u)
	if !errors.Is(err, engine.ErrNonFinite) || len(s.Buckets) != 0 || s.Waits != 0 {
		t.Errorf("step says %v, handed over %d buckets and waited %d times", err, len(s.Buckets), s.Waits)
	}
	Unchanged(t, x, before)
	Feed(t, x, 1)
	if _, err := x.Step(context.Background(), nil, u); err != nil {
		t.Errorf("the next step fails: %v", err)
	}
	if err := e.Padding(x); err != nil {
		t.Error(err)
	}
}

// cancelling cancels a context at its first bucket.
type cancelling struct {
	RecordingSync
	cancel context.CancelFunc
}

func (s *cancelling) Bucket(i int, b device.Buffer, d device.Stream) error {
	s.cancel()
	return s.RecordingSync.Bucket(i, b, d)
}

// interrupted checks that a canceled context or an error of the GradSync ends the step,
// after waiting for the buckets in flight, and changes nothing.
func (e Engine) interrupted(t *testing.T) {
	g, p := Lowered(t, SmallUNet(), 2, nn.Train, plan.Options{BucketBytes: 2048})
	x := e.loaded(t, p, g)
	before := Snapshot(t, x)
	u := &optim.Update{Rule: "sgd", LearningRate: 1}

	ctx, cancel := context.WithCancel(context.Background())
	c := &cancelling{cancel: cancel}
	if _, err := x.Step(ctx, c, u); !errors.Is(err, context.Canceled) || c.Waits != 1 || len(c.Buckets) == len(p.Buckets) {
		t.Errorf("step says %v after %d buckets and %d waits", err, len(c.Buckets), c.Waits)
	}
	Unchanged(t, x, before)
	if _, err := x.Step(ctx, nil, u); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context gives %v", err)
	}
	broken := errors.New("wire cut")
	if _, err := x.Step(context.Background(), &RecordingSync{Err: broken}, u); !errors.Is(err, broken) || !strings.Contains(err.Error(), "bucket 0") {
		t.Errorf("step says %v", err)
	}
	Unchanged(t, x, before)
}

// optimizers compares five updates of every rule with the reference.
func (e Engine) optimizers(t *testing.T) {
	g, p := Lowered(t, SmallUNet(), 2, nn.Train, plan.Options{Fuse: true})
	for _, u := range []optim.Update{
		{Rule: "sgd", LearningRate: 0.1},
		{Rule: "sgd", LearningRate: 0.1, WeightDecay: 0.01},
		{Rule: "sgd", LearningRate: 0.1, Momentum: 0.9, WeightDecay: 0.01},
		{Rule: "adam", LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-3, WeightDecay: 0.01},
	} {
		train := func(e engine.Engine) map[string][]float64 {
			x, err := e.Load(p, nil)
			if err != nil {
				t.Fatal(err)
			}
			Initialise(t, x, g)
			for step := 1; step <= 5; step++ {
				Feed(t, x, 2) // not 1: there a ReLU's decision depends on the last bit (see cpu's TestFlips)
				u.Step = step
				if _, err := x.Step(context.Background(), nil, &u); err != nil {
					t.Fatal(err)
				}
			}
			return Snapshot(t, x)
		}
		want, got := train(Reference(t)), train(e.Open(t, nil))
		if len(want) != len(got) {
			t.Errorf("%d names, the reference has %d", len(got), len(want))
		}
		for name := range want {
			if Largest(want[name]) > 1e-7 { // slots of biases before a batch norm hold roundings
				Near(t, u.Rule+" "+name, got[name], want[name], 2e-3)
			}
		}
	}
}

// updateErrors checks that an invalid update is an error before any kernel runs.
func (e Engine) updateErrors(t *testing.T) {
	g, p := Lowered(t, SmallUNet(), 1, nn.Train, plan.Options{})
	on := e.Open(t, nil)
	x := Loaded(t, on, p, g, e.Poison)
	_, q := Lowered(t, SmallUNet(), 1, nn.Eval, plan.Options{})
	y, err := on.Load(q, x)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		x    engine.Executable
		u    optim.Update
		want string
	}{
		{x, optim.Update{Rule: "lion"}, `unknown rule "lion"`},
		{x, optim.Update{Rule: "adam"}, "invalid step 0"},
		{y, optim.Update{Rule: "sgd"}, "no gradients"},
	} {
		if _, err := c.x.Step(context.Background(), nil, &c.u); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("step says %v, not %q", err, c.want)
		}
	}
}
