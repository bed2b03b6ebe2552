package threads

import (
	"runtime"
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

// Group runs tasks on a fixed number of goroutines: the caller's goroutine and helpers.
//
// The goroutines form a tree with the caller at the root. Goroutine i has the children
// fanOut·i+1 to fanOut·i+fanOut. Each goroutine starts its children, computes its own part, and
// waits for its children. So no goroutine starts more than fanOut others, or shares a counter
// with more than fanOut others. With 64 threads a task starts in 15 steps, where a loop over
// all helpers would take 63. Only the caller locks mu, once per task.
type Group struct {
	mu               sync.Mutex                     // one task at a time, also when two executables run at once
	Size             int                            // number of goroutines
	nodes            []goroutineNode                // by goroutine
	task             sharedTask                     // the current task; written before the helpers are woken
	background       atomic.Pointer[BackgroundWork] // what goroutines compute while they wait; nil: nothing
	synchronizations atomic.Int64
	exited           sync.WaitGroup
	closed           atomic.Bool
}

// fanOut is the number of children of a goroutine. The tree has one level of children for up to
// nine threads, and two levels for up to 73.
const fanOut = 8

// cacheLineBytes is the distance in bytes at which two counters do not slow each other down. Intel's
// processors fetch lines of 64 bytes in pairs, and Apple's have lines of 128 bytes.
const cacheLineBytes = 128

// goroutineNode is the part of a group that one goroutine waits on. It fills whole cache lines, so
// that no two goroutines wait on the same line.
type goroutineNode struct {
	_        [cacheLineBytes]byte
	start    signal       // sent once per task; never to the caller
	items    itemRange    // of the goroutine's part of the current task, which nobody has claimed
	working  atomic.Int32 // children that work on the current task
	finished signal       // sent when working becomes 0
	spare    func() bool  // computes a piece of the group's background, if allowed
	_        [cacheLineBytes]byte
}

// sharedTask is a task that is divided into parts, one per goroutine. Goroutine i begins with
// items i·Items/parts to (i+1)·Items/parts, exclusive, and then takes items from parts of others.
type sharedTask struct {
	Task
	workers []Worker
	parts   int
}

// itemRange is a range of items from which several goroutines claim some. The zero value is empty.
type itemRange struct {
	bounds atomic.Uint64 // the first item in the upper half, the end in the lower half
}

func (r *itemRange) set(lo, hi int) { r.bounds.Store(uint64(lo)<<32 | uint64(hi)) }

// claimFraction is the fraction of the items left that a goroutine claims at once. Few and
// large claims share more work between successive items, such as reading a block of the input;
// small ones let the goroutines end at about the same time.
const claimFraction = 4

// claim removes a fraction of the items from the range, at its end if atEnd is set and else at
// its beginning, and returns them. It returns 0, 0 if the range is empty.
func (r *itemRange) claim(atEnd bool) (lo, hi int) {
	for {
		bounds := r.bounds.Load()
		lo, hi := int(bounds>>32), int(uint32(bounds))
		if lo == hi {
			return 0, 0
		}
		middle := lo + (hi-lo+claimFraction-1)/claimFraction
		left, taken := [2]int{middle, hi}, [2]int{lo, middle}
		if atEnd {
			middle = lo + hi - middle
			left, taken = [2]int{lo, middle}, [2]int{middle, hi}
		}
		if r.bounds.CompareAndSwap(bounds, uint64(left[0])<<32|uint64(left[1])) {
			return taken[0], taken[1]
		}
	}
}

// New returns a group of the given number of goroutines and starts its helpers.
func New(threads int) *Group {
	g := &Group{Size: threads, nodes: make([]goroutineNode, threads)}
	// With fewer processors, who polls would keep another goroutine of the group from working.
	polls := threads <= min(runtime.GOMAXPROCS(0), runtime.NumCPU())
	for i := range g.nodes {
		n := &g.nodes[i]
		n.start.init(polls)
		n.finished.init(polls)
		n.spare = func() bool {
			b := g.background.Load()
			return b != nil && b.runNextPiece(i)
		}
		if i > 0 {
			g.exited.Go(func() { g.runHelper(i) })
		}
	}
	return g
}

func (g *Group) runHelper(i int) {
	parent := &g.nodes[(i-1)/fanOut]
	for {
		g.nodes[i].start.wait(g.nodes[i].spare)
		if g.closed.Load() {
			return
		}
		g.runSubtree(i)
		if parent.working.Add(-1) == 0 {
			parent.finished.send()
		}
	}
}

// Run computes all items of t and returns when they are done. Which worker computes an item
// depends on timing. If the group is closed, the caller computes all items.
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
	g.synchronizations.Add(1)
	g.task = sharedTask{t, workers, parts}
	g.nodes[0].items.set(0, t.Items/parts)
	g.runSubtree(0)
}

// runSubtree computes part i of the current task while goroutine i's children compute theirs,
// and then items that the other goroutines have not begun.
func (g *Group) runSubtree(i int) {
	t := &g.task
	first := fanOut*i + 1
	last := min(first+fanOut, t.parts)
	n := &g.nodes[i]
	lo, hi := n.items.claim(false) // before a child could claim all
	if first < last {
		n.working.Store(int32(last - first))
		for c := first; c < last; c++ {
			g.nodes[c].items.set(c*t.Items/t.parts, (c+1)*t.Items/t.parts)
			g.nodes[c].start.send()
		}
	}
	for k := 0; k < t.parts; { // part k after its own
		if lo < hi {
			t.Run(&t.workers[i], lo, hi)
		} else {
			k++
		}
		lo, hi = g.nodes[(i+k)%t.parts].items.claim(k > 0)
	}
	if first < last {
		n.finished.wait(n.spare)
	}
}

// SynchronizationCount returns how often the goroutines of the group have started a task together
// and waited for its end, since New. Tasks that the caller computes alone do not count.
func (g *Group) SynchronizationCount() int64 { return g.synchronizations.Load() }

// Close stops the helpers and waits until they have ended. It may be called twice.
func (g *Group) Close() {
	g.mu.Lock() // not in the middle of a task
	defer g.mu.Unlock()
	if g.closed.Swap(true) {
		return
	}
	for i := 1; i < g.Size; i++ {
		g.nodes[i].start.send()
	}
	g.exited.Wait()
}

// Closed reports whether Close has been called.
func (g *Group) Closed() bool { return g.closed.Load() }
