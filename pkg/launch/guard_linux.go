package launch

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

// A program that is not ours may start processes of any depth, in sessions and
// process groups of their own. So the launcher does not start it directly: it
// starts this executable again as a guard, which starts the program and is the
// subreaper (prctl(2)) of all that come from it. However the program ends, the
// guard kills what it left, and then ends in the same way. The kernel tells the
// guard when the launcher is gone, also after a kill -9.

// guardName is the guard's argv[0]. The launcher's pid, the program's path and its
// argv follow.
const guardName = "lockstep guard"

// What the launcher asks of a guard.
const (
	guardKill = unix.SIGUSR1 // kill the program and all that come from it
	guardStop = unix.SIGTSTP // stop them
)

// guardTime bounds how long a guard tries to kill processes that it may not
// kill, such as another user's.
const guardTime = 5 * time.Second

// init runs the guard in place of the program that imports this package, before
// any code of that program.
func init() {
	if len(os.Args) > 3 && os.Args[0] == guardName {
		guard(os.Args[1], os.Args[2], os.Args[3:])
	}
}

// guarded makes cmd start its program under a guard.
func guarded(cmd *exec.Cmd) {
	cmd.Args = append([]string{guardName, strconv.Itoa(os.Getpid()), cmd.Path}, cmd.Args...)
	cmd.Path = "/proc/self/exe"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: guardKill}
}

// signalGuard asks the guard pid, which leads the process group of its program,
// to do to the program and its descendants what s does to a process. A guard that
// has just been started may miss it.
func signalGuard(pid int, s syscall.Signal) {
	switch s {
	case unix.SIGKILL:
		_ = unix.Kill(pid, guardKill) // it may be gone
	case unix.SIGSTOP:
		_ = unix.Kill(pid, guardStop)
	case unix.SIGCONT:
		_ = unix.Kill(pid, s)
	default:
		_ = unix.Kill(-pid, s)
	}
}

// guard starts the program at path with argv for the process launcher, kills what
// comes from it when it has ended, and ends as it did.
func guard(launcher, path string, argv []string) {
	asked := make(chan os.Signal, 8)
	// The others reach the program itself, which is in this process group.
	signal.Notify(asked, append(process.EndSignals(), guardKill, guardStop, unix.SIGCONT)...)
	if strconv.Itoa(os.Getppid()) != launcher { // it was killed before it could be heard
		os.Exit(1)
	}
	err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
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
	for pid := 0; pid != program.Pid; { // and reap the orphans that came to this process
		if pid, err = unix.Wait4(-1, &ended, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	for begin := time.Now(); time.Since(begin) < guardTime; {
		signalDescendants(unix.SIGKILL)
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if errors.Is(err, unix.ECHILD) {
			break
		}
		if pid == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	process.EndAs(ended)
}

// stopDescendants stops all processes that come from this one. It looks again until
// none of them runs: a process may start another after it was seen and before it stops.
func stopDescendants() {
	for begin := time.Now(); signalDescendants(unix.SIGSTOP) > 0 && time.Since(begin) < guardTime; {
		time.Sleep(time.Millisecond)
	}
}

// signalDescendants sends s to all processes that come from this one. It returns how
// many of them were neither stopped nor had ended before.
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
		// pid (name) state ppid …: a name may hold spaces and parentheses.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || len(fields) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			children[parent] = append(children[parent], pid)
			still[pid] = strings.Contains("TtZX", fields[0])
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
