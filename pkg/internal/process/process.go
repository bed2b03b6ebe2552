// Package process answers what a program that trains asks about its own
// process: which signals ask it to end in order, how it outlives the reader of
// its output, and how much time has passed while it was running.
package process

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// EndSignals returns the signals that ask this process to end in order: SIGINT,
// SIGTERM, and SIGHUP (a closed terminal, a dropped connection) unless it was
// ignored when the process started, as nohup does.
func EndSignals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// SurviveBrokenPipes lets this process go on when the reader of its standard
// output or standard error has ended (| head): writes then fail with EPIPE, and
// no signal ends the process. SIGPIPE keeps its default in child processes.
func SurviveBrokenPipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

const (
	// lookTime is the time between two looks of a time-out at its stopwatch.
	lookTime = 250 * time.Millisecond
	// longestLook bounds what counts as one look: a longer one means that the
	// process, or the whole machine, was stopped in between.
	longestLook = time.Second
)

// A Stopwatch measures how long this process has been running since the first
// call of Elapsed. Time for which the process was stopped (Ctrl-Z, SIGSTOP)
// counts as a second at most. The zero value has not started yet.
type Stopwatch struct {
	last  time.Time
	total time.Duration
}

// Elapsed returns the time measured so far. Whoever waits must call it more
// often than once a second.
func (s *Stopwatch) Elapsed() time.Duration {
	now := time.Now()
	if !s.last.IsZero() {
		s.total += min(now.Sub(s.last), longestLook)
	}
	s.last = now
	return s.total
}

// WithTimeoutCause returns a context that ends with cause when this process has
// been running for d. Unlike a context's own deadline, d does not pass while the
// process is stopped.
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
			timer.Reset(min(left, lookTime))
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// WithTimeout is WithTimeoutCause with the cause context.DeadlineExceeded.
func WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return WithTimeoutCause(parent, d, context.DeadlineExceeded)
}
