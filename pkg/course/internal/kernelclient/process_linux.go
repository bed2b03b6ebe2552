package kernelclient

import "syscall"

// processAttributes gives the kernel a process group, so that Close also ends what cells have started. The
// kernel ends if this process is killed.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
