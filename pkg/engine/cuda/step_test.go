package cuda

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// snapshot is every persistent tensor of x.
func snapshot(t testing.TB, x engine.Executable) map[string][]float64 {
	t.Helper()
	all := map[string][]float64{}
	for _, name := range x.Names() {
		v, err := x.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = v
	}
	return all
}

// unchanged fails where x differs from before.
func unchanged(t testing.TB, x engine.Executable, before map[string][]float64) {
	t.Helper()
	for name, v := range snapshot(t, x) {
		if !slices.Equal(v, before[name]) {
			t.Errorf("%s has changed", name)
		}
	}
}

// doubling doubles every gradient in Wait, as a reduction of two equal workers
// by sum would.
type doubling struct{ deafSync }

func (s *doubling) Wait() error {
	for _, b := range s.buckets {
		for i := range b.F32 {
			b.F32[i] *= 2
		}
	}
	s.buckets = nil
	return s.deafSync.Wait()
}

// TestSync: buckets come in order, hold all gradients, and what sync does to
// them is what Gradient and the optimiser see; overlapped or not.
func TestSync(t *testing.T) {
	for _, overlap := range []bool{true, false} {
		o := gpuOptions("fp32")
		o.Overlap = overlap
		e := open(t, o)
		var err error
		g, p := programOf(t, smallUNet(), 2, nn.Train, plan.Options{Fuse: true, BucketBytes: 2048})
		if len(p.Buckets) < 3 {
			t.Fatalf("the test needs several buckets, not %d", len(p.Buckets))
		}
		x := loaded(t, e, p, g)
		alone := map[string][]float64{}
		for _, q := range p.Params {
			if alone[q.Name], err = x.Gradient(q.Name); err != nil {
				t.Fatal(err)
			}
		}
		initialise(t, x, g) // the states moved
		var s doubling
		timing, err := x.Step(context.Background(), &s, &optim.Update{Rule: "sgd", LearningRate: 0.5})
		if err != nil {
			t.Fatal(err)
		}
		if s.waits != 1 || timing.Forward <= 0 || timing.Backward <= 0 || timing.Optimizer <= 0 {
			t.Errorf("waited %d times, timing %+v", s.waits, timing)
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

// TestBuckets: a bucket is the memory of its own gradients and of no others.
func TestBuckets(t *testing.T) {
	g, p := programOf(t, smallUNet(), 2, nn.Train, plan.Options{BucketBytes: 2048})
	x := loaded(t, open(t, gpuOptions("fp32")), p, g)
	var s deafSync
	if _, err := x.Step(context.Background(), &s, nil); err != nil {
		t.Fatal(err)
	}
	if len(s.buckets) != len(p.Buckets) {
		t.Fatalf("%d buckets of %d", len(s.buckets), len(p.Buckets))
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
		for _, f := range s.buckets[i].F32 {
			got += math.Abs(float64(f))
		}
		if math.Abs(got-want) > 1e-9*(1+want) {
			t.Errorf("bucket %d holds %v, its gradients %v", i, got, want)
		}
	}
}

// TestNonFinite: a loss that is not a number stops the step before buckets and
// optimiser, and nothing has changed.
func TestNonFinite(t *testing.T) {
	g, p := programOf(t, smallUNet(), 2, nn.Train, plan.Options{Fuse: true})
	x := loaded(t, open(t, gpuOptions("fp32")), p, g)
	u := &optim.Update{Rule: "adam", LearningRate: 1e-3, Step: 1, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	if _, err := x.Step(context.Background(), nil, u); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, x)
	v := make([]float32, p.Tensors[p.Lookup(plan.Input, model.ImageInput)].Elements())
	v[5] = float32(math.Inf(1))
	if err := x.SetInput(model.ImageInput, v); err != nil {
		t.Fatal(err)
	}
	var s deafSync
	_, err := x.Step(context.Background(), &s, u)
	if !errors.Is(err, engine.ErrNonFinite) || len(s.buckets) != 0 || s.waits != 0 {
		t.Errorf("step says %v, handed over %d buckets and waited %d times", err, len(s.buckets), s.waits)
	}
	unchanged(t, x, before)
	feed(t, x, 1)
	if _, err := x.Step(context.Background(), nil, u); err != nil {
		t.Errorf("the next step fails: %v", err)
	}
	if err := checkPadding(x); err != nil {
		t.Error(err)
	}
}

// cancelling cancels a context at its first bucket.
type cancelling struct {
	deafSync
	cancel context.CancelFunc
}

func (s *cancelling) Bucket(i int, b device.Buffer, d device.Stream) error {
	s.cancel()
	return s.deafSync.Bucket(i, b, d)
}

// TestInterrupted: a cancelled context and an error of sync end the step, after
// waiting for what was handed over, and nothing has changed.
func TestInterrupted(t *testing.T) {
	g, p := programOf(t, smallUNet(), 2, nn.Train, plan.Options{BucketBytes: 2048})
	x := loaded(t, open(t, gpuOptions("fp32")), p, g)
	before := snapshot(t, x)
	u := &optim.Update{Rule: "sgd", LearningRate: 1}

	ctx, cancel := context.WithCancel(context.Background())
	c := &cancelling{cancel: cancel}
	if _, err := x.Step(ctx, c, u); !errors.Is(err, context.Canceled) || c.waits != 1 || len(c.buckets) == len(p.Buckets) {
		t.Errorf("step says %v after %d buckets and %d waits", err, len(c.buckets), c.waits)
	}
	unchanged(t, x, before)
	if _, err := x.Step(ctx, nil, u); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context gives %v", err)
	}
	broken := errors.New("wire cut")
	if _, err := x.Step(context.Background(), &deafSync{err: broken}, u); !errors.Is(err, broken) || !strings.Contains(err.Error(), "bucket 0") {
		t.Errorf("step says %v", err)
	}
	unchanged(t, x, before)
}

// TestOptimizers compares five updates of every rule with the reference.
func TestOptimizers(t *testing.T) {
	g, p := programOf(t, smallUNet(), 2, nn.Train, plan.Options{Fuse: true})
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
			initialise(t, x, g)
			for step := 1; step <= 5; step++ {
				feed(t, x, 1)
				u.Step = step
				if _, err := x.Step(context.Background(), nil, &u); err != nil {
					t.Fatal(err)
				}
			}
			return snapshot(t, x)
		}
		want, got := train(truth(t)), train(open(t, gpuOptions("fp32")))
		if len(want) != len(got) {
			t.Errorf("%d names, the reference has %d", len(got), len(want))
		}
		for name := range want {
			if largest(want[name]) > 1e-7 { // slots of biases before a batch norm hold roundings
				near(t, u.Rule+" "+name, got[name], want[name], 2e-3)
			}
		}
	}
}

// TestUpdateErrors: an update that cannot be is refused before anything runs.
func TestUpdateErrors(t *testing.T) {
	g, p := programOf(t, smallUNet(), 1, nn.Train, plan.Options{})
	e := open(t, gpuOptions("fp32"))
	x := loaded(t, e, p, g)
	_, q := programOf(t, smallUNet(), 1, nn.Eval, plan.Options{})
	y, err := e.Load(q, x)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		x    engine.Executable
		u    optim.Update
		want string
	}{
		{x, optim.Update{Rule: "lion"}, `this engine has no rule "lion"`},
		{x, optim.Update{Rule: "adam"}, "count from 1"},
		{y, optim.Update{Rule: "sgd"}, "no gradients"},
	} {
		if _, err := c.x.Step(context.Background(), nil, &c.u); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("step says %v, not %q", err, c.want)
		}
	}
}

// quietSync changes nothing.
type quietSync struct{}

func (quietSync) Bucket(int, device.Buffer, device.Stream) error { return nil }
func (quietSync) Wait() error                                    { return nil }
func (quietSync) Capturable() bool                               { return false }
