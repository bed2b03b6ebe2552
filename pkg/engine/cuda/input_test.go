package cuda

import (
	"context"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// prefetched trains on batches that come while the step before them runs.
func prefetched(t *testing.T, e *Engine, g *nn.Graph, p *plan.Program, sync engine.GradSync, steps int) ([]float64, map[string][]float64) {
	t.Helper()
	x, err := e.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	ahead, ok := x.(engine.Prefetcher)
	if !ok {
		t.Fatalf("a %T cannot take inputs ahead", x)
	}
	initialise(t, x, g)
	images, targets := make([][]float32, steps+2), make([][]float32, steps+2)
	for step := 1; step <= steps+1; step++ {
		images[step], targets[step] = batchOf(x, uint64(step%3))
	}
	var losses []float64
	step := 1
	ahead.SetPrefetch(func() map[string][]float32 {
		if step == 5 {
			return nil // as if the loader were late
		}
		return map[string][]float32{model.ImageInput: images[step+1], model.TargetInput: targets[step+1]}
	})
	for ; step <= steps; step++ {
		if step == 1 || step == 6 {
			if err := x.SetInput(model.ImageInput, images[step]); err != nil {
				t.Fatal(err)
			}
			if err := x.SetInput(model.TargetInput, targets[step]); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := x.Step(context.Background(), sync, adam(step)); err != nil {
			t.Fatal(err)
		}
		losses = append(losses, x.Loss())
	}
	after := snapshot(t, x)
	ahead.SetPrefetch(func() map[string][]float32 { return map[string][]float32{model.ImageInput: images[1][1:]} })
	if _, err := x.Step(context.Background(), sync, adam(step)); err == nil || !strings.Contains(err.Error(), `set input "image" of the next step`) {
		t.Errorf("values of another length give %v", err)
	}
	ahead.SetPrefetch(nil)
	if _, err := x.Step(context.Background(), sync, adam(step)); err != nil {
		t.Error(err)
	}
	return losses, after
}

// TestAhead checks that training on prefetched batches gives the same bits, in unsplit and
// split steps, and that the copies are enqueued after the launch of a step.
func TestAhead(t *testing.T) {
	const steps = 7
	g, p := programOf(t, trainedUNet(), 2, nn.Train, plan.Options{Fuse: true, BucketBytes: 8192})
	wantLosses, want := trained(t, open(t, gpuOptions("bf16")), g, p, steps)
	for _, sync := range []engine.GradSync{nil, quietSync{}} {
		losses, got := prefetched(t, open(t, gpuOptions("bf16")), g, p, sync, steps)
		near(t, "loss", losses, wantLosses, 0)
		for name := range want {
			near(t, name, got[name], want[name], 0)
		}
	}

	m := clibtest.New(clibtest.Options{})
	prefetched(t, openOn(t, m, gpuOptions("bf16")), g, p, nil, steps)
	calls := strings.Join(m.Calls(), "\n")
	first := calls[strings.Index(calls, "cuGraphLaunch"):]
	if n := strings.Count(first[:strings.Index(first, "cuEventSynchronize")], "cuMemcpyHtoDAsync"); n != 2 {
		t.Errorf("%d copies between the launch of a step and the wait for it", n)
	}
	if n := strings.Count(calls, "cuStreamBeginCapture"); n != 2 {
		t.Errorf("%d graphs were recorded, want one for each way of the inputs", n)
	}
}
