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

// From linux/futex.h. They are the forms that work between processes (without
// FUTEX_PRIVATE_FLAG).
const (
	futexWait = 0
	futexWake = 1
)

// processBell wakes processes by futex(2) on arrived, the word they wait for.
type processBell struct{ memory segment }

func newProcessBell(s segment) bell { return processBell{s} }

// sleep does not see ctx end; its caller looks after d.
func (b processBell) sleep(_ context.Context, rank int, seen uint32, d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	// EAGAIN (the word has changed), ETIMEDOUT and EINTR all mean: look again.
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&b.memory.control(rank).arrived)),
		futexWait, uintptr(seen), uintptr(unsafe.Pointer(&t)), 0, 0)
}

func (b processBell) ring(rank int) {
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&b.memory.control(rank).arrived)),
		futexWake, math.MaxInt32, 0, 0, 0)
}

// reserve gives f its size and the room for it.
func reserve(f *os.File, n int64) error { return unix.Fallocate(int(f.Fd()), 0, 0, n) }
