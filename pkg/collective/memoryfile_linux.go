package collective

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// newMemoryFile creates a file in dir without a name, so that nothing is left when a
// rank is killed. The other ranks open it by its path in /proc while rank 0 has it open.
// Only the same user may do that.
func newMemoryFile(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil { // the file system has no such files
		return newNamedFile(dir)
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)), nil
}

// hasName reports whether f has a name in its folder and must be removed.
func hasName(f *os.File) bool {
	var stat unix.Stat_t
	return unix.Fstat(int(f.Fd()), &stat) != nil || stat.Nlink > 0
}
