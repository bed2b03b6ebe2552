//go:build unix && !linux

package launch

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// workerAttr returns the attributes of a worker process: it gets a separate process group.
func workerAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// sessionAttr returns the attributes of a process in a separate session. The process gets no
// signal when a notebook is interrupted or a terminal is closed.
func sessionAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// signalGroup sends s to the process group that p leads. It sends nothing once p.Wait has
// returned, because another process may have the ID then.
func signalGroup(p *os.Process, s unix.Signal) { signalGroupByID(p, s) }
