//go:build unix && !linux

package launch

import "syscall"

// workerAttr returns the attributes of a worker process: it gets a separate process group.
func workerAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// sessionAttr returns the attributes of a process in a separate session, which neither a
// notebook's interrupt nor the end of a terminal reaches.
func sessionAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
