package predict

import (
	"errors"
	"image"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"lockstep/pkg/collective"
	_ "lockstep/pkg/engine/all"
	"lockstep/pkg/train"
	"lockstep/pkg/train/traintest"
)

// TestMain fails if goroutines of engines are left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// trainRun trains a run for a moment, with the changed config, and returns its folder.
func trainRun(t *testing.T, change func(*train.Config)) string {
	t.Helper()
	cfg := traintest.Config()
	cfg.Epochs = 1
	if change != nil {
		change(&cfg)
	}
	dir := filepath.Join(t.TempDir(), "run")
	trainer, err := train.New(t.Context(), cfg, collective.InProcess(1)[0], train.WorkerOptions{Dir: dir})
	if err == nil {
		_, err = trainer.Run(t.Context())
		err = errors.Join(err, trainer.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// open opens the predictor of a run.
func open(t *testing.T, dir string) *Predictor {
	t.Helper()
	p, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// noise returns an image of fixed noise, in which no part is like another.
func noise(height, width int) *image.Gray {
	m := image.NewGray(image.Rect(0, 0, width, height))
	state := uint32(1)
	for i := range m.Pix {
		state = state*1664525 + 1013904223 // Numerical Recipes, section 7.1
		m.Pix[i] = uint8(state >> 24)
	}
	return m
}
