package launch

import "syscall"

// workerAttr gives a worker a process group of its own, and lets the kernel
// end it when the launcher is gone, even by kill -9.
func workerAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// sessionAttr gives a process a session of its own, so that neither a notebook's
// interrupt nor the end of a terminal reaches it.
func sessionAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
