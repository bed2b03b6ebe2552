package memory

import (
	"fmt"
	"time"
)

const (
	interval = 100 * time.Millisecond
	grace    = 2 * time.Second // time after the interrupt in which memory use may still grow
)

// A Watcher interrupts the running cell above a limit. If memory use still grows after that, it ends the kernel.
type Watcher struct {
	Limit     Limit
	Used      func() int64    // returns the memory in use, in bytes
	Cell      func() int      // returns the number of the running cell, or of the last one
	Interrupt func(err error) // interrupts the running cell
	End       func(err error) // exits the kernel

	next int64     // memory use at which a cell is interrupted again
	at   time.Time // time of the interrupt; zero once memory was freed or another cell has begun
	cell int       // number of the interrupted cell
	peak int64     // highest memory use within grace after the interrupt
}

// Run checks the memory use until the kernel exits. Without a limit, it returns at once.
func (w *Watcher) Run() {
	if w.Limit.Bytes == 0 {
		return
	}
	for now := range time.Tick(interval) {
		w.check(now)
	}
}

func (w *Watcher) check(now time.Time) {
	used := w.Used()
	limit := w.Limit.Bytes
	// Close to its capacity the machine becomes so slow that the kernel must end at once.
	if c := w.Limit.Capacity; c > 0 && used >= c/100*95 {
		w.End(fmt.Errorf("memory limit: the kernel used %s of the %s available and exited", formatBytes(used), formatBytes(c)))
		return
	}
	slack := limit / 20 // memory for the next cell, which may inspect and free variables
	if !w.at.IsZero() {
		switch {
		case used <= limit || w.Cell() != w.cell:
			w.at, w.next = time.Time{}, max(limit, used+slack)
		case now.Sub(w.at) < grace:
			w.peak = max(w.peak, used)
		case used > w.peak+slack:
			w.End(fmt.Errorf("memory limit: the kernel used %s (the limit is %v) and exited, because its memory use still grew %v after the cell was interrupted",
				formatBytes(used), w.Limit, grace))
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
	w.Interrupt(fmt.Errorf("memory limit: the kernel uses %s; the limit is %v", formatBytes(used), w.Limit))
}
