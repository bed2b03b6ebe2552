package bench

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"lockstep/pkg/bench/internal/benchtest"
)

// tinyConfig writes a config whose epochs take milliseconds, and returns its path.
func tinyConfig(t *testing.T) string {
	t.Helper()
	path := t.TempDir() + "/tiny.yaml"
	text := "name: tiny\nmodel: {kind: unet2d, base: 2, depth: 1}\ndata: {kind: cells, count: 10, height: 16, width: 16, test_images: 2}\nbatch: 2\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestMeasureScaling checks the rows of two repeats more than a start has. Their numbers mean nothing.
func TestMeasureScaling(t *testing.T) {
	benchtest.UseTestBinaryAsWorker(t)
	var log bytes.Buffer
	got, err := MeasureScaling(t.Context(), ScalingOptions{Config: tinyConfig(t), Workers: []int{1, 2}, Repeats: scalingRepeatsPerStart + 1, Output: &log})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || !strings.Contains(got[0].Name, "weak scaling 1 → 2 workers") || !strings.Contains(got[1].Name, "2 runs of 1 worker side by side") {
		t.Fatalf("records: %+v", got)
	}
	for _, r := range got {
		if r.Repeats != scalingRepeatsPerStart+1 || !(r.Value > 0 && r.PeerValue > 0 && r.Ratio > 0) || r.Interval == nil || r.Peer != "1 worker" {
			t.Errorf("record %+v", r)
		}
	}
	if got[0].Target != weakScalingTargetSpeedup || got[1].Target != 0 {
		t.Errorf("targets %g and %g", got[0].Target, got[1].Target)
	}
	if n := strings.Count(log.String(), "after 6 repeats"); n != 3 {
		t.Errorf("log:\n%s", log.String())
	}
}

// TestEpochWorkerRefuses: another request than for an epoch ends the worker.
func TestEpochWorkerRefuses(t *testing.T) {
	err := RunWorker(t.Context(), WorkerOptions{Task: taskEpochs}, strings.NewReader("step\n"), &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), `unknown request "step", want epoch`) {
		t.Errorf("error %v", err)
	}
	if err := RunWorker(t.Context(), WorkerOptions{Task: taskEpochs}, strings.NewReader(""), &bytes.Buffer{}); err != nil {
		t.Errorf("without requests: %v", err)
	}
}

func TestInvalidEpochOptions(t *testing.T) {
	ctx := t.Context()
	_, scalingErr := MeasureScaling(ctx, ScalingOptions{Workers: []int{1, 0}, Repeats: 1})
	_, oneErr := MeasureScaling(ctx, ScalingOptions{Workers: []int{1}, Repeats: 1})
	for want, err := range map[string]error{
		"at least two worker counts": oneErr,
		"got worker counts [1 0]":    scalingErr,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if _, err := MeasureScaling(ctx, ScalingOptions{Workers: []int{1, 2}}); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("no repeats: error %v", err)
	}
}
