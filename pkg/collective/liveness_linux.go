package collective

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// liveness detects when the process of a rank ends. Each process locks one byte of the
// shared memory's file for as long as it exists, stopped or not. The kernel releases the
// lock when the process ends, however it ends. Ranks in another container see that too,
// although they cannot see the process.
type liveness struct{ file *os.File }

// lockLiveness locks the byte of rank in f.
func lockLiveness(f *os.File, rank int) (liveness, error) {
	// The lock needs a descriptor that stays open: f is closed once all ranks have
	// opened it.
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return liveness{}, err
	}
	l := liveness{os.NewFile(uintptr(fd), f.Name())}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, byteLock(rank)); err != nil {
		_ = l.Close()
		return liveness{}, err
	}
	return l, nil
}

// byteLock returns the lock of byte number rank of the file. What the memory contains
// there does not matter.
func byteLock(rank int) *unix.Flock_t {
	return &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: int64(rank), Len: 1}
}

// alive reports whether the process of another rank still has its byte locked. It is
// true if that cannot be found out.
func (l liveness) alive(rank int) bool {
	lock := byteLock(rank)
	return unix.FcntlFlock(l.file.Fd(), unix.F_OFD_GETLK, lock) != nil || lock.Type != unix.F_UNLCK
}

// Close releases the lock.
func (l liveness) Close() error { return l.file.Close() }
