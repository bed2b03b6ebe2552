package train

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	_ "lockstep/pkg/engine/all"
)

// TestMain makes the test binary a worker process if a test starts it as one. It checks that
// the goroutines of trainers, loaders and engines have ended, also after a failure.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "train" {
		os.Exit(runMain(os.Args[1:], tiny(), nil, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}
