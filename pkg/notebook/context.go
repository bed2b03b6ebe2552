package notebook

import (
	"context"
	"os"
	"os/signal"
	"sync"
)

// Context returns the context to hand to every call that may take long. In a
// notebook the interrupt button cancels it for the cell that runs and for
// nothing else: what earlier cells started goes on, and in the next cell the
// context is alive again. It may therefore be kept in a variable. A context
// that is derived from it belongs to the cell that derived it. In a terminal
// Ctrl-C (SIGINT) cancels it; a second Ctrl-C ends the program.
func Context() context.Context {
	if h := hook.Load(); h != nil {
		return h.Context()
	}
	return terminalContext()
}

// terminalContext listens to SIGINT from the first call on, once for all.
var terminalContext = sync.OnceValue(listen)

// listen returns a context that SIGINT cancels.
func listen() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	// The first interrupt asks the program to stop, so the second must not be
	// swallowed: it finds the default action again.
	context.AfterFunc(ctx, stop)
	return ctx
}
