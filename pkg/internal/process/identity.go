package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// PIDNamespace returns a number that identifies this process's PID namespace, or 0 if it is
// unknown. Process IDs can be compared only within one namespace of one boot of a machine.
func PIDNamespace() uint64 {
	var s unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &s); err != nil {
		return 0
	}
	return s.Ino
}

// States of a process that Stat returns; proc(5) lists the others.
const (
	StateUnknown = '?' // the process exists, but the system has no /proc
	StateStopped = 'T' // by a signal such as SIGSTOP
	StateTraced  = 't' // by a debugger
	StateBlocked = 'D' // in the kernel; the process gets no signals until it returns
	StateZombie  = 'Z' // ended, but its parent has not asked how
	StateEnded   = 'X' // ended, or there is no such process
)

// ReadStat returns the start time of a process in clock ticks since boot, and its state. The start
// time is 0 if it is unknown. Because process IDs are reused, only the ID and the start time
// together identify a process.
func ReadStat(pid int) (startTime uint64, state byte) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		if _, err := os.Stat("/proc/self/stat"); err == nil {
			return 0, StateEnded
		}
		// Without /proc, signal 0 checks whether the process exists.
		if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			return 0, StateEnded
		}
		return 0, StateUnknown
	}
	// The command name, in parentheses, may contain any character. The state (field 3
	// of proc(5)) and the start time (field 22) follow it.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return 0, StateEnded
	}
	if startTime, err = strconv.ParseUint(fields[19], 10, 64); err != nil {
		return 0, StateEnded
	}
	return startTime, fields[0][0]
}

// IsLiveState reports whether a process in the given state, which Stat returned, has not ended.
func IsLiveState(state byte) bool { return state != StateZombie && state != StateEnded }
