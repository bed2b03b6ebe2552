package tune

import (
	"testing"

	"go.uber.org/goleak"

	_ "lockstep/pkg/engine/all"
)

// TestMain fails if goroutines of loaders, engines or trainers are left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
