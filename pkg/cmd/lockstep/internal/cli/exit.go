// Package cli contains what the commands share: exit codes, interrupts, and checks of arguments and outputs.
package cli

import (
	"os"
	"runtime/debug"
)

// The exit codes of lockstep.
const (
	ExitFailed      = 1
	ExitUsage       = 2
	ExitMissing     = 3
	ExitBusy        = 4
	ExitInterrupted = 130
)

// An ExitError ends the command with an exit code other than 1.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }
func (e *ExitError) Unwrap() error { return e.Err }

// AsUsageError returns err with ExitUsage, or nil if err is nil.
func AsUsageError(err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{Code: ExitUsage, Err: err}
}

// AsMissingError returns err with ExitMissing, or nil if err is nil.
func AsMissingError(err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{Code: ExitMissing, Err: err}
}

// ReduceGC makes garbage collection rarer, unless the user has set GOGC.
func ReduceGC() {
	const percent = 400
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
