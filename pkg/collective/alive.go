//go:build unix

package collective

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sign records this process in the control block, so that the other ranks can see
// when it ends.
func (c *control) sign() {
	pid := os.Getpid()
	startTime, _ := processStart(pid)
	c.startTime.Store(startTime)
	c.namespace.Store(processNamespace())
	c.pid.Store(int64(pid)) // last: the other ranks read the rest only once this is set
}

// running reports whether the rank's process still exists, stopped or not. It is true
// for a process that cannot be seen from here, such as one in another container; on
// Linux, the lock in liveness detects when that process ends.
func (c *control) running() bool {
	pid := int(c.pid.Load())
	if pid == 0 || c.namespace.Load() != processNamespace() {
		return true
	}
	startTime, running := processStart(pid)
	return running && startTime == c.startTime.Load() // otherwise the id belongs to another process now
}

// processNamespace identifies this process's PID namespace; 0 if it is unknown. Process
// ids can be compared only within one namespace.
func processNamespace() uint64 {
	var s unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &s); err != nil {
		return 0
	}
	return s.Ino
}

// processStart returns when a process started, in the kernel's clock ticks, and whether
// it is running. A zombie is not running.
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
