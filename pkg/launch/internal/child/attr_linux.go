package child

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// WorkerAttr returns the attributes of a worker process. The worker gets its own process group, and
// the operating system kills it when the launcher ends, even by kill -9.
func WorkerAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// TaskAttr returns the attributes of a program that stays in this process's group. The operating
// system kills the program when the thread that started it ends, even if this process is killed.
func TaskAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// SessionAttr gives a process a session of its own. It gets no signal when a notebook is
// interrupted or a terminal is closed.
func SessionAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// SignalGroup sends s to the process group that p leads. It sends nothing once p.Wait has returned,
// because another process may have the ID then.
func SignalGroup(p *os.Process, s unix.Signal) {
	var err error
	herr := p.WithHandle(func(pidfd uintptr) {
		err = unix.PidfdSendSignal(int(pidfd), s, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP)
	})
	if errors.Is(herr, os.ErrNoHandle) || errors.Is(err, unix.EINVAL) { // before Linux 5.4 or 6.9
		signalGroupByID(p, s)
	}
}
