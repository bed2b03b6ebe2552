package launch

import "syscall"

// workerAttr returns the attributes of a worker process: it gets a separate process group,
// and the operating system kills it when the launcher ends, even by kill -9.
func workerAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// sessionAttr returns the attributes of a process in a separate session. The process gets no
// signal when a notebook is interrupted or a terminal is closed.
func sessionAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
