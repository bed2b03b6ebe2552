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
	spans   []span // of a step that is watched
}

// pool runs tasks on a fixed number of goroutines, the caller's among them.
type pool struct {
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

// newPool starts threads−1 helpers.
func newPool(threads int) *pool {
	p := &pool{threads: threads, work: make([]chan share, threads-1)}
	for i := range p.work {
		p.work[i] = make(chan share, 1)
		p.exited.Add(1)
		go func(in <-chan share) {
			defer p.exited.Done()
			for s := range in {
				s.run(s.worker, s.lo, s.hi)
				p.done.Done()
			}
		}(p.work[i])
	}
	return p
}

// run computes all items of t and returns when they are done. Worker i always
// gets the same items.
func (p *pool) run(t task, workers []worker) {
	parts := min(p.threads, t.items)
	if parts <= 1 {
		t.run(&workers[0], 0, t.items)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Load() {
		t.run(&workers[0], 0, t.items)
		return
	}
	p.done.Add(parts - 1)
	for i := 1; i < parts; i++ {
		p.work[i-1] <- share{t.run, &workers[i], i * t.items / parts, (i + 1) * t.items / parts}
	}
	t.run(&workers[0], 0, t.items/parts)
	p.done.Wait()
}

// close ends the helpers and waits for them.
func (p *pool) close() {
	p.mu.Lock() // not in the middle of a task
	defer p.mu.Unlock()
	if p.closed.Swap(true) {
		return
	}
	for _, c := range p.work {
		close(c)
	}
	p.exited.Wait()
}
