package bench

import (
	"context"
	"flag"
	"os"
	"testing"

	"lockstep/pkg/bench/internal/benchtest"
	"lockstep/pkg/engine"
)

func TestMain(m *testing.M) { benchtest.RunTestsOrWorker(m, work) }

func work(args []string) error {
	o := WorkerOptions{Engine: engine.DefaultOptions()}
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	o.AddFlags(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	return RunWorker(context.Background(), o, os.Stdin, os.Stdout)
}
