//go:build unix && !linux

package child

import (
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// AddGuard does nothing, because only Linux has subreapers. When the program ends, the launcher
// kills its process group.
func AddGuard(*exec.Cmd) {}

// SignalGuard sends s to the process group of the program.
func SignalGuard(p *os.Process, s unix.Signal) { SignalGroup(p, s) }

// RunEnvironment returns LOCKSTEP_RUN with the run folder dir. Only Linux shows the environment of
// other processes, so other variables would have no use.
func RunEnvironment(dir string) []string { return []string{"LOCKSTEP_RUN=" + dir} }

// KillOrphans does nothing, because it finds processes by their environment.
func KillOrphans(...string) (ended []int, err error) { return nil, nil }

// EndWithParent does nothing, because only Linux sends a signal when the parent ends.
func EndWithParent() {}
