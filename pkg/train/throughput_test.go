package train

import (
	"path/filepath"
	"testing"

	"lockstep/pkg/collective"
	"lockstep/pkg/runs"
)

// TestRateOf compares the throughput with values computed by hand from the program's FLOPs, the
// batch and the peak. Recomputed activations do not change it. run.json has both numbers.
func TestRateOf(t *testing.T) {
	var flops [2]int64
	for i, again := range []bool{false, true} {
		cfg := tiny()
		cfg.Recompute = again
		tr, err := New(t.Context(), cfg, collective.Single(), WorkerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		flops[i] = tr.train.Program().StepFLOPs()
		tr.peak = 8 * float64(flops[i])
		// Two batches in half a second: FLOPs of four steps per second, at a peak of eight.
		if r := tr.throughputOf(2*cfg.Batch, 0.5); r.samples != float64(4*cfg.Batch) || r.flops != 4*float64(flops[i]) || r.fractionOfPeak != 0.5 {
			t.Errorf("recompute %v: %+v with %d FLOPs a step", again, r, flops[i])
		}
		tr.peak = 0
		if r := tr.throughputOf(1, 0); r != (throughput{}) {
			t.Errorf("in no time: %+v", r)
		}
		if r := tr.throughputOf(1, 1); r.fractionOfPeak != 0 {
			t.Errorf("without a peak: %+v", r)
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if flops[0] != flops[1] || flops[0] == 0 {
		t.Errorf("a step has %d FLOPs, %d with recomputation", flops[0], flops[1])
	}
	dir := filepath.Join(t.TempDir(), "run")
	cfg := tiny()
	cfg.Epochs, cfg.Recompute = 1, true
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	run, err := runs.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if run.Info.FLOPsPerStep != flops[0] || !(run.Info.PeakFLOPS > 0) || run.Info.Config["recompute"] != true {
		t.Errorf("run.json has %d FLOPs a step, want %d, a peak of %g, recompute %v", run.Info.FLOPsPerStep, flops[0], run.Info.PeakFLOPS, run.Info.Config["recompute"])
	}
}
