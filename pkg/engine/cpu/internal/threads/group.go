package threads

import (
	"sync"
	"sync/atomic"
)

// Task is a part of a kernel whose items may be computed in any order: run
// computes items [lo, hi) with the memory of worker number w. One without items
// does not compute, but waits for other workers: the caller calls it once.
type Task struct {
	Items int
	Run   func(w *Worker, lo, hi int)
}

// Worker is the memory that one goroutine of an executable works in.
type Worker struct {
	Scratch []float32
	Number  int
}

// Group runs tasks on a fixed number of goroutines, the caller's among them.
type Group struct {
	mu     sync.Mutex // one task at a time, also when two executables run at once
	Size   int
	work   []chan share // to the helpers, threads−1 of them
	done   sync.WaitGroup
	exited sync.WaitGroup
	closed atomic.Bool
}

// share is a helper's part of a task.
type share struct {
	run    func(w *Worker, lo, hi int)
	worker *Worker
	lo, hi int
}

// newGroup starts threads−1 helpers.
func New(threads int) *Group {
	g := &Group{Size: threads, work: make([]chan share, threads-1)}
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

// Run computes all items of t and returns when they are done. Worker i always
// gets the same items.
func (g *Group) Run(t Task, workers []Worker) {
	parts := min(g.Size, t.Items)
	if parts <= 1 {
		t.Run(&workers[0], 0, t.Items)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed.Load() {
		t.Run(&workers[0], 0, t.Items)
		return
	}
	g.done.Add(parts - 1)
	for i := 1; i < parts; i++ {
		g.work[i-1] <- share{t.Run, &workers[i], i * t.Items / parts, (i + 1) * t.Items / parts}
	}
	t.Run(&workers[0], 0, t.Items/parts)
	g.done.Wait()
}

// Close ends the helpers and waits for them.
func (g *Group) Close() {
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
func (g *Group) Closed() bool { return g.closed.Load() }
