package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
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
// (Ctrl-C, or SIGTERM) cancels its context, so that it ends in order; the
// second ends it now.
func attended(args []string) int {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
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
	select {
	case code := <-ended:
		return code
	case <-signals:
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
