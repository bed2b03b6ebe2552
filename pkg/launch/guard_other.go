//go:build unix && !linux

package launch

import (
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// addGuard does nothing, because only Linux has subreapers. When the program ends, the
// launcher kills the program's process group.
func addGuard(*exec.Cmd) {}

// signalGuard sends s to the process group of the program.
func signalGuard(p *os.Process, s unix.Signal) { signalGroup(p, s) }
