//go:build unix && !linux

package launch

import "syscall"

// workerAttr gives a worker a process group of its own.
func workerAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
