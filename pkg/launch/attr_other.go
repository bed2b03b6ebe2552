//go:build unix && !linux

package launch

import "syscall"

// workerAttr gives a worker a process group of its own.
func workerAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// sessionAttr gives a process a session of its own, so that neither a notebook's
// interrupt nor the end of a terminal reaches it.
func sessionAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
