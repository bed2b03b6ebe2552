package kernelclient

import "syscall"

// processAttributes gives the kernel a process group, so that Close also ends what cells have started, and ends the
// kernel if this process is killed.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
