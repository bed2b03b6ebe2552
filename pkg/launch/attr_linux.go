package launch

import "syscall"

// workerAttr gives a worker a process group of its own, and lets the kernel
// end it when the launcher is gone, even by kill -9.
func workerAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
