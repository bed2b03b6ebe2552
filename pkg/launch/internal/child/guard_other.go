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

// RunEnvironment returns LOCKSTEP_RUN with the run folder dir. Further variables would be of no
// use, because only on Linux can a process read the environment of others.
func RunEnvironment(dir string) []string { return []string{"LOCKSTEP_RUN=" + dir} }

// KillOrphans does nothing on this system, because it would have to read other processes'
// environments.
func KillOrphans(...string) (ended []int, err error) { return nil, nil }

// EndWithParent does nothing, because only Linux sends a signal when the parent ends.
func EndWithParent() {}
