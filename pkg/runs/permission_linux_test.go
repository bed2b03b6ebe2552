package runs

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// TestCreateWithoutPermission also works for root: it accesses the file system as the user
// nobody, on a thread that is discarded afterwards.
func TestCreateWithoutPermission(t *testing.T) {
	parent := t.TempDir()
	check(t, os.Chmod(parent, 0o555))
	t.Cleanup(func() { check(t, os.Chmod(parent, 0o755)) })
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		if os.Getuid() == 0 {
			if err := syscall.Setfsuid(65534); err != nil {
				failed <- err
				return
			}
		}
		_, err := Create(filepath.Join(parent, "study", "run"), sampleInfo())
		failed <- err
	}()
	wantError(t, <-failed, "permission denied", parent, "choose a folder that you may write", "LOCKSTEP_LOGS")
}
