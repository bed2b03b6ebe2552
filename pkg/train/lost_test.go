package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"lockstep/pkg/runs"
)

// TestLostDuringTheRun: a run whose folder or a file of it is deleted ends with an error, also
// in its last epoch, and does not create the folder again.
func TestLostDuringTheRun(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, lost := range []string{"", "epochs.csv", "out.log", "run.json", "steps-0.jsonl", "steps-1.jsonl", "events.out.tfevents.*", "checkpoints"} {
		for _, epoch := range []int{1, 3} {
			if lost == "checkpoints" && epoch == 1 {
				continue // it has none yet
			}
			t.Run(fmt.Sprintf("%s in epoch %d", lost, epoch), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "run")
				var once sync.Once
				options := WorkerOptions{Dir: dir, Progress: func(e, step, _ int) {
					if e == epoch && step == 2 {
						once.Do(func() {
							found, err := filepath.Glob(filepath.Join(dir, lost))
							if err != nil || len(found) == 0 {
								t.Errorf("found %v, %v", found, err)
							}
							for _, path := range found {
								if err := os.RemoveAll(path); err != nil {
									t.Error(err)
								}
							}
						})
					}
				}}
				workers := 1
				if lost == "steps-1.jsonl" {
					workers = 2
				}
				_, err := trainAll(t, tiny(), workers, options)
				var gone *runs.LostError
				if !errors.As(err, &gone) {
					t.Fatalf("it ended with %v", err)
				}
				if n := strings.Count(err.Error(), "was deleted"); workers == 1 && n != 1 {
					t.Errorf("the error says so %d times: %v", n, err)
				}
				if lost == "" {
					if _, err := os.Stat(dir); err == nil {
						t.Error("the folder came back")
					}
					return
				}
				run, err := runs.Read(dir)
				if err != nil {
					t.Fatal(err)
				}
				// The other workers of a test are canceled, which a launcher tells from a failure.
				if run.Info.Status == runs.StatusDone || run.Info.Status == runs.StatusRunning || !strings.Contains(run.Info.Error, gone.Path) {
					t.Errorf("status %q, error %q", run.Info.Status, run.Info.Error)
				}
			})
		}
	}
}

// TestLostSamplesOfTheGPU: if a rank's file of GPU samples is deleted, the run ends with an
// error after the epoch, also after its last epoch.
func TestLostSamplesOfTheGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, c := range []struct {
		file           string
		epoch, workers int
	}{{"gpu-0.csv", 1, 1}, {"gpu-0.csv", 2, 1}, {"gpu-1.csv", 1, 2}} {
		t.Run(fmt.Sprintf("%s in epoch %d", c.file, c.epoch), func(t *testing.T) {
			options := simulatedGPU(t, WorkerOptions{Dir: filepath.Join(t.TempDir(), "run")})
			var once sync.Once
			options.Progress = func(e, step, _ int) {
				if e == c.epoch && step == 2 {
					once.Do(func() {
						if err := os.Remove(filepath.Join(options.Dir, c.file)); err != nil {
							t.Error(err)
						}
					})
				}
			}
			_, err := trainAll(t, onGPU(tiny()), c.workers, options)
			var lost *runs.LostError
			if !errors.As(err, &lost) || filepath.Base(lost.Path) != c.file || strings.Count(err.Error(), "was deleted") != 1 {
				t.Fatalf("training: got error %v, want one that names %s once", err, c.file)
			}
			run, err := runs.Read(options.Dir)
			if err != nil {
				t.Fatal(err)
			}
			// The other workers of a test are canceled, which a launcher tells from a failure.
			if run.Info.Status == runs.StatusDone || run.Info.Status == runs.StatusRunning || len(run.Epochs) > c.epoch {
				t.Errorf("got status %q and %d epochs, want a failed run of at most %d epochs", run.Info.Status, len(run.Epochs), c.epoch)
			}
			if c.workers == 1 {
				if len(run.Epochs) != c.epoch-1 {
					t.Errorf("got %d epochs, want none that ended after the loss in epoch %d", len(run.Epochs), c.epoch)
				}
			}
		})
	}
}
