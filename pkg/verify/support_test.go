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
	_ "lockstep/pkg/engine/all"
	"lockstep/pkg/train"
)

// TestMain fails if goroutines of trainers, loaders or engines are left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// trainAll trains with the given number of workers in this process.
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

// requireVerified fails the test unless every check of the run folder is OK, except the
// checks with the given names.
func requireVerified(t *testing.T, dir string, except ...string) {
	t.Helper()
	checks, err := Run(t.Context(), dir, RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		if !c.OK && !slices.Contains(except, c.Name) {
			t.Error(c)
		}
	}
}
