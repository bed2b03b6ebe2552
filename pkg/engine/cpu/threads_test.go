package cpu

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// TestManyThreads checks that training steps with 64 threads give the same bits as with
// one, and that a step has as many synchronizations with 64 threads as with two, except that
// the gradient of a batch norm with too few channels for 64 threads may need one more. A trace
// has their number.
func TestManyThreads(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(64))
	g, p := lowered(t, alignedUNet(), 3, nn.Train, plan.Options{Fuse: true})
	type result struct {
		bits             []uint32
		synchronizations int64
	}
	results := map[int]result{}
	const steps = 2
	for _, threads := range []int{1, 2, 64} {
		e, ok := open(t, "", threads).(*Engine)
		if !ok {
			t.Fatal("no engine of this package")
		}
		x := loaded(t, e, p, g)
		file := filepath.Join(t.TempDir(), "trace-0.json")
		if err := e.Profile(engine.Profile{First: 1, Steps: steps, Trace: file}); err != nil {
			t.Fatal(err)
		}
		before := e.threads.SynchronizationCount()
		for step := range steps {
			u := optim.Update{Rule: "adam", LearningRate: 1e-3, Step: step + 1, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, ClipNorm: 1}
			if _, err := x.Step(context.Background(), nil, &u); err != nil {
				t.Fatal(err)
			}
		}
		r := result{synchronizations: e.threads.SynchronizationCount() - before}
		for _, name := range x.Names() {
			v, err := x.Get(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range v {
				r.bits = append(r.bits, math.Float32bits(float32(f)))
			}
		}
		results[threads] = r

		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var trace struct {
			TraceEvents []traceEvent `json:"traceEvents"`
		}
		if err := json.Unmarshal(text, &trace); err != nil {
			t.Fatal(err)
		}
		for step := 1; step <= steps; step++ {
			i := slices.IndexFunc(trace.TraceEvents, func(e traceEvent) bool { return e.Name == fmt.Sprint("ProfilerStep#", step) })
			if i < 0 {
				t.Fatalf("the trace has no step %d", step)
			}
			if got, want := trace.TraceEvents[i].Arguments["synchronizations"], fmt.Sprint(r.synchronizations/steps); got != want {
				t.Errorf("%d threads: step %d of the trace has %s synchronizations, want %s", threads, step, got, want)
			}
		}
	}
	if len(results[1].bits) < 1000 || !slices.Equal(results[1].bits, results[2].bits) || !slices.Equal(results[1].bits, results[64].bits) {
		t.Errorf("the parameters of 1, 2 and 64 threads differ (%d values)", len(results[1].bits))
	}
	one, two, many := results[1].synchronizations, results[2].synchronizations, results[64].synchronizations
	norms := int64(0)
	for _, k := range p.Kernels {
		if k.Op == plan.OpBatchNormBackward {
			norms++
		}
	}
	if one != 0 || two == 0 || many < two || many > two+steps*norms {
		t.Errorf("%d steps have %d synchronizations with 1 thread, %d with 2 and %d with 64; want 0, some, and at most one more for each of %d batch norms", steps, one, two, many, norms)
	}
	t.Logf("%d synchronizations per step", many/steps)
}
