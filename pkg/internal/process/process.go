// Package process contains functions that a training program uses for its own process: the
// signals that ask it to end, survival of broken pipes, timers that do not advance while the
// process is stopped, the boot of the machine that it runs on, arguments quoted for a shell, and the
// environment of processes that it starts.
// It also identifies other processes and reads their states.
package process

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// ShutdownSignals returns the signals that ask this process to shut down in an orderly way:
// SIGINT, SIGTERM, and SIGHUP (a closed terminal, a dropped connection) unless SIGHUP was
// ignored when the process started, as under nohup.
func ShutdownSignals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// SurviveBrokenPipes keeps this process alive when the reader of its standard output or
// standard error ends, as in "| head". Writes then fail with EPIPE instead of ending the
// process by SIGPIPE. Child processes keep the default action of SIGPIPE.
func SurviveBrokenPipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// ModifiedEnvironment returns the environment of this process with two changes. It sets the variables in
// set, whose entries have the form "NAME=value", and removes the variables named in without.
func ModifiedEnvironment(set []string, without ...string) []string {
	without = slices.Clone(without)
	for _, entry := range set {
		name, _, _ := strings.Cut(entry, "=")
		without = append(without, name)
	}
	kept := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(without, name)
	})
	return append(kept, set...)
}

// BootID returns an identifier of the current boot of this machine. Containers on one
// machine have the same boot ID. It is empty if the system has no boot IDs.
func BootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // not Linux
	}
	return strings.TrimSpace(string(id))
}

const (
	// checkInterval is the time between two checks of a time-out.
	checkInterval = 250 * time.Millisecond
	// maxInterval limits the time that counts between two calls of Elapsed. A longer
	// interval means that the process, or the machine, was stopped in between.
	maxInterval = time.Second
)

// A Stopwatch measures how long this process has been running since the first call of
// Elapsed. An interval in which the process was stopped (Ctrl-Z, SIGSTOP) counts as one
// second at most. The zero value has not started yet.
type Stopwatch struct {
	last  time.Time
	total time.Duration
}

// Elapsed returns the running time since the first call. It must be called more than once per
// second, because a longer interval counts as one second.
func (s *Stopwatch) Elapsed() time.Duration {
	now := time.Now()
	if !s.last.IsZero() {
		s.total += min(now.Sub(s.last), maxInterval)
	}
	s.last = now
	return s.total
}

// WithTimeoutCause returns a context that is canceled with cause once this process has run for
// d since the call. Unlike with context.WithTimeout, time in which the process is stopped does
// not count.
func WithTimeoutCause(parent context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	go func() {
		var watch Stopwatch
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			left := d - watch.Elapsed()
			if left <= 0 {
				cancel(cause)
				return
			}
			timer.Reset(min(left, checkInterval))
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// WithTimeout is WithTimeoutCause with the cause context.DeadlineExceeded.
func WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return WithTimeoutCause(parent, d, context.DeadlineExceeded)
}
