package train

import (
	"context"
	"math"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/runs"
)

// BenchmarkRecordStep measures what rank 0 writes for each step.
func BenchmarkRecordStep(b *testing.B) {
	cfg, err := Worker{Config: "unet2d-cells", Set: []string{"data.count=16", "data.height=32", "data.width=32"}}.Resolve()
	if err != nil {
		b.Fatal(err)
	}
	t, err := New(context.Background(), cfg, collective.InProcess(1)[0], WorkerOptions{Dir: b.TempDir() + "/run"})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = t.Close() }()
	r, err := t.openRunFiles(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	step := runs.Step{Epoch: 1, Samples: 4, Data: math.Pi / 1e4, Forward: math.E / 1e3, Backward: math.Sqrt2 / 1e3, Wait: math.Phi / 1e4, AllReduce: 1 / math.Pi / 1e4, Optimizer: 1 / math.E / 1e4, Loss: math.Ln2, UntilCollective: math.Ln10 / 1e3, Sent: 484132}
	b.ReportAllocs()
	for b.Loop() {
		step.Step++
		if err := r.writeStep(step); err != nil {
			b.Fatal(err)
		}
	}
	if err := r.close(context.Background(), nil); err != nil {
		b.Fatal(err)
	}
}
