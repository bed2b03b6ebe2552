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

// RecordingSync is a GradSync that records the buckets and does not change them.
type RecordingSync struct {
	Buckets []device.Buffer
	Waits   int
	Err     error // what ReduceBucket returns
}

// ReduceBucket records b. It returns an error if buckets are not passed in order.
func (s *RecordingSync) ReduceBucket(i int, b device.Buffer, _ device.Stream) error {
	if i != len(s.Buckets) {
		return fmt.Errorf("got bucket %d, want bucket %d: buckets must be passed in order", i, len(s.Buckets))
	}
	s.Buckets = append(s.Buckets, b)
	return s.Err
}

// Wait increments s.Waits.
func (s *RecordingSync) Wait() error { s.Waits++; return nil }

// Capabilities returns no capabilities.
func (s *RecordingSync) Capabilities() engine.SyncCapabilities { return engine.SyncCapabilities{} }

// NoOpSync is a GradSync that does nothing.
type NoOpSync struct{}

// ReduceBucket does nothing.
func (NoOpSync) ReduceBucket(int, device.Buffer, device.Stream) error { return nil }

// Wait does nothing.
func (NoOpSync) Wait() error { return nil }

// Capabilities returns no capabilities.
func (NoOpSync) Capabilities() engine.SyncCapabilities { return engine.SyncCapabilities{} }

// doublingSync is a GradSync that doubles every gradient in Wait, as if the buckets were summed
// over two workers with equal gradients.
type doublingSync struct{ RecordingSync }

func (s *doublingSync) Wait() error {
	for _, b := range s.Buckets {
		for i := range b.F32 {
			b.F32[i] *= 2
		}
	}
	s.Buckets = nil
	return s.RecordingSync.Wait()
}

