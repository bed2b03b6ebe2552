package nn_test

import (
	"fmt"
	"testing"

	"lockstep/pkg/nn"
)

// TestGradientsConcurrently is for the race detector: workers in one process
// differentiate at the same time, and gorgonia.Grad writes to a constant that
// all graphs share, the first time that it runs. So this test must be the
// package's first (its file is).
func TestGradientsConcurrently(t *testing.T) {
	const workers = 8
	start := make(chan struct{})
	errs := make(chan error, workers)
	for i := range workers {
		g := nn.NewGraph(nn.Train)
		x := g.Input("x", 1, 1, 2, 2)
		g.SetLoss(g.BCEWithLogits(g.Conv2D(fmt.Sprint("c", i), x, 1, 1, 1, 0, false), x))
		if g.Err() != nil {
			t.Fatal(g.Err())
		}
		go func() {
			<-start
			_, err := g.Gradients()
			errs <- err
		}()
	}
	close(start)
	for range workers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
