package threads

import (
	"fmt"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

// TestGroup checks that every item is computed once, for several numbers of threads and
// items, also if two callers use a group at once.
func TestGroup(t *testing.T) {
	for _, threads := range []int{1, 2, 5} {
		g := New(threads)
		for _, items := range []int{0, 1, 2, 4, 5, 100} {
			seen := make([]atomic.Int32, items)
			workers := make([]Worker, threads)
			done := make(chan bool)
			for range 2 {
				go func() {
					g.Run(Task{items, func(_ *Worker, lo, hi int) {
						for i := lo; i < hi; i++ {
							seen[i].Add(1)
						}
					}}, workers)
					done <- true
				}()
			}
			<-done
			<-done
			for i := range seen {
				if n := seen[i].Load(); n != 2 {
					t.Errorf("%d threads compute item %d of %d %d times in two tasks", threads, i, items, n)
				}
			}
		}
		g.Close()
		ran := false
		g.Run(Task{2, func(_ *Worker, lo, hi int) { ran = hi-lo == 2 }}, make([]Worker, threads))
		if !ran {
			t.Errorf("a closed group of %d threads does not compute in the caller", threads)
		}
	}
}

// BenchmarkGroup measures the time to start and end an empty task.
func BenchmarkGroup(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads-%d", threads), func(b *testing.B) {
			g := New(threads)
			defer g.Close()
			workers := make([]Worker, threads)
			empty := Task{threads, func(*Worker, int, int) {}}
			for b.Loop() {
				g.Run(empty, workers)
			}
		})
	}
}

// TestMain checks that the goroutines of every group end with it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
