// Package child starts and signals child processes that must not outlive this process, and that may
// start processes of their own.
package child

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalGroupByID sends s to the process group that p leads, by ID. Between the check and the
// signal, p may end and another process may get its ID.
func signalGroupByID(p *os.Process, s unix.Signal) {
	if p.Signal(unix.Signal(0)) == nil { // Wait has not returned
		_ = unix.Kill(-p.Pid, s) // it may be gone
	}
}

// TerminatingSignal returns the signal that ended a process, or 0 if it exited by itself.
func TerminatingSignal(x *exec.ExitError) syscall.Signal {
	if s, ok := x.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return s.Signal()
	}
	return 0
}
