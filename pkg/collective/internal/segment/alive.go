//go:build unix

package segment

import (
	"os"

	"lockstep/pkg/internal/process"
)

// RecordProcess writes this process's ID, start time and PID namespace to the control
// block, so that the other ranks can see when the process ends.
func (c *ControlBlock) RecordProcess() {
	pid := os.Getpid()
	startTime, _ := process.ReadStat(pid)
	c.startTime.Store(startTime)
	c.Namespace.Store(process.PIDNamespace())
	c.PID.Store(int64(pid)) // last: the others read the other two only once it is set
}

// ProcessExists reports whether the rank's process still exists, be it running or stopped. It
// also returns true for a process that this process cannot see, for example because it runs
// in another container. On Linux, the type Liveness detects the end of such a process.
func (c *ControlBlock) ProcessExists() bool {
	pid := int(c.PID.Load())
	if pid == 0 || c.Namespace.Load() != process.PIDNamespace() {
		return true
	}
	startTime, state := process.ReadStat(pid)
	return process.IsLiveState(state) && startTime == c.startTime.Load() // otherwise another process has the ID now
}
