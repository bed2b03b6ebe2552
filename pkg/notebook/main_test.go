package notebook

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain demands that what a cell started, it ends. The context of a terminal
// waits for Ctrl-C as long as the program lives.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("os/signal.NotifyContext.func1"))
}
