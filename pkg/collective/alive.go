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

// sign says which process a rank is, so that the others can see it end.
func (c *control) sign() {
	pid := os.Getpid()
	begun, _ := processBegin(pid)
	c.begun.Store(begun)
	c.namespace.Store(processNamespace())
	c.pid.Store(int64(pid)) // last: the others read the rest only when this is set
}

// running reports whether the rank's process still runs, stopped or not. One that
// cannot be seen from here (another container's) counts as running: on Linux, lives
// tells.
func (c *control) running() bool {
	pid := int(c.pid.Load())
	if pid == 0 || c.namespace.Load() != processNamespace() {
		return true
	}
	begun, running := processBegin(pid)
	return running && begun == c.begun.Load() // else another process got the number
}

// processNamespace tells the processes apart that see different process ids.
func processNamespace() uint64 {
	var s unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &s); err != nil {
		return 0
	}
	return s.Ino
}

// processBegin is when a process started, in the kernel's ticks, and whether
// it runs: one that has ended but was not waited for does not.
func processBegin(pid int) (begun uint64, running bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		if _, err := os.Stat("/proc/self/stat"); err == nil {
			return 0, false
		}
		// No /proc here; signal 0 asks whether the process is there.
		return 0, !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
	}
	// The name, in parentheses, may hold anything. After it come the state
	// (field 3 of proc(5)) and, as field 22, the start time.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return 0, false
	}
	begun, err = strconv.ParseUint(fields[19], 10, 64)
	return begun, err == nil && fields[0] != "Z" && fields[0] != "X"
}
