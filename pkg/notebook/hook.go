package notebook

import (
	"context"
	"sync/atomic"
)

// A Hook contains the functions with which a notebook's kernel implements this package.
type Hook struct {
	// Context returns a context that an interrupt cancels for the running cell only; in
	// the next cell it is no longer canceled.
	Context func() context.Context

	// Display shows v in the output of the running cell. If id is not "", a later call
	// with the same id and update = true replaces what the first call showed.
	Display func(v any, id string, update bool) error

	// Go implements the function Go. It may be nil.
	Go func(f func())
}

// currentHook is the argument of SetHook, or nil if this program does not run in a notebook.
var currentHook atomic.Pointer[Hook]

// SetHook makes this package use the functions of h. A notebook's kernel calls it once,
// before the first cell. Context and Display must be set. Tests call SetHook with the zero
// Hook, after which this package works as in a terminal.
func SetHook(h Hook) {
	if h.Context == nil || h.Display == nil {
		currentHook.Store(nil)
		return
	}
	currentHook.Store(&h)
}

// InNotebook reports whether the program runs inside a notebook's kernel.
func InNotebook() bool { return currentHook.Load() != nil }
