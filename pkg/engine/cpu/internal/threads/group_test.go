package threads

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
)

// TestGroup checks that every item is computed once, for several numbers of threads and
// items, also if two callers use a group at once.
func TestGroup(t *testing.T) {
	for _, threads := range []int{1, 2, 5, 9, 10, 64, 80} { // a tree of one level up to 9, of two up to 73
		g := New(threads)
		for _, items := range []int{0, 1, 2, 4, 5, 23, 100} {
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

// TestSynchronizations checks that a group counts the tasks that its helpers work on, and that
// a task needs one synchronization with any number of threads.
func TestSynchronizations(t *testing.T) {
	for _, threads := range []int{1, 2, 64} {
		g := New(threads)
		workers := make([]Worker, threads)
		for _, items := range []int{0, 1, 2, 3, 1000} {
			g.Run(Task{items, func(*Worker, int, int) {}}, workers)
		}
		want := int64(3) // those of 2, 3 and 1000 items
		if threads == 1 {
			want = 0
		}
		if got := g.SynchronizationCount(); got != want {
			t.Errorf("%d threads: %d synchronizations, want %d", threads, got, want)
		}
		g.Close()
	}
}

// TestNodesShareNoCacheLine checks the distance between what two goroutines write.
func TestNodesShareNoCacheLine(t *testing.T) {
	var n goroutineNode
	last, size := unsafe.Offsetof(n.finished), unsafe.Sizeof(n)
	if first := unsafe.Offsetof(n.start); first < cacheLineBytes || size-last-unsafe.Sizeof(n.finished) < cacheLineBytes {
		t.Errorf("in a node of %d bytes, the signals are at %d and %d: want %d unused bytes before and after them", size, first, last, cacheLineBytes)
	}
}

// TestWaitsForGrandchildren checks that Run returns only after the slowest helper of the
// deepest level.
func TestWaitsForGrandchildren(t *testing.T) {
	const threads = 80 // three levels
	g := New(threads)
	defer g.Close()
	for slow := range threads {
		var done atomic.Int32
		g.Run(Task{threads, func(_ *Worker, lo, hi int) {
			if lo == slow {
				time.Sleep(time.Millisecond)
			}
			done.Add(int32(hi - lo))
		}}, make([]Worker, threads))
		if n := done.Load(); n != threads {
			t.Errorf("Run returns after %d of %d items; the slow one was %d", n, threads, slow)
		}
	}
}

// TestTakesItemsOfASlowGoroutine checks that the other goroutines compute all items but the first ones
// of a goroutine that waits until they have done so.
func TestTakesItemsOfASlowGoroutine(t *testing.T) {
	const threads, items = 3, 90
	g := New(threads)
	defer g.Close()
	for slow := range threads {
		var claimed, done atomic.Int32
		others := make(chan struct{})
		workers := make([]Worker, threads)
		for i := range workers {
			workers[i].Number = i
		}
		g.Run(Task{items, func(w *Worker, lo, hi int) {
			if w.Number == slow && claimed.CompareAndSwap(0, int32(hi-lo)) {
				if done.Add(int32(hi-lo)) < items {
					<-others
				}
				return
			}
			if done.Add(int32(hi-lo)) == items {
				close(others)
			}
		}}, workers)
		if n := done.Load(); n != items {
			t.Errorf("goroutine %d is slow: %d of %d items were computed", slow, n, items)
		}
	}
}

// BenchmarkGroup measures the time to start and end an empty task.
func BenchmarkGroup(b *testing.B) {
	for _, threads := range []int{1, 2, 8, 64} {
		b.Run(fmt.Sprintf("threads-%d", threads), func(b *testing.B) {
			g := New(threads)
			defer g.Close()
			workers := make([]Worker, threads)
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(threads, runtime.GOMAXPROCS(0))))
			empty := Task{threads, func(*Worker, int, int) {}}
			for b.Loop() {
				g.Run(empty, workers)
			}
		})
	}
}

// TestMain checks that the goroutines of every group end with it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
