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

// openCrash reads how the former kernel of this notebook ended, and begins the
// file that says how this one does. A kernel without such a file works.
func (k *kernelState) openCrash(connectionFile string) {
	var err error
	if k.crash, k.former, err = crash.Open(connectionFile); err != nil {
		fmt.Fprintf(k.log, "lockstep-kernel: %v\n", err)
	}
}

// showFormer prints once how the former kernel ended.
func (k *kernelState) showFormer() {
	if k.former != "" {
		fmt.Fprintln(k.stderr.File(), k.former)
		k.stderr.Flush()
		k.former = ""
	}
}

// shutDown removes the crash file before the kernel ends in order. It replaces the
// message that gophernotes prints then.
func (k *kernelState) shutDown() {
	if err := k.crash.Remove(); err != nil {
		fmt.Fprintf(k.log, "lockstep-kernel: remove crash file: %v\n", err)
	}
}

// A memoryError is what a cell fails with that was interrupted at the limit.
type memoryError struct{ error }

// watchMemory ends cells that use too much memory, or the kernel.
func (k *kernelState) watchMemory() error {
	limit, err := memory.NewLimit(os.Getenv(memory.Variable))
	if err != nil {
		return err
	}
	if limit.Bytes > 0 && os.Getenv("GOMEMLIMIT") == "" {
		// Near the limit garbage is collected before a cell is interrupted.
		debug.SetMemoryLimit(limit.Bytes / 10 * 9)
	}
	w := memory.Watch{
		Limit: limit, Used: memory.Used, Cell: k.session.Cell,
		Interrupt: func(err error) {
			if !k.session.Fail(k.session.Cell(), memoryError{err}) {
				fmt.Fprintf(k.stderr.File(), "%v (no cell runs: a goroutine uses it)\n", err)
			}
		},
		End: func(err error) {
			k.crash.Write(err.Error())
			fmt.Fprintf(k.log, "lockstep-kernel: %v\n", err)
			os.Exit(1)
		},
	}
	go w.Run()
	return nil
}

// freeMemory gives back what a cell held that was interrupted at the limit.
func freeMemory(cause error) {
	if errors.As(cause, new(memoryError)) {
		debug.FreeOSMemory()
	}
}
