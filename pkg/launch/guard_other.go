//go:build unix && !linux

package launch

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// guarded does nothing: there are no subreapers here. What is in the program's
// process group ends with it.
func guarded(*exec.Cmd) {}

func signalGuard(pid int, s syscall.Signal) { _ = unix.Kill(-pid, s) }
