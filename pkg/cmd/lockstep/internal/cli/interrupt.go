package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"lockstep/pkg/internal/process"
	"lockstep/pkg/launch"
)

// killTimeout is how long a command may take to end after its action at the second interrupt.
const killTimeout = 2 * time.Second

// abandonTimeout is how long a command that has called AbandonWhenInterrupted may continue after the
// first interrupt.
const abandonTimeout = time.Second

// secondInterruptAction is what a command does at the second interrupt.
type secondInterruptAction struct {
	mu      sync.Mutex
	do      func()
	abandon bool // see AbandonWhenInterrupted
}

type secondInterruptKey struct{}

// OnSecondInterrupt registers an action for the second interrupt. The command has killTimeout to end
// normally after it, for example because action stops the work that the command waits for.
func OnSecondInterrupt(ctx context.Context, action func()) {
	if a, ok := ctx.Value(secondInterruptKey{}).(*secondInterruptAction); ok {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.do = action
	}
}

// AbandonWhenInterrupted declares that the command of ctx may end at any moment: it starts no processes, and
// replaces its output files only when they are complete. The program ends abandonTimeout after the first
// interrupt, even if the command is busy, for example with sorting millions of rows.
func AbandonWhenInterrupted(ctx context.Context) {
	if a, ok := ctx.Value(secondInterruptKey{}).(*secondInterruptAction); ok {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.abandon = true
	}
}

// RunInterruptible runs a command until it ends or is interrupted, and returns its exit code. The first
// interrupt (Ctrl-C, SIGTERM, SIGHUP from a closed terminal, or SIGUSR1 from Slurm) cancels its context, so that
// it ends normally; after SIGUSR1, the exit code is launch.ExitRequeue. The second interrupt ends it at once. A
// SIGHUP is never the second interrupt, because shell and kernel each send one when a terminal is closed.
func RunInterruptible(run func(context.Context) int) int {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, append(process.ShutdownSignals(), syscall.SIGUSR1)...)
	var second secondInterruptAction
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), secondInterruptKey{}, &second))
	defer cancel()
	ended := make(chan int, 1)
	go func() { ended <- run(ctx) }()
	interrupted := ExitInterrupted
	select {
	case code := <-ended:
		return code
	case s := <-signals:
		if s == syscall.SIGUSR1 { // Slurm is going to end the job
			interrupted = launch.ExitRequeue
		}
		cancel()
	}
	var abandoned <-chan time.Time // never, if nil
	second.mu.Lock()
	if second.abandon {
		abandoned = time.After(abandonTimeout)
	}
	second.mu.Unlock()
	for s := os.Signal(syscall.SIGHUP); s == syscall.SIGHUP; {
		select {
		case code := <-ended:
			if code == ExitInterrupted {
				return interrupted
			}
			return code
		case s = <-signals:
		case <-abandoned:
			fmt.Fprintln(os.Stderr, "lockstep: interrupted")
			return interrupted
		}
	}
	second.mu.Lock()
	do := second.do
	second.mu.Unlock()
	if do != nil {
		do()
		select {
		case <-ended:
		case <-time.After(killTimeout):
		}
	}
	return ExitInterrupted
}

// IgnoreBrokenPipe lets c continue if the program that reads its output exits (lockstep launch | head).
func IgnoreBrokenPipe(c *cobra.Command) *cobra.Command {
	c.PreRun = func(c *cobra.Command, _ []string) {
		process.SurviveBrokenPipes()
		c.SetOut(brokenPipeWriter{c.OutOrStdout()})
		c.SetErr(brokenPipeWriter{c.ErrOrStderr()})
	}
	return c
}

// A brokenPipeWriter discards its input after the reader of the pipe has exited or the terminal was closed.
type brokenPipeWriter struct{ io.Writer }

func (w brokenPipeWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.EIO) {
		return len(p), nil
	}
	return n, err
}

// AddResumeAdvice adds to the error of an interrupted training how to resume it.
func AddResumeAdvice(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return &interruptedError{err}
}

type interruptedError struct{ err error }

func (e *interruptedError) Error() string {
	return "interrupted: " + e.err.Error() + "; to go on, give the same command again with --resume"
}

func (e *interruptedError) Unwrap() error { return e.err }
