//go:build unix && !linux

package launch

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// addGuard does nothing, because only Linux has subreapers. When the program ends, the
// launcher kills the program's process group.
func addGuard(*exec.Cmd) {}

// signalGuard sends s to the process group of the program.
func signalGuard(pid int, s syscall.Signal) { _ = unix.Kill(-pid, s) }
