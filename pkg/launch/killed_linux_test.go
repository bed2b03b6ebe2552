package launch

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// TestWorkersEndWithTheLauncher also when it was killed: Linux
// alone tells them.
func TestWorkersEndWithTheLauncher(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := &transcript{}
	launcher := exec.Command(self, "launch", t.TempDir())
	launcher.Stdout, launcher.Stderr = out, out
	launcher.WaitDelay = 10 * time.Second
	if err := launcher.Start(); err != nil {
		t.Fatal(err)
	}
	out.await(t, "up\n", 2)
	if err := launcher.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := launcher.Wait(); err == nil {
		t.Error("launcher ended well")
	}
	pids := out.pids(t)
	for range 500 {
		if !slices.ContainsFunc(pids, running) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("of workers %v some still run", pids)
}
