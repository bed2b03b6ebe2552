package notebook

import (
	"context"
	"sync/atomic"
)

// A Hook is what a kernel offers to the code that runs in its cells.
type Hook struct {
	// Context returns a context that an interrupt cancels for the cell that runs
	// then, and that is alive again in the next cell.
	Context func() context.Context

	// Display shows v in the output of the cell that runs now. With an id other
	// than "", a later call with the same id and update set replaces what the
	// first call showed.
	Display func(v any, id string, update bool) error

	// Go runs f in a goroutine, as the function Go says. It may be nil.
	Go func(f func())
}

// hook is what the kernel set, or nil in a terminal.
var hook atomic.Pointer[Hook]

// SetHook tells the package that it runs inside a kernel. The kernel calls it
// once, before the first cell, with Context and Display set; nobody else needs it. The
// zero Hook takes a kernel's hook away again, which tests do.
func SetHook(h Hook) {
	if h.Context == nil || h.Display == nil {
		hook.Store(nil)
		return
	}
	hook.Store(&h)
}

// InNotebook reports whether the program runs inside a notebook's kernel.
func InNotebook() bool { return hook.Load() != nil }