// checkReducedGradients checks that Gradient and the optimizer use the reduced gradients.
func (e EngineUnderTest) checkReducedGradients(t *testing.T) {
	for _, overlap := range []bool{true, false} {
		var err error
		g, p := LowerUNet(t, SmallUNetConfig(), 2, nn.Train, plan.Options{Fuse: true, BucketBytes: 2048})
		if len(p.Buckets) < 3 {
			t.Fatalf("the test needs several buckets, not %d", len(p.Buckets))
		}
		x := LoadAndStep(t, e.Open(t, func(o *engine.Options) { o.Overlap = overlap }), p, g, e.FillNaN)
		alone := map[string][]float64{}
		for _, q := range p.Params {
			if alone[q.Name], err = x.Gradient(q.Name); err != nil {
				t.Fatal(err)
			}
		}
		SetInitialValues(t, x, g) // the states moved
		var s doublingSync
		timing, err := x.Step(context.Background(), &s, &optim.Update{Rule: "sgd", LearningRate: 0.5})
		if err != nil {
			t.Fatal(err)
		}
		if s.Waits != 1 || timing.Forward <= 0 || timing.Backward <= 0 || timing.Optimizer <= 0 {
			t.Errorf("got %d calls of Wait and timing %+v, want one call and positive times", s.Waits, timing)
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

// checkBucketContents checks that the GradSync gets all buckets of the program, and that each
// contains exactly its gradients.
func (e EngineUnderTest) checkBucketContents(t *testing.T) {
	g, p := LowerUNet(t, SmallUNetConfig(), 2, nn.Train, plan.Options{BucketBytes: 2048})
	x := e.loadAndStep(t, p, g)
	var s RecordingSync
	if _, err := x.Step(context.Background(), &s, nil); err != nil {
		t.Fatal(err)
	}
	if len(s.Buckets) != len(p.Buckets) {
		t.Fatalf("got %d buckets, want %d", len(s.Buckets), len(p.Buckets))
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
			t.Errorf("bucket %d: got sum of magnitudes %v, want %v, the sum over the gradients of its parameters", i, got, want)
		}
	}
}

// checkNonFiniteLoss checks that a step whose loss is infinite stops before it passes any
// bucket to the GradSync, and changes nothing.
func (e EngineUnderTest) checkNonFiniteLoss(t *testing.T) {
	g, p := LowerUNet(t, SmallUNetConfig(), 2, nn.Train, plan.Options{Fuse: true})
	x := e.loadAndStep(t, p, g)
	u := &optim.Update{Rule: "adam", LearningRate: 1e-3, Step: 1, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	if _, err := x.Step(context.Background(), nil, u); err != nil {
		t.Fatal(err)
	}
	before := SnapshotTensors(t, x)
	v := make([]float32, p.Tensors[p.FindTensor(plan.Input, model.ImageInput)].Elements())
	v[5] = float32(math.Inf(1))
	if err := x.SetInput(model.ImageInput, v); err != nil {
		t.Fatal(err)
	}
	var s RecordingSync
	_, err := x.Step(context.Background(), &s, u)
	if !errors.Is(err, engine.ErrNonFinite) || len(s.Buckets) != 0 || s.Waits != 0 {
		t.Errorf("step with an infinite loss: got error %v, %d buckets and %d calls of Wait, want ErrNonFinite and none", err, len(s.Buckets), s.Waits)
	}
	CheckUnchanged(t, x, before)
	SetRandomInputs(t, x, 1)
	if _, err := x.Step(context.Background(), nil, u); err != nil {
		t.Errorf("the step after one with an infinite loss failed: %v", err)
	}
	if err := e.CheckPadding(x); err != nil {
		t.Error(err)
	}
}

// cancelingSync is a GradSync that cancels a context when it gets the first bucket.
type cancelingSync struct {
	RecordingSync
	cancel context.CancelFunc
}

func (s *cancelingSync) ReduceBucket(i int, b device.Buffer, d device.Stream) error {
	s.cancel()
	return s.RecordingSync.ReduceBucket(i, b, d)
}

// checkInterruption checks that a step stops if its context is canceled or the GradSync
// returns an error. The step must wait for the buckets that it has passed to the GradSync,
// and must not change any parameter or state.
func (e EngineUnderTest) checkInterruption(t *testing.T) {
	g, p := LowerUNet(t, SmallUNetConfig(), 2, nn.Train, plan.Options{BucketBytes: 2048})
	x := e.loadAndStep(t, p, g)
	before := SnapshotTensors(t, x)
	u := &optim.Update{Rule: "sgd", LearningRate: 1}

	ctx, cancel := context.WithCancel(context.Background())
	c := &cancelingSync{cancel: cancel}
	if _, err := x.Step(ctx, c, u); !errors.Is(err, context.Canceled) || c.Waits != 1 || len(c.Buckets) == len(p.Buckets) {
		t.Errorf("step that is canceled at its first bucket: got error %v, %d buckets and %d calls of Wait, want context.Canceled, fewer than %d buckets and one call", err, len(c.Buckets), c.Waits, len(p.Buckets))
	}
	CheckUnchanged(t, x, before)
	if _, err := x.Step(ctx, nil, u); !errors.Is(err, context.Canceled) {
		t.Errorf("step with a canceled context: got error %v, want context.Canceled", err)
	}
	broken := errors.New("wire cut")
	if _, err := x.Step(context.Background(), &RecordingSync{Err: broken}, u); !errors.Is(err, broken) || !strings.Contains(err.Error(), "bucket 0") {
		t.Errorf("step whose GradSync fails: got error %v, want one that names bucket 0 and wraps %v", err, broken)
	}
	CheckUnchanged(t, x, before)
}

// checkOptimizers compares five updates by each rule with the reference engine.
func (e EngineUnderTest) checkOptimizers(t *testing.T) {
	g, p := LowerUNet(t, SmallUNetConfig(), 2, nn.Train, plan.Options{Fuse: true})
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
			SetInitialValues(t, x, g)
			for step := 1; step <= 5; step++ {
				SetRandomInputs(t, x, 2) // not 1: there a ReLU's decision depends on the last bit (see cpu's TestFlips)
				u.Step = step
				if _, err := x.Step(context.Background(), nil, &u); err != nil {
					t.Fatal(err)
				}
			}
			return SnapshotTensors(t, x)
		}
		want, got := train(NewReferenceEngine(t)), train(e.Open(t, nil))
		if len(want) != len(got) {
			t.Errorf("got %d persistent tensors, want %d as in the reference engine", len(got), len(want))
		}
		for name := range want {
			if MaxMagnitude(want[name]) > 1e-7 { // slots of biases before a batch norm hold roundings
				CheckNear(t, u.Rule+" "+name, got[name], want[name], 2e-3)
			}
		}
	}
}

func (e EngineUnderTest) checkUpdateErrors(t *testing.T) {
	g, p := LowerUNet(t, SmallUNetConfig(), 1, nn.Train, plan.Options{})
	on := e.Open(t, nil)
	x := LoadAndStep(t, on, p, g, e.FillNaN)
	_, q := LowerUNet(t, SmallUNetConfig(), 1, nn.Eval, plan.Options{})
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
			t.Errorf("step with an invalid update: got error %v, want %q", err, c.want)
		}
	}
}
