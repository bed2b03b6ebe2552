package runfolder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/pkg/monitor"
)

// TestUsageIsNotRecorded: the run folder is gone, so that nothing can be recorded.
func TestUsageIsNotRecorded(t *testing.T) {
	if _, err := monitor.NewCPUMeter(os.Getpid()).Sample(); err != nil {
		t.Skip("this machine measures no usage")
	}
	var notes []error
	stop := RecordResourceUsage(filepath.Join(t.TempDir(), "missing"), map[int]int{0: 1}, func(err error) { notes = append(notes, err) })
	stop()
	if len(notes) == 0 {
		t.Fatal("got no note that the usage is not recorded")
	}
	if want := "CPU, memory and network usage of this run is not recorded, but the run continues: "; !strings.Contains(notes[0].Error(), want) {
		t.Errorf("got %q, want %q", notes[0], want)
	}
}
