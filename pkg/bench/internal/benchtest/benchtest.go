// Package benchtest lets a test binary be the lockstep command that a benchmark starts as its worker.
package benchtest

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// RunTestsOrWorker is the body of TestMain. In a process started as "lockstep bench worker", it calls work with the
// worker's flags and exits. Otherwise it runs the tests, and fails if goroutines are left.
func RunTestsOrWorker(m *testing.M, work func(args []string) error) {
	if len(os.Args) > 2 && os.Args[1] == "bench" && os.Args[2] == "worker" {
		if err := work(os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// UseTestBinaryAsWorker makes the benchmarks of a test start this binary as the lockstep command.
func UseTestBinaryAsWorker(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("LOCKSTEP_BIN", self)
}
