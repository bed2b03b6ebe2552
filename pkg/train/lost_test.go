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

// TestLostDuringTheRun: a run whose folder is deleted, or which loses a file, ends
// with an error, in its last epoch too, and does not make the folder anew.
func TestLostDuringTheRun(t *testing.T) {
	t.Attr("fault", "the run folder, or one of its files, deleted during the run")
	for _, lost := range []string{"", "epochs.csv", "out.log", "run.json", "steps-0.jsonl", "steps-1.jsonl", "events.out.tfevents.*", "checkpoints"} {
		for _, epoch := range []int{1, 3} {
			if lost == "checkpoints" && epoch == 1 {
				continue // it has none yet
			}
			t.Run(fmt.Sprintf("%s in epoch %d", lost, epoch), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "run")
				var once sync.Once
				place := Place{Dir: dir, Progress: func(e, step, _ int) {
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
				_, err := trainAll(t, tiny(), workers, place)
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
	t.Attr("outcome", "the run ends with an error that names the file, and the folder does not come back")
}
