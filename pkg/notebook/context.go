package notebook

import (
	"context"
	"os/signal"
	"sync"
	"syscall"

	"lockstep/pkg/internal/process"
)

// Context returns the context to pass to every call that may take long.
//
// In a notebook the interrupt button cancels the context for the running cell only: work of earlier cells
// goes on, and the next cell can use the same context, even from a variable. A context derived from it
// belongs to the cell that derived it.
//
// In a terminal the context is canceled by Ctrl-C (SIGINT), SIGTERM, and the SIGHUP of a closed
// terminal; a second Ctrl-C or SIGTERM ends the program.
func Context() context.Context {
	if h := currentHook.Load(); h != nil {
		return h.Context()
	}
	return terminalContext()
}

// terminalContext returns the context of a program without a notebook. Signals are handled from its
// first call on.
var terminalContext = sync.OnceValue(newTerminalContext)

func newTerminalContext() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), process.ShutdownSignals()...)
	// A second interrupt ends the program, because the default action is restored. A closed terminal sends
	// SIGHUP more than once.
	context.AfterFunc(ctx, func() {
		signal.Ignore(syscall.SIGHUP)
		stop()
	})
	return ctx
}
