package cpu

import (
	"sync"
	"sync/atomic"
)

// task is a part of a kernel whose items may be computed in any order: run
// computes items [lo, hi) with the memory of worker number w. One without items
// does not compute, but waits for other workers: the caller calls it once.
type task struct {
	items int
	run   func(w *worker, lo, hi int)
}

// worker is the memory that one goroutine of an executable works in.
type worker struct {
	scratch []float32
	number  int
}

// group runs tasks on a fixed number of goroutines, the caller's among them.
type group struct {
	mu      sync.Mutex // one task at a time, also when two executables run at once
	threads int
	work    []chan share // to the helpers, threads−1 of them
	done    sync.WaitGroup
	exited  sync.WaitGroup
	closed  atomic.Bool
}

// share is a helper's part of a task.
type share struct {
	run    func(w *worker, lo, hi int)
	worker *worker
	lo, hi int
}

// newGroup starts threads−1 helpers.
func newGroup(threads int) *group {
	g := &group{threads: threads, work: make([]chan share, threads-1)}
	for i := range g.work {
		g.work[i] = make(chan share, 1)
		g.exited.Add(1)
		go func(in <-chan share) {
			defer g.exited.Done()
			for s := range in {
				s.run(s.worker, s.lo, s.hi)
				g.done.Done()
			}
		}(g.work[i])
	}
	return g
}

// run computes all items of t and returns when they are done. Worker i always
// gets the same items.
func (g *group) run(t task, workers []worker) {
	parts := min(g.threads, t.items)
	if parts <= 1 {
		t.run(&workers[0], 0, t.items)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed.Load() {
		t.run(&workers[0], 0, t.items)
		return
	}
	g.done.Add(parts - 1)
	for i := 1; i < parts; i++ {
		g.work[i-1] <- share{t.run, &workers[i], i * t.items / parts, (i + 1) * t.items / parts}
	}
	t.run(&workers[0], 0, t.items/parts)
	g.done.Wait()
}

// close ends the helpers and waits for them.
func (g *group) close() {
	g.mu.Lock() // not in the middle of a task
	defer g.mu.Unlock()
	if g.closed.Swap(true) {
		return
	}
	for _, c := range g.work {
		close(c)
	}
	g.exited.Wait()
}

// isClosed reports whether close has been called.
func (g *group) isClosed() bool { return g.closed.Load() }
