//go:build unix && !linux

package child

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// WorkerAttr returns the attributes of a worker process, which gets its own process group.
func WorkerAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// TaskAttr returns the attributes of a program that stays in this process's group, which are the
// default ones on this system.
func TaskAttr() *syscall.SysProcAttr { return nil }

// SessionAttr gives a process a session of its own. It gets no signal when a notebook is
// interrupted or a terminal is closed.
func SessionAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// SignalGroup sends s to the process group that p leads. It sends nothing once p.Wait has returned,
// because another process may have the ID then.
func SignalGroup(p *os.Process, s unix.Signal) { signalGroupByID(p, s) }
