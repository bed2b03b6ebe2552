package train

import (
	"runtime"
	"testing"
)

func TestProcs(t *testing.T) {
	for _, c := range []struct {
		threads, cores, workers int
		overlaps                bool
		want                    int
	}{
		{1, 1, 1, false, 1},
		{1, 2, 1, false, 2},
		{1, 2, 2, false, 1}, // no core beside
		{1, 2, 2, true, 2},  // the exchange goes on beside
		{2, 2, 1, false, 2},
		{1, 64, 1, false, 3},
		{1, 64, 32, true, 2},
		{4, 64, 8, true, 6},
		{4, 5, 1, false, 5},
		{8, 4, 1, true, 9},
		{2, 2, 3, false, 2}, // --oversubscribe
	} {
		if got := Processors(c.threads, c.cores, c.workers, c.overlaps); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// TestLimitProcessors checks GOMAXPROCS after limitGOMAXPROCS.
func TestLimitProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	t.Setenv("GOMAXPROCS", "")
	runtime.GOMAXPROCS(64)
	limitGOMAXPROCS(1, 2, 1, false)
	if got := runtime.GOMAXPROCS(0); got != 4 {
		t.Errorf("2 threads on 64 cores: GOMAXPROCS is %d, want 4", got)
	}
	runtime.GOMAXPROCS(64)
	limitGOMAXPROCS(3, 2, 3, true) // the replicas of one process
	if got := runtime.GOMAXPROCS(0); got != 12 {
		t.Errorf("3 × 2 threads on 64 cores: GOMAXPROCS is %d, want 12", got)
	}
	t.Setenv("GOMAXPROCS", "7")
	runtime.GOMAXPROCS(7)
	limitGOMAXPROCS(1, 2, 1, false)
	if got := runtime.GOMAXPROCS(0); got != 7 {
		t.Errorf("the user set 7, and it is %d", got)
	}
}
