package launch

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// TestWorkersEndWithTheLauncher also when it was killed: Linux
// alone tells them.
func TestWorkersEndWithTheLauncher(t *testing.T) {
	t.Attr("fault", "kill -9 of the launcher")
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
	begin := time.Now()
	for range 500 {
		if !slices.ContainsFunc(pids, running) {
			t.Attr("outcome", fmt.Sprintf("its %d workers ended within %.1f s", len(pids), time.Since(begin).Seconds()))
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("of workers %v some still run", pids)
}
