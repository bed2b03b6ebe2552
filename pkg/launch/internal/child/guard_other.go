//go:build unix && !linux

package child

import (
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// AddGuard does nothing, because only Linux has subreapers. When the program ends, the
// launcher kills the program's process group.
func AddGuard(*exec.Cmd) {}

// SignalGuard sends s to the process group of the program.
func SignalGuard(p *os.Process, s unix.Signal) { SignalGroup(p, s) }
