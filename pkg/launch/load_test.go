package launch

import (
	"os"
	"testing"

	"lockstep/pkg/monitor"
)

// TestLoadOfForeignProgram: the launcher records the CPU time of its workers and of other
// processes.
func TestLoadOfForeignProgram(t *testing.T) {
	if _, err := monitor.NewCPUMeter(os.Getpid()).Sample(); err != nil {
		t.Skipf("this machine does not say what its processes use: %v", err)
	}
	s, out := shell(t, `i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done`, 2)
	j, err := launch(t, s)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := read(t, j.Status()[0].Dir)
	if len(r.Loads) != 1 || r.Loads[0].Epoch != 1 || r.Loads[0].OwnSeconds < 0.02 || r.Loads[0].Seconds <= 0 {
		t.Errorf("loads %+v", r.Loads)
	}
}
