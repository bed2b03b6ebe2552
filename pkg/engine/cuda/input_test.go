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

// batches is a Source of batches that are drawn from seeds.
type batches struct {
	x     engine.Executable
	seeds []uint64
	short bool // the images lack a pixel
}

func (b *batches) Next() (engine.Batch, bool) {
	if len(b.seeds) == 0 {
		return engine.Batch{}, false
	}
	image, target := batchOf(b.x, b.seeds[0])
	b.seeds = b.seeds[1:]
	if b.short {
		image = image[1:]
	}
	return engine.Batch{Inputs: map[string][]float32{model.ImageInput: image, model.TargetInput: target}}, true
}

// prefetched trains on batches that come while the step before them runs, except for the first
// batch of each of two sources, and of a source that is given up after the prefetch of a batch.
func prefetched(t *testing.T, e *Engine, g *nn.Graph, p *plan.Program, sync engine.GradSync, steps int) ([]float64, map[string][]float64) {
	t.Helper()
	x, err := e.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	initialise(t, x, g)
	var first, given, second []uint64
	for step := 1; step <= steps; step++ {
		switch seed := uint64(step % 3); {
		case step <= 4:
			first = append(first, seed)
		case step == 5:
			given = append(given, seed, 99, 98)
		default:
			second = append(second, seed)
		}
	}
	var losses []float64
	step := 1
	train := func(s *batches, count int) {
		t.Helper()
		for range count {
			if ok, err := x.NextBatch(s); !ok || err != nil {
				t.Fatal(ok, err)
			}
			if _, err := x.Step(context.Background(), sync, adam(step)); err != nil {
				t.Fatal(err)
			}
			losses = append(losses, x.Loss())
			step++
		}
	}
	s := &batches{x: x, seeds: first}
	train(s, len(first))
	if ok, err := x.NextBatch(s); ok || err != nil {
		t.Errorf("after the last batch: %v, %v", ok, err)
	}
	s = &batches{x: x, seeds: given}
	train(s, 1)
	if len(s.seeds) != 1 {
		t.Errorf("a step has left %d batches, want 1: it takes one ahead", len(s.seeds))
	}
	train(&batches{x: x, seeds: second}, len(second))
	after := snapshot(t, x)
	s = &batches{x: x, seeds: []uint64{1, 2}}
	if ok, err := x.NextBatch(s); !ok || err != nil {
		t.Fatal(ok, err)
	}
	s.short = true
	if _, err := x.Step(context.Background(), sync, adam(step)); err == nil || !strings.Contains(err.Error(), `set input "image" of the next step`) {
		t.Errorf("values of another length give %v", err)
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
