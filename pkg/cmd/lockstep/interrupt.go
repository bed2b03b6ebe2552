package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"lockstep/pkg/internal/process"
)

// killTime is how long what a command does at the second interrupt may take.
const killTime = 2 * time.Second

// atOnce is what a command does at the second interrupt.
type atOnce struct {
	mu sync.Mutex
	do func()
}

type atOnceKey struct{}

// onSecondInterrupt has do called at the second interrupt. What it ends may
// then end the command in order, within killTime.
func onSecondInterrupt(ctx context.Context, do func()) {
	if a, ok := ctx.Value(atOnceKey{}).(*atOnce); ok {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.do = do
	}
}

// attended runs a command as long as its user lets it. The first interrupt
// (Ctrl-C, SIGTERM, or SIGHUP from a closed terminal) cancels its context, so
// that it ends in order; the second ends it now. A SIGHUP never counts as the
// second: the shell and the kernel each send one when a terminal is closed.
func attended(args []string) int {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, process.EndSignals()...)
	var second atOnce
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), atOnceKey{}, &second))
	defer cancel()
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, args) }()
	select {
	case code := <-ended:
		return code
	case <-signals:
		cancel()
	}
	for s := os.Signal(syscall.SIGHUP); s == syscall.SIGHUP; {
		select {
		case code := <-ended:
			return code
		case s = <-signals:
		}
	}
	second.mu.Lock()
	do := second.do
	second.mu.Unlock()
	if do != nil {
		do()
		select {
		case <-ended:
		case <-time.After(killTime):
		}
	}
	return exitInterrupted
}

// forTraining changes c so that it goes on training after the reader of its output
// has ended (lockstep launch | head), and returns c.
func forTraining(c *cobra.Command) *cobra.Command {
	c.PreRun = func(c *cobra.Command, _ []string) {
		process.SurviveBrokenPipes()
		c.SetOut(untilClosed{c.OutOrStdout()})
		c.SetErr(untilClosed{c.ErrOrStderr()})
	}
	return c
}

// untilClosed is a writer that discards its input once the reader of the pipe has
// ended or the terminal was closed.
type untilClosed struct{ io.Writer }

func (w untilClosed) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.EIO) {
		return len(p), nil
	}
	return n, err
}

// goOn says, where a training was interrupted, how it goes on.
func goOn(ctx context.Context, err error) error {
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
