//go:build unix && !linux

package launch

import "syscall"

// workerAttr returns the attributes of a worker process: it gets a separate process group.
func workerAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// sessionAttr returns the attributes of a process in a separate session. The process gets no
// signal when a notebook is interrupted or a terminal is closed.
func sessionAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
