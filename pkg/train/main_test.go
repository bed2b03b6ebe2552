package train

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain demands that a trainer's goroutines, its loader's and its engine's,
// end with it, after a failure too.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
