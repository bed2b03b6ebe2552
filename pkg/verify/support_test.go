package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"lockstep/pkg/collective"
	"lockstep/pkg/data"
	"lockstep/pkg/train"
)

// TestMain demands that the goroutines of trainers, loaders and engines end.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tiny trains in well under a second an epoch.
func tiny() train.Config {
	c := train.DefaultConfig()
	c.Name = "tiny"
	c.Model = train.ModelConfig{Kind: "unet2d", Base: 4, Depth: 2, Norm: "batch"}
	c.Data.Count, c.Data.Height, c.Data.Width, c.Data.TestImages = 22, 32, 32, 5
	c.Data.Augment = data.Augment{Flip: true, Rotate: true}
	c.Batch = 2
	c.Epochs = 3
	return c
}

// trainAll trains a world of workers in this process into a run folder.
func trainAll(t *testing.T, cfg train.Config, workers int, options train.WorkerOptions) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var wg sync.WaitGroup
	for rank, g := range collective.InProcess(workers) {
		wg.Go(func() {
			worker, err := train.New(ctx, cfg, g, options)
			if err == nil {
				_, err = worker.Run(ctx)
				err = errors.Join(err, worker.Close())
			}
			if err != nil {
				cancel(fmt.Errorf("rank %d: %w", rank, err))
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		t.Fatal(err)
	}
}

// verified fails unless every check of the folder passes, but for those named.
func verified(t *testing.T, dir string, but ...string) {
	t.Helper()
	checks, err := Run(t.Context(), dir, RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		if !c.OK && !slices.Contains(but, c.Name) {
			t.Error(c)
		}
	}
}
