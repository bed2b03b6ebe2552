package child

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"lockstep/pkg/internal/process"
)

// launcherVariable identifies the launcher or the guard that has started a process of a run. All
// descendants inherit it, so they can be found after the launcher and the guard were killed.
const launcherVariable = "LOCKSTEP_LAUNCHER"

// processIdentity identifies a process of this machine, as the value of launcherVariable.
type processIdentity struct {
	pid       int
	startTime uint64
	namespace uint64 // PID namespace
	boot      string
}

func ownIdentity() processIdentity {
	start, _ := process.ReadStat(os.Getpid())
	return processIdentity{os.Getpid(), start, process.PIDNamespace(), process.BootID()}
}

func (i processIdentity) String() string {
	return fmt.Sprintf("%d-%d-%d-%s", i.pid, i.startTime, i.namespace, i.boot)
}

func parseIdentity(text string) (i processIdentity, ok bool) {
	n, _ := fmt.Sscanf(text, "%d-%d-%d-%s", &i.pid, &i.startTime, &i.namespace, &i.boot)
	return i, n == 4
}

// RunEnvironment returns the environment variables for a process that this process starts for the
// run in the folder dir. KillOrphans later finds the process and its descendants by them.
func RunEnvironment(dir string) []string {
	return []string{"LOCKSTEP_RUN=" + dir, launcherVariable + "=" + ownIdentity().String()}
}

// KillOrphans kills the processes of the runs in dirs that remain after their launcher or guard was
// killed. It waits until they have ended, and returns their pids.
func KillOrphans(dirs ...string) (ended []int, err error) {
	own := ownIdentity()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		left := killOrphansOnce(own, dirs)
		if len(left) == 0 {
			slices.Sort(ended)
			return slices.Compact(ended), nil
		}
		if ended = append(ended, left...); time.Since(begin) > guardTimeout {
			pids := strings.Trim(fmt.Sprint(left), "[]")
			return ended, fmt.Errorf("end processes that an earlier launch has left behind: pid %s were killed, but have not ended; wait until they have ended, or restart the machine", pids)
		}
	}
}

// killOrphansOnce kills the orphans of the runs in dirs that exist now, and returns their pids. own
// is this process.
func killOrphansOnce(own processIdentity, dirs []string) (left []int) {
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil
	}
	for _, path := range paths {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || pid == own.pid {
			continue
		}
		p, err := os.FindProcess(pid) // stays the same process, although the pid may pass to another
		if err != nil {
			continue
		}
		// The environment of a process that has ended, or that belongs to another user, cannot be read.
		if text, err := os.ReadFile(path); err == nil && isOrphan(text, own, dirs) {
			_ = p.Kill() // it may be gone
			left = append(left, pid)
		}
		_ = p.Release()
	}
	return left
}

// isOrphan reports whether KillOrphans must kill a process with the given environment. own is
// this process.
func isOrphan(environment []byte, own processIdentity, dirs []string) bool {
	var dir, launcher string
	for entry := range bytes.SplitSeq(environment, []byte{0}) {
		if v, ok := bytes.CutPrefix(entry, []byte("LOCKSTEP_RUN=")); ok {
			dir = string(v)
		} else if v, ok := bytes.CutPrefix(entry, []byte(launcherVariable+"=")); ok {
			launcher = string(v)
		}
	}
	l, ok := parseIdentity(launcher)
	if !ok || !slices.Contains(dirs, dir) || l.boot != own.boot || l.namespace != own.namespace {
		return false
	}
	start, state := process.ReadStat(l.pid)
	return start != l.startTime || !process.IsLiveState(state)
}

// parentEndedSignal is the signal that this process gets when its parent has ended.
const parentEndedSignal = unix.SIGUSR1

// EndWithParent makes this process end by SIGKILL as soon as its parent has ended, even if the
// parent was killed. The caller's goroutine must stay locked to its thread.
func EndWithParent() {
	parent := os.Getppid()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, parentEndedSignal)
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(parentEndedSignal), 0, 0, 0); err != nil {
		return // Linux has had it since 2.1.57
	}
	endIfOrphaned := func() {
		// The system also sends the signal when only the parent's thread that started this process
		// has ended: mpirun of Open MPI 4 starts many ranks from short-lived threads. A parent with
		// the pid 1 has adopted this process.
		if p := os.Getppid(); p != parent || p == 1 {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		}
	}
	endIfOrphaned()
	go func() {
		for range signals {
			endIfOrphaned()
		}
	}()
}
