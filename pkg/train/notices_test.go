package train

import (
	"os"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda"
	"lockstep/pkg/internal/clib/clibtest"
	"lockstep/pkg/internal/gputest"
)

// TestNoticesOfTheEngine: if cuDNN has no deterministic algorithm for a convolution, the run
// continues, and its log contains a note.
func TestNoticesOfTheEngine(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	var log []string
	options := simulatedGPU(t, WorkerOptions{Dir: t.TempDir(), Log: func(l string) { log = append(log, l) }})
	options.Open = func(o engine.Options, localRank int) (engine.Engine, error) {
		s, err := clibtest.New(clibtest.Options{Execute: gputest.ExecuteKernel}).OpenStack()
		if err != nil {
			return nil, err
		}
		gputest.MarkEnginesNondeterministic(s)
		return cuda.NewWithLibraries(s, os.Getenv, o, localRank)
	}
	cfg := onGPU(tiny())
	cfg.Epochs = 1
	if _, err := trainAll(t, cfg, 1, options); err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(log, "\n"); !strings.Contains(all, "note: cuDNN has no algorithm for the convolution forward ") {
		t.Errorf("the log has no notice:\n%s", all)
	}
}
