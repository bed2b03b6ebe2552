package threads

import (
	"sync"
	"sync/atomic"
)

// Task is work that is divided into items, which may be computed in any order. Run computes
// items [lo, hi) with the scratch memory of w. If Items is 0, the task waits for something
// outside of the group: Group.Run calls Run once in the caller's goroutine.
type Task struct {
	Items int
	Run   func(w *Worker, lo, hi int)
}

// Worker is the state of one goroutine of a group while it works for one program.
type Worker struct {
	Scratch []float32
	Number  int // from 0
}

// Group runs tasks on a fixed number of goroutines, one of which is the caller's. The
// others are called helpers.
type Group struct {
	mu     sync.Mutex       // one task at a time, also when two executables run at once
	Size   int              // number of goroutines
	work   []chan itemRange // one channel per helper; there are Size−1 helpers
	done   sync.WaitGroup
	exited sync.WaitGroup
	closed atomic.Bool
}

// itemRange is the part of a task that one helper computes.
type itemRange struct {
	run    func(w *Worker, lo, hi int)
	worker *Worker
	lo, hi int
}

// New returns a group of the given number of goroutines and starts its helpers.
func New(threads int) *Group {
	g := &Group{Size: threads, work: make([]chan itemRange, threads-1)}
	for i := range g.work {
		g.work[i] = make(chan itemRange, 1)
		g.exited.Add(1)
		go func(in <-chan itemRange) {
			defer g.exited.Done()
			for s := range in {
				s.run(s.worker, s.lo, s.hi)
				g.done.Done()
			}
		}(g.work[i])
	}
	return g
}

// Run computes all items of t and returns when they are done. Worker i always computes the
// same items of a task. If the group is closed, the caller computes all items.
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
		g.work[i-1] <- itemRange{t.Run, &workers[i], i * t.Items / parts, (i + 1) * t.Items / parts}
	}
	t.Run(&workers[0], 0, t.Items/parts)
	g.done.Wait()
}

// Close stops the helpers and waits until they have ended. It may be called twice.
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

// Closed reports whether Close has been called.
func (g *Group) Closed() bool { return g.closed.Load() }
