//go:build unix && !linux

package child

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// WorkerAttr gives a worker process a process group of its own.
func WorkerAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// TaskAttr is for a program in the process group of this process.
func TaskAttr() *syscall.SysProcAttr { return nil }

// SessionAttr gives a process a session of its own. It gets no signal when a notebook is
// interrupted or a terminal is closed.
func SessionAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// SignalGroup sends s to the process group that p leads. It sends nothing once p.Wait has returned,
// because another process may have the ID then.
func SignalGroup(p *os.Process, s unix.Signal) { signalGroupByID(p, s) }
