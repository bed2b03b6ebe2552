package launch

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSlurmFullDisk submits a sweep to logs folders of different sizes, each a file system that only
// this thread and its child processes see. Until one has room for everything, nothing is left in it,
// and no job remains.
func TestSlurmFullDisk(t *testing.T) {
	useCommands(t)
	runtime.LockOSThread() // without an unlock, the thread ends with the test
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Skipf("tmpfs: this user may not mount one: %v", err)
	}
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Skipf("tmpfs: this user may not mount one: %v", err)
	}
	s, _ := shell(t, "sleep 600", 1, 2)
	s.Seeds = []int64{1, 2} // two arrays
	for pages := 1; ; pages++ {
		if err := unix.Mount("none", s.Logs, "tmpfs", 0, fmt.Sprintf("size=%d", pages*os.Getpagesize())); err != nil {
			t.Fatal(err)
		}
		j, err := Slurm(t.Context(), "local-test", s)
		if err == nil {
			if pages < 6 { // four scripts and two lists
				t.Errorf("a sweep of four runs was submitted with %d pages", pages)
			}
			if err := j.Kill(); err != nil {
				t.Error(err)
			}
		} else {
			if !strings.Contains(err.Error(), "no space left on device") {
				t.Errorf("%d pages: got error %v, want that the disk is full", pages, err)
			}
			if left, err := os.ReadDir(s.Logs); err != nil || len(left) > 0 {
				t.Errorf("%d pages: left %v, %v in the logs folder", pages, left, err)
			}
		}
		if unmount := unix.Unmount(s.Logs, unix.MNT_DETACH); unmount != nil {
			t.Fatal(unmount)
		}
		if err == nil {
			break
		}
		if pages > 100 {
			t.Fatal("100 pages are not enough")
		}
	}
	cluster.AwaitEmptyQueue(t)
}
