package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"lockstep/pkg/engine"
)

// TestMain makes the test binary its own worker, as the lockstep command is.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "bench" && os.Args[2] == "worker" {
		if err := work(os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func work(args []string) error {
	o := WorkerOptions{Engine: engine.DefaultOptions()}
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	f.StringVar(&o.Task, "task", "", "")
	f.IntVar(&o.Engine.Threads, "threads", 1, "")
	f.StringVar(&o.Engine.Convolution, "convolution", "", "")
	f.BoolVar(&o.Engine.Fuse, "fuse", true, "")
	f.BoolVar(&o.Engine.Overlap, "overlap", true, "")
	f.StringVar(&o.Shape.Model, "model", "", "")
	f.IntVar(&o.Shape.Base, "base", 0, "")
	f.IntVar(&o.Shape.Depth, "depth", 0, "")
	f.IntVar(&o.Shape.Size, "size", 0, "")
	f.IntVar(&o.Shape.Batch, "batch", 0, "")
	f.IntVar(&o.Shape.Width, "width", 0, "")
	f.BoolVar(&o.Shape.Biases, "biases", false, "")
	f.StringVar(&o.Engine.Device, "device", "cpu", "")
	f.StringVar(&o.Engine.Precision, "precision", "fp32", "")
	f.BoolVar(&o.Engine.TF32, "tf32", false, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	return Work(context.Background(), o, os.Stdin, os.Stdout)
}
