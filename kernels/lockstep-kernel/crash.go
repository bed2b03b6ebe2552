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

// openCrashFile reads the crash file of the notebook's previous kernel, to find out how
// that kernel ended, and creates the crash file of this kernel. If either fails, the
// error is logged and the kernel runs without a crash file.
func (k *kernelState) openCrashFile(connectionFile string) {
	var err error
	if k.crash, k.previousEnd, err = crash.Open(connectionFile); err != nil {
		fmt.Fprintf(k.log, "lockstep-kernel: %v\n", err)
	}
}

// showPreviousEnd prints, once, how the notebook's previous kernel ended.
func (k *kernelState) showPreviousEnd() {
	if k.previousEnd != "" {
		fmt.Fprintln(k.stdout.File(), k.previousEnd)
		k.stdout.Flush()
		k.previousEnd = ""
	}
}

// shutDown removes the crash file before an orderly shutdown. It replaces a message that
// gophernotes prints at that point.
func (k *kernelState) shutDown() {
	if err := k.crash.Remove(); err != nil {
		fmt.Fprintf(k.log, "lockstep-kernel: remove crash file: %v\n", err)
	}
}

// A memoryError is the error of a cell that was interrupted because the kernel reached
// the memory limit.
type memoryError struct{ error }

// watchMemory starts to watch the kernel's memory use. At the limit the running cell is
// interrupted; if memory use still grows, the kernel exits. An invalid limit is an error.
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

// freeMemory returns unused memory to the operating system if cause is a memoryError.
func freeMemory(cause error) {
	if errors.As(cause, new(memoryError)) {
		debug.FreeOSMemory()
	}
}
