//go:build notebook

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"lockstep/kernels/internal/crash"
	"lockstep/kernels/internal/memory"
)

// openCrashFile finds out how the notebook's previous kernel ended, and creates this kernel's crash file.
// After an error, which is logged, the kernel runs without one.
func (k *kernelState) openCrashFile(connectionFile string) {
	var err error
	if k.crash, k.previousEnd, err = crash.Open(connectionFile); err != nil {
		fmt.Fprintf(k.log, "lockstep-kernel: %v\n", err)
	}
}

// showPreviousEnd prints how the previous kernel ended, once.
func (k *kernelState) showPreviousEnd() {
	if k.previousEnd != "" {
		fmt.Fprintln(k.stdout.File(), k.previousEnd)
		k.stdout.Flush()
		k.previousEnd = ""
	}
}

// shutDown removes the crash file before an orderly shutdown. It replaces a message of gophernotes.
func (k *kernelState) shutDown() {
	if err := k.crash.Remove(); err != nil {
		fmt.Fprintf(k.log, "lockstep-kernel: remove crash file: %v\n", err)
	}
}

// A memoryError ends a cell because the kernel reached the memory limit.
type memoryError struct{ error }

// watchMemory interrupts the running cell at the memory limit, and ends the kernel if memory use still
// grows. An invalid limit is an error.
func (k *kernelState) watchMemory() error {
	limit, err := memory.NewLimit(os.Getenv(memory.EnvVariable))
	if err != nil {
		return err
	}
	if limit.Bytes > 0 && os.Getenv("GOMEMLIMIT") == "" {
		// Collect garbage more often near the limit, before a cell has to be interrupted.
		debug.SetMemoryLimit(limit.Bytes / 10 * 9)
	}
	w := memory.Watcher{
		Limit: limit, Used: memory.UsedBytes, Cell: k.session.CellNumber,
		Interrupt: func(err error) {
			if !k.session.Fail(k.session.CellNumber(), memoryError{err}) {
				fmt.Fprintf(k.stdout.File(), "%v (no cell is running: a goroutine of an earlier cell uses the memory)\n", err)
			}
		},
		End: func(err error) {
			k.crash.WriteCause(err.Error())
			fmt.Fprintf(k.log, "lockstep-kernel: %v\n", err)
			os.Exit(1)
		},
	}
	go w.Run()
	return nil
}

func freeMemory(cause error) {
	if errors.As(cause, new(memoryError)) {
		debug.FreeOSMemory()
	}
}
