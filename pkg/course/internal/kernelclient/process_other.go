//go:build !linux

package kernelclient

import "syscall"

// processAttributes gives the kernel a process group, so that Close also ends what cells have started.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
