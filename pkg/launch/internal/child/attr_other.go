//go:build unix && !linux

package child

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// WorkerAttr returns the attributes of a worker process: it gets a separate process group.
func WorkerAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// TaskAttr returns the attributes of a program in the process group of this process: the defaults.
func TaskAttr() *syscall.SysProcAttr { return nil }

// SessionAttr returns the attributes of a process in a separate session. The process gets no
// signal when a notebook is interrupted or a terminal is closed.
func SessionAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// SignalGroup sends s to the process group that p leads. It sends nothing once p.Wait has
// returned, because another process may have the ID then.
func SignalGroup(p *os.Process, s unix.Signal) { signalGroupByID(p, s) }
