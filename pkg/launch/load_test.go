package launch

import (
	"os"
	"testing"

	"lockstep/pkg/monitor"
	"lockstep/pkg/runs"
	"lockstep/pkg/runs/usage"
)

// TestUsageOfForeignProgram: the launcher records what each worker uses, and reading the run folder does
// not take the file for a log of the program.
func TestUsageOfForeignProgram(t *testing.T) {
	if _, err := monitor.NewCPUMeter(os.Getpid()).Sample(); err != nil {
		t.Skipf("this machine does not say what its processes use: %v", err)
	}
	s, out := shell(t, `i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; sleep 0.2`, 2)
	j, err := launch(t, s)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir := j.Status()[0].Dir
	records, problems, err := usage.Read(dir)
	if err != nil || len(problems) > 0 || len(records) != 2 {
		t.Fatalf("%+v, %v, %v", records, problems, err)
	}
	for _, r := range records {
		if u := r.Summarize(); !(u.Seconds > 0.1) || !(u.PeakMachineMemoryBytes > 0) {
			t.Errorf("rank %d: %+v", r.Rank, u)
		}
	}
	if !runs.IsRunFile(usage.FileName(1)) {
		t.Error("the file is not one of the run")
	}
}

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
