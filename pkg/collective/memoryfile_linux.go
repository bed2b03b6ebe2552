package collective

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// newMemoryFile makes a file in dir that has no name there: whenever a rank is
// killed, nothing is left. The others open it by what /proc calls it, which
// its user alone may, as long as rank 0 has it open.
func newMemoryFile(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil { // the file system has no such files
		return newNamedFile(dir)
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)), nil
}

// hasName says whether a file must be removed.
func hasName(f *os.File) bool {
	var stat unix.Stat_t
	return unix.Fstat(int(f.Fd()), &stat) != nil || stat.Nlink > 0
}
