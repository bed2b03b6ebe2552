package child

import (
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStopDescendants: processes that start others all the time are stopped with
// everything that they started, however late.
func TestStopDescendants(t *testing.T) {
	c := exec.Command("sh", "-c", `i=0; while [ $i -lt 300 ]; do sh -c 'while :; do sleep 0.05; done' & sleep 0.001; i=$((i+1)); done; wait`)
	c.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Kill(-c.Process.Pid, unix.SIGKILL)
		_ = c.Wait()
	})
	time.Sleep(100 * time.Millisecond)
	// On a busy machine one call can be too short. The number of processes is limited, since they
	// would become more faster than the calls can stop them.
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if stopDescendants(); signalDescendants(0) == 0 {
			break
		}
	}
	if n := signalDescendants(0); n > 0 {
		t.Errorf("%d processes run on", n)
	}
}

// TestParseStat checks which processes count as stopped: also one in an uninterruptible sleep, as a parent by vfork is
// while its child is stopped.
func TestParseStat(t *testing.T) {
	for text, want := range map[string][3]any{
		"20236 (vf) D 20230 20236 20230 0": {20230, true, true}, "7 (a) b) (c) T 3 7": {3, true, true}, "7 (sh) t 3": {3, true, true},
		"7 (sh) Z 3": {3, true, true}, "7 (sh) R 3": {3, false, true}, "7 (sleep) S 12": {12, false, true}, "7 (sh)": {0, false, false}, "": {0, false, false},
	} {
		parent, still, ok := parseProcStat(text)
		if got := [3]any{parent, still, ok}; got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
