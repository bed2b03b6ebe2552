package weights_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockstep/pkg/weights"
)

// TestReadRefusesWhatIsNoFile: what is no file, or too large to be held in memory,
// is an error at once. Opening a named pipe that nobody writes to would wait
// forever.
func TestReadRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	pipe, sparse := filepath.Join(dir, "pipe.safetensors"), filepath.Join(dir, "sparse.safetensors")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(sparse, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(sparse, 1<<40); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		pipe: "it is a named pipe, not a file", "/dev/zero": "it is a device, not a file", dir: "it is a folder, not a file",
		sparse: "it has 1099511627776 bytes, the limit is 68719476736",
	} {
		ended := make(chan error, 1)
		go func() {
			_, err := weights.Read(path)
			ended <- err
		}()
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "read weights: open "+path+": "+want) {
				t.Errorf("%s: error is %v, want %q", path, err, want)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: still reading after 30 s", path)
		}
	}
}
