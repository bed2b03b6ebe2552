package launch

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// workerAttr returns the attributes of a worker process: it gets a separate process group,
// and the operating system kills it when the launcher ends, even by kill -9.
func workerAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// sessionAttr returns the attributes of a process in a separate session. The process gets no
// signal when a notebook is interrupted or a terminal is closed.
func sessionAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// signalGroup sends s to the process group that p leads. It sends nothing once p.Wait has
// returned, because another process may have the ID then.
func signalGroup(p *os.Process, s unix.Signal) {
	var err error
	herr := p.WithHandle(func(pidfd uintptr) {
		err = unix.PidfdSendSignal(int(pidfd), s, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP)
	})
	if errors.Is(herr, os.ErrNoHandle) || errors.Is(err, unix.EINVAL) { // before Linux 5.4 or 6.9
		signalGroupByID(p, s)
	}
}
