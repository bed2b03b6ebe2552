package process

import (
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ExitWithStatus ends this process in the same way as another process whose wait status is given:
// with the same exit code or by the same signal.
func ExitWithStatus(status unix.WaitStatus) {
	if !status.Signaled() {
		os.Exit(status.ExitStatus())
	}
	s := status.Signal()
	// Go would print the stacks of all goroutines on some signals: restore the
	// default action, and write no second core dump.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	var defaultAction [32]byte // struct sigaction of rt_sigaction(2): SIG_DFL, no flags, no mask
	const maskBytes = 8
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&defaultAction)), 0, maskBytes, 0, 0)
	_ = unix.Kill(os.Getpid(), s)
	time.Sleep(time.Second)
	os.Exit(128 + int(s)) // the exit code of a shell
}
