package notebook

import (
	"context"
	"os/signal"
	"sync"
	"syscall"

	"lockstep/pkg/internal/process"
)

// Context returns the context to hand to every call that may take long. In a
// notebook the interrupt button cancels it for the cell that runs and for
// nothing else: what earlier cells started goes on, and in the next cell the
// context is alive again. It may therefore be kept in a variable. A context
// that is derived from it belongs to the cell that derived it. In a terminal
// Ctrl-C (SIGINT), SIGTERM, and the SIGHUP of a terminal that is closed cancel
// it; a second Ctrl-C or SIGTERM ends the program.
func Context() context.Context {
	if h := hook.Load(); h != nil {
		return h.Context()
	}
	return terminalContext()
}

// terminalContext listens to signals from the first call on, once for all.
var terminalContext = sync.OnceValue(listen)

// listen returns a context that a signal cancels.
func listen() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), process.EndSignals()...)
	// The first interrupt asks the program to stop, so the second must not be
	// swallowed: it finds the default action again. A closed terminal sends
	// more than one SIGHUP.
	context.AfterFunc(ctx, func() {
		signal.Ignore(syscall.SIGHUP)
		stop()
	})
	return ctx
}
