package logread

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"lockstep/pkg/logread/internal/files"
)

// TestNoPermission also works for root: it lists and opens files as the user
// nobody, on an operating system thread that is discarded afterwards.
func TestNoPermission(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a/log_2.csv": twoRows, "b/log_4.csv": twoRows, "c/log_8.csv": twoRows})
	for path, mode := range map[string]os.FileMode{"a/log_2.csv": 0, "b": 0} {
		path = filepath.Join(dir, path)
		check(t, os.Chmod(path, mode))
		t.Cleanup(func() { check(t, os.Chmod(path, 0o700)) })
	}
	check(t, os.Chmod(filepath.Dir(dir), 0o755)) // the test's own folder: nobody must get there
	type result struct {
		reports map[string]Report
		err     error
	}
	results := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		if os.Getuid() == 0 {
			if err := syscall.Setfsuid(65534); err != nil {
				results <- result{err: err}
				return
			}
		}
		byName := map[string]Report{}
		tasks, err := files.List(dir)
		for _, task := range slices.Concat(tasks...) { // as files.ReadAll does, which has threads of its own
			if _, e := files.Read(t.Context(), task); e != nil {
				err = e
			}
			byName[strings.TrimPrefix(task.Path, dir+"/")] = newReport(&task.Report)
		}
		results <- result{byName, err}
	}()
	got := <-results
	check(t, got.err)
	for _, name := range []string{"a/log_2.csv", "b"} {
		if r := got.reports[name]; len(r.Unused) != 1 || !strings.Contains(r.Unused[0].Reason, "permission denied") {
			t.Errorf("%s: %s", name, r)
		}
	}
	if r := got.reports["c/log_8.csv"]; r.Runs != 1 {
		t.Errorf("what may be read was not: %s", r)
	}
}
