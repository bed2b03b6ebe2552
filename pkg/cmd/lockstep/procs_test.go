package main

import (
	"runtime"
	"testing"
)

func TestProcs(t *testing.T) {
	for _, c := range []struct{ threads, cores, want int }{{1, 1, 2}, {1, 2, 2}, {2, 2, 3}, {1, 64, 3}, {4, 64, 6}, {4, 5, 5}, {8, 4, 9}} {
		if got := procs(c.threads, c.cores); got != c.want {
			t.Errorf("%d threads on %d cores: %d, want %d", c.threads, c.cores, got, c.want)
		}
	}
}

// TestLimitProcs reads what the runtime was told.
func TestLimitProcs(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	t.Setenv("GOMAXPROCS", "")
	runtime.GOMAXPROCS(64)
	limitProcs(2)
	if got := runtime.GOMAXPROCS(0); got != 4 {
		t.Errorf("2 threads on 64 cores: GOMAXPROCS is %d, want 4", got)
	}
	t.Setenv("GOMAXPROCS", "7")
	runtime.GOMAXPROCS(7)
	limitProcs(2)
	if got := runtime.GOMAXPROCS(0); got != 7 {
		t.Errorf("the user set 7, and it is %d", got)
	}
}
