package launch

import "syscall"

// workerAttr returns the attributes of a worker process: it gets a separate process group,
// and the operating system kills it when the launcher ends, even by kill -9.
func workerAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// sessionAttr returns the attributes of a process in a separate session, which neither a
// notebook's interrupt nor the end of a terminal reaches.
func sessionAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
