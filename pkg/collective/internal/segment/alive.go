//go:build unix

package segment

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// RecordProcess writes this process's ID, start time and PID namespace to the control
// block, so that the other ranks can see when the process ends.
func (c *ControlBlock) RecordProcess() {
	pid := os.Getpid()
	startTime, _ := processStart(pid)
	c.startTime.Store(startTime)
	c.Namespace.Store(pidNamespace())
	c.PID.Store(int64(pid)) // last, because the other ranks read the other two only once it is set
}

// ProcessExists reports whether the rank's process still exists, be it running or stopped. It
// also returns true for a process that this process cannot see, for example because it runs
// in another container. On Linux, the type Liveness detects the end of such a process.
func (c *ControlBlock) ProcessExists() bool {
	pid := int(c.PID.Load())
	if pid == 0 || c.Namespace.Load() != pidNamespace() {
		return true
	}
	startTime, running := processStart(pid)
	return running && startTime == c.startTime.Load() // otherwise another process has the ID now
}

// pidNamespace returns a number that identifies this process's PID namespace, or 0 if it
// is unknown. Process IDs can be compared only within one namespace.
func pidNamespace() uint64 {
	var s unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &s); err != nil {
		return 0
	}
	return s.Ino
}

// processStart returns the start time of a process in clock ticks since boot, and whether
// the process is running. A zombie is not running.
func processStart(pid int) (startTime uint64, running bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		if _, err := os.Stat("/proc/self/stat"); err == nil {
			return 0, false
		}
		// Without /proc, signal 0 checks whether the process exists.
		return 0, !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
	}
	// The command name, in parentheses, may contain any character. The state (field 3
	// of proc(5)) and the start time (field 22) follow it.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return 0, false
	}
	startTime, err = strconv.ParseUint(fields[19], 10, 64)
	return startTime, err == nil && fields[0] != "Z" && fields[0] != "X"
}
