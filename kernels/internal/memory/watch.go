package memory

import (
	"fmt"
	"time"
)

const (
	interval = 100 * time.Millisecond
	grace    = 2 * time.Second // from the interrupt until memory must not grow any more
)

// A Watch compares the memory in use with a limit.
type Watch struct {
	Limit     Limit
	Used      func() int64    // bytes
	Cell      func() int      // the number of the cell that runs or was the last to run
	Interrupt func(err error) // ends the cell that runs, if it takes notice
	End       func(err error) // ends the kernel

	next int64     // use of memory at which a cell is interrupted again
	at   time.Time // of the interrupt, until memory was freed or another cell began
	cell int       // that was interrupted
	peak int64     // most memory in use from the interrupt until the grace was over
}

// Run watches until the kernel ends. Without a limit it returns at once.
func (w *Watch) Run() {
	if w.Limit.Bytes == 0 {
		return
	}
	for now := range time.Tick(interval) {
		w.step(now)
	}
}

// step looks once.
func (w *Watch) step(now time.Time) {
	used := w.Used()
	limit := w.Limit.Bytes
	// Just below the capacity the machine would stall before the grace is over.
	if c := w.Limit.Capacity; c > 0 && used >= c/100*95 {
		w.End(fmt.Errorf("memory limit: the kernel used %s of the %s here, and ended itself", text(used), text(c)))
		return
	}
	slack := limit / 20 // what the next cell may need to look at what there is, and to free it
	if !w.at.IsZero() {
		switch {
		case used <= limit || w.Cell() != w.cell:
			w.at, w.next = time.Time{}, max(limit, used+slack)
		case now.Sub(w.at) < grace:
			w.peak = max(w.peak, used)
		case used > w.peak+slack:
			w.End(fmt.Errorf("memory limit: the kernel used %s (the limit is %v), and memory still grew %v after the interrupt, so the kernel ended itself",
				text(used), w.Limit, grace))
		}
		return
	}
	if used <= limit {
		w.next = limit
	}
	if used <= w.next {
		return
	}
	w.at, w.cell, w.peak = now, w.Cell(), used
	w.Interrupt(fmt.Errorf("memory limit: the kernel uses %s; the limit is %v", text(used), w.Limit))
}
