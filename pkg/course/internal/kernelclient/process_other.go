//go:build !linux

package kernelclient

import "syscall"

// processAttributes puts the kernel into its own process group, so that Close also ends the
// processes that cells have started.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
