package train

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain makes the test binary a worker where a test starts it so, and demands
// that a trainer's goroutines, its loader's and its engine's, end with it, after
// a failure too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "train" {
		os.Exit(mainOf(os.Args[1:], tiny(), nil, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}
