package gpu

import (
	"context"
	"flag"
	"os"
	"testing"

	"lockstep/pkg/bench"
	"lockstep/pkg/bench/internal/benchtest"
	"lockstep/pkg/engine"
)

func TestMain(m *testing.M) { benchtest.RunTestsOrWorker(m, work) }

// work runs a worker whose GPU, if it uses one, is simulated.
func work(args []string) error {
	o := bench.WorkerOptions{Engine: engine.DefaultOptions()}
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	o.AddFlags(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	if o.Engine.Device == "cuda" {
		o.Open = onSimulatedGPU
	}
	return bench.RunWorker(context.Background(), o, os.Stdin, os.Stdout)
}

// tiny is a U-Net whose numbers can be counted by hand; see the tests of package bench.
var tiny = bench.Shape{Base: 2, Depth: 1, Size: 4, Batch: 1}

const (
	tinyParameters = 447
	tinyFLOPs      = 21696
)
