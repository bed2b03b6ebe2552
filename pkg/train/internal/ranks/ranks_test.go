package ranks

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"lockstep/pkg/collective"
)

// TestAgree: a rank that is still copying stops waiting when another rank has failed.
func TestAgree(t *testing.T) {
	ended, still := make(chan struct{}), make(chan struct{})
	close(ended)
	failure := errors.New("no room")
	var never error
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for rank, g := range collective.InProcess(2) {
		wg.Go(func() {
			if rank == 0 {
				errs[rank] = waitForAll(t.Context(), g, "stage data", still, &never)
			} else {
				errs[rank] = waitForAll(t.Context(), g, "stage data", ended, &failure)
			}
		})
	}
	wg.Wait()
	for rank, err := range errs {
		if got := fmt.Sprint(err); got != "stage data: failed on 1 of 2 ranks, see their error messages" {
			t.Errorf("rank %d: %s", rank, got)
		}
	}
}
