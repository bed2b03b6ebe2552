package train

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/data"
)

// TestStagedReplicas trains two replicas on one copy of the data. They have the same bits as
// with the original files.
func TestStagedReplicas(t *testing.T) {
	dir, folder := filepath.Join(t.TempDir(), "set"), t.TempDir()
	if err := data.WriteCells(t.Context(), dir, data.CellsOptions{Count: 8, Height: 16, Width: 16, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	cfg := tiny()
	cfg.Epochs, cfg.Batch = 1, 2
	cfg.Data = data.Config{Kind: data.KindPairs, Path: dir, TestImages: 2}
	want, err := Replicas(t.Context(), cfg, nil, 2)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Data.Stage = folder
	got, err := Replicas(t.Context(), cfg, nil, 2)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range got.Weights() {
		if !slices.Equal(w.Float64s(), want.Weights()[i].Float64s()) {
			t.Errorf("%s has other bits", w.Name)
		}
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	cfg.Data.Stage = filepath.Join(folder, "none")
	if _, err := Replicas(t.Context(), cfg, nil, 2); err == nil || !strings.Contains(err.Error(), "the folder does not exist on this machine") {
		t.Errorf("a stage that is not there: %v", err)
	}
}

// TestSlowWorkIsLogged: work on the data is logged if it takes long, and only then.
func TestSlowWorkIsLogged(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	lines := make(chan string, 2)
	trainer := &Trainer{options: WorkerOptions{Log: func(line string) { lines <- line }}}
	trainer.logIfSlow("quick")()
	stop := trainer.logIfSlow("slow")
	if got := <-lines; got != "slow" {
		t.Errorf("logged %q", got)
	}
	stop()
	(&Trainer{}).logIfSlow("nobody listens")()
	if len(lines) > 0 {
		t.Errorf("logged %q too", <-lines)
	}
}
