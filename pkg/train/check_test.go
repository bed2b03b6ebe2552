package train

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckCanceled: an interrupt of a check is not the user's mistake.
func TestCheckCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Worker{Config: "unet2d-cells"}.Check(ctx, 1, io.Discard)
	var wrong *UsageError
	if !errors.Is(err, context.Canceled) || errors.As(err, &wrong) {
		t.Errorf("error is %v of type %T, want %v and no UsageError", err, err, context.Canceled)
	}
}

// TestOpenPredictorCanceled: opening the data of a run ends when the context does.
func TestOpenPredictorCanceled(t *testing.T) {
	cfg, dir := tiny(), t.TempDir()
	if _, err := trainAll(t, cfg, 1, WorkerOptions{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p, err := OpenPredictor(ctx, dir, "")
	if p != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("predictor %v, error %v, want %v", p, err, context.Canceled)
	}
}

// TestOpenPredictorByName: a run is found by its name in the logs folder, as scaling.Read finds it.
func TestOpenPredictorByName(t *testing.T) {
	logs := t.TempDir()
	t.Setenv("LOCKSTEP_LOGS", logs)
	if _, err := trainAll(t, tiny(), 1, WorkerOptions{Dir: filepath.Join(logs, "study", "ddp-n1-s1")}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"study/ddp-n1-s1", "logs/study/ddp-n1-s1"} {
		p, err := OpenPredictor(t.Context(), name, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := OpenPredictor(t.Context(), "study/typo", ""); err == nil || !strings.Contains(err.Error(), "open predictor: locate logs: ") {
		t.Errorf("got error %v, want that the run does not exist", err)
	}
}

// TestCheckUnsupportedOnGPU: a check, which needs no GPU, refuses a network that no GPU can train.
func TestCheckUnsupportedOnGPU(t *testing.T) {
	w := Worker{Config: "unet2d-cells", Set: []string{"model.classes=4"}}
	if err := w.Check(t.Context(), 1, io.Discard); err != nil {
		t.Error(err)
	}
	w.Device = "cuda"
	var wrong *UsageError
	if err := w.Check(t.Context(), 1, io.Discard); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "device cuda does not support operation pixel_cross_entropy") {
		t.Errorf("got error %v, want that cuda does not support the loss", err)
	}
}
