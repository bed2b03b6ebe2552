package collective

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// lives is the file of the shared memory, in which each rank's process has a byte
// locked for as long as it lives, stopped or not. The kernel gives the lock up
// when the process ends, however it ends, and the others see that also from
// another container, where they cannot see the process.
type lives struct{ file *os.File }

// holdLife locks the byte of rank in f.
func holdLife(f *os.File, rank int) (lives, error) {
	// A descriptor of its own: f is closed when all ranks have opened it.
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return lives{}, err
	}
	l := lives{os.NewFile(uintptr(fd), f.Name())}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, byteLock(rank)); err != nil {
		_ = l.Close()
		return lives{}, err
	}
	return l, nil
}

// byteLock describes a lock of the byte of rank. Bytes of lives are numbered by
// rank, whatever the memory holds there.
func byteLock(rank int) *unix.Flock_t {
	return &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: int64(rank), Len: 1}
}

// holds reports whether the process of another rank holds its byte, or whether
// that cannot be known.
func (l lives) holds(rank int) bool {
	lock := byteLock(rank)
	return unix.FcntlFlock(l.file.Fd(), unix.F_OFD_GETLK, lock) != nil || lock.Type != unix.F_UNLCK
}

// Close gives the lock up.
func (l lives) Close() error { return l.file.Close() }
