package segment

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Operations of futex(2), from linux/futex.h. Without FUTEX_PRIVATE_FLAG they work between
// processes.
const (
	futexWait = 0
	futexWake = 1
)

// processNotifier is a Notifier for ranks that are processes. A rank sleeps in futex(2)
// until the counter changes.
type processNotifier struct{ memory Segment }

// NewProcessNotifier returns the notifier of ranks that are processes and share s.
func NewProcessNotifier(s Segment) Notifier { return processNotifier{s} }

// Sleep implements Notifier. It ignores ctx, because futex(2) cannot wait for a context.
func (b processNotifier) Sleep(_ context.Context, counter int, seen uint32, d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	// After EAGAIN (the counter has changed), ETIMEDOUT and EINTR the caller checks again.
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(b.memory.waitCounter(counter))),
		futexWait, uintptr(seen), uintptr(unsafe.Pointer(&t)), 0, 0)
}

func (b processNotifier) Notify(counter int) {
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(b.memory.waitCounter(counter))),
		futexWake, math.MaxInt32, 0, 0, 0)
}

// newMemoryFile creates a file in dir without a name, so that nothing is left when a rank is
// killed. Other ranks of the same user can open it by its path in /proc, which Name returns, until
// rank 0 closes it.
func newMemoryFile(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil { // the file system does not support O_TMPFILE
		return newNamedFile(dir)
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)), nil
}

// hasName reports whether f has a name in its folder and must be removed.
func hasName(f *os.File) bool {
	var stat unix.Stat_t
	return unix.Fstat(int(f.Fd()), &stat) != nil || stat.Nlink > 0
}

func allocateFile(f *os.File, n int64) error { return unix.Fallocate(int(f.Fd()), 0, 0, n) }

// Liveness detects when the process of a rank ends. Each process locks one byte of the
// shared file for as long as it exists, stopped or not. The kernel releases the lock when
// the process ends, however it ends. Ranks in another container see the lock too, although
// they cannot see the process.
type Liveness struct{ file *os.File }

// LockRankByte locks the byte of f that belongs to rank, until the result is closed or the
// process ends.
func LockRankByte(f *os.File, rank int) (Liveness, error) {
	// The lock needs a descriptor that stays open, but f is closed once all ranks have
	// opened it.
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return Liveness{}, err
	}
	l := Liveness{os.NewFile(uintptr(fd), f.Name())}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, newByteLock(rank)); err != nil {
		_ = l.Close()
		return Liveness{}, err
	}
	return l, nil
}

// newByteLock describes a write lock on the byte at offset rank, which it does not change.
func newByteLock(rank int) *unix.Flock_t {
	return &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: int64(rank), Len: 1}
}

// IsAlive reports whether the process of another rank still has its byte locked. It also
// returns true if the lock cannot be examined.
func (l Liveness) IsAlive(rank int) bool {
	lock := newByteLock(rank)
	return unix.FcntlFlock(l.file.Fd(), unix.F_OFD_GETLK, lock) != nil || lock.Type != unix.F_UNLCK
}

// Close releases the lock.
func (l Liveness) Close() error { return l.file.Close() }
