package collective

import (
	"context"
	"math"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From linux/futex.h. Without FUTEX_PRIVATE_FLAG these operations work between
// processes.
const (
	futexWait = 0
	futexWake = 1
)

// processNotifier wakes processes by futex(2) on the word that they wait for, arrived.
type processNotifier struct{ memory segment }

func newProcessNotifier(s segment) notifier { return processNotifier{s} }

// sleep ignores ctx, which futex(2) cannot wait for; the caller checks ctx after d.
func (b processNotifier) sleep(_ context.Context, rank int, seen uint32, d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	// After EAGAIN (the word has changed), ETIMEDOUT and EINTR the caller checks again.
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&b.memory.control(rank).arrived)),
		futexWait, uintptr(seen), uintptr(unsafe.Pointer(&t)), 0, 0)
}

func (b processNotifier) notify(rank int) {
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&b.memory.control(rank).arrived)),
		futexWake, math.MaxInt32, 0, 0, 0)
}

// reserve sets the size of f to n bytes and allocates them on the file system.
func reserve(f *os.File, n int64) error { return unix.Fallocate(int(f.Fd()), 0, 0, n) }
