package notebook

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain checks that no goroutine is left, except that of the terminal's context, which waits
// for Ctrl-C until the program ends.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("os/signal.NotifyContext.func1"))
}
