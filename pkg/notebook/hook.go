package notebook

import (
	"context"
	"sync/atomic"
)

// A Hook contains the functions with which a notebook's kernel implements this package.
type Hook struct {
	// Context returns a context that an interrupt cancels until the end of the running cell.
	Context func() context.Context

	// Display shows v in the output of the running cell. If update is true, it replaces what an
	// earlier call with the same id has shown. id may be "" for output that is never replaced.
	Display func(v any, id string, update bool) error

	// Go implements the function Go. It may be nil.
	Go func(f func())
}

// currentHook is the argument of SetHook, or nil if this program does not run in a notebook.
var currentHook atomic.Pointer[Hook]

// SetHook makes this package use h. A notebook's kernel calls it once, before the first cell. Context and
// Display must be set; the zero Hook, which tests use, makes the package work as in a terminal.
func SetHook(h Hook) {
	if h.Context == nil || h.Display == nil {
		currentHook.Store(nil)
		return
	}
	currentHook.Store(&h)
}

// InNotebook reports whether the program runs inside a notebook's kernel.
func InNotebook() bool { return currentHook.Load() != nil }
