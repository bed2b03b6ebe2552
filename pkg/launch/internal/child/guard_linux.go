package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"lockstep/pkg/internal/process"
)

// A program other than lockstep may start child processes at any depth, in separate sessions and
// process groups. So the launcher starts this executable again as a guard, which starts the program
// and is the subreaper (prctl(2)) of all its descendants. When the program has ended, the guard
// kills the remaining descendants, and then ends with the same exit code or signal. The operating
// system signals the guard when the launcher ends, even by kill -9. If the guard itself is killed,
// its parent finds the descendants by their environment; see KillOrphans.

// guardName is the guard's argv[0]. The arguments after it are the launcher's pid, the program's
// path and its argv.
const guardName = "lockstep guard"

// Signals from the launcher to a guard.
const (
	guardKill = unix.SIGUSR1 // kill the program and all its descendants
	guardStop = unix.SIGTSTP // stop them
)

// guardTimeout limits how long a guard tries to kill or stop the program's descendants. It may not
// be allowed to signal some of them, such as processes of another user.
const guardTimeout = 5 * time.Second

// init runs the guard if this process was started as one, and then ends the process, so that main
// does not run.
func init() {
	if len(os.Args) > 3 && os.Args[0] == guardName {
		runGuard(os.Args[1], os.Args[2], os.Args[3:])
	}
}

// AddGuard changes cmd so that it starts a guard process, which starts cmd's program.
func AddGuard(cmd *exec.Cmd) {
	cmd.Args = append([]string{guardName, strconv.Itoa(os.Getpid()), cmd.Path}, cmd.Args...)
	cmd.Path = "/proc/self/exe"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: guardKill}
}

// SignalGuard makes the guard p apply the signal s to its program and the program's descendants. The
// guard leads the program's process group. A guard that has just been started may miss the signal.
func SignalGuard(p *os.Process, s unix.Signal) {
	switch s {
	case unix.SIGKILL:
		_ = p.Signal(guardKill) // it may be gone
	case unix.SIGSTOP:
		_ = p.Signal(guardStop)
	case unix.SIGCONT:
		_ = p.Signal(s)
	default:
		SignalGroup(p, s)
	}
}

// runGuard is the main function of a guard process. It starts the program at path with the
// arguments argv. When the program has ended, runGuard kills the program's descendants and ends
// with the same exit code or signal. launcher is the launcher's pid, in decimal.
func runGuard(launcher, path string, argv []string) {
	asked := make(chan os.Signal, 8)
	// All other signals reach the program itself, which is in this process group.
	signal.Notify(asked, append(process.ShutdownSignals(), guardKill, guardStop, unix.SIGCONT)...)
	if strconv.Itoa(os.Getppid()) != launcher { // the launcher ended before Pdeathsig was set
		os.Exit(1)
	}
	err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	if err == nil {
		err = os.Setenv(launcherVariable, ownIdentity().String())
	}
	var program *os.Process
	if err == nil {
		program, err = os.StartProcess(path, argv, &os.ProcAttr{
			Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
			// The thread of init is this process's first, which lives as long as it.
			Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "start", path+":", err)
		os.Exit(127) // as a shell does
	}
	go func() {
		for s := range asked {
			switch s {
			case guardKill:
				signalDescendants(unix.SIGKILL)
			case guardStop:
				stopDescendants()
			case unix.SIGCONT:
				signalDescendants(unix.SIGCONT)
			}
		}
	}()
	var ended unix.WaitStatus
	for pid := 0; pid != program.Pid; { // also reaps the orphans that this process has adopted
		if pid, err = unix.Wait4(-1, &ended, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	for begin := time.Now(); time.Since(begin) < guardTimeout; {
		signalDescendants(unix.SIGKILL)
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if errors.Is(err, unix.ECHILD) {
			break
		}
		if pid == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	process.ExitWithStatus(ended)
}

// stopDescendants sends SIGSTOP to all descendants of this process until none is running. It
// repeats this, because a process may start a child between the listing of processes and its own
// stop.
func stopDescendants() {
	for begin := time.Now(); signalDescendants(unix.SIGSTOP) > 0 && time.Since(begin) < guardTimeout; {
		time.Sleep(time.Millisecond)
	}
}

// signalDescendants sends s to all descendants of this process. It returns how many of them were
// running, that is, not still; see parseProcStat.
func signalDescendants(s unix.Signal) (running int) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0
	}
	children, still := map[int][]int{}, map[int]bool{}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		if parent, isStill, ok := parseProcStat(string(text)); ok {
			children[parent] = append(children[parent], pid)
			still[pid] = isStill
		}
	}
	for next := children[os.Getpid()]; len(next) > 0; next = next[1:] {
		next = append(next, children[next[0]]...)
		if !still[next[0]] {
			running++
		}
		_ = unix.Kill(next[0], s) // it may be gone
	}
	return running
}

// parseProcStat parses /proc/PID/stat. It returns the pid of the parent, and whether the process is
// still: stopped, ended or in an uninterruptible sleep. After SIGSTOP, a process in such a sleep
// stops as soon as it wakes. A parent in vfork sleeps like this while its child is stopped before
// exec.
func parseProcStat(text string) (parent int, still, ok bool) {
	// pid (name) state ppid …: the name may contain spaces and parentheses.
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 2 {
		return 0, false, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, strings.Contains("TtZXD", fields[0]), err == nil
}
