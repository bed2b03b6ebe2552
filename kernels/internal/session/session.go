// Package session keeps track of the cell that a kernel runs, of its interrupt,
// and of the context that the interrupt cancels.
package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// again is how long after an interrupt the interpreter is told once more. It
// forgets what it is told while it still compiles the cell.
const again = 500 * time.Millisecond

// A Session is safe for use by several goroutines. Its zero value is not ready;
// New makes one.
type Session struct {
	// Slow, if set, is called once for a cell that still runs this long after
	// an interrupt, because a compiled function takes no notice of it.
	Slow      func()
	SlowAfter time.Duration

	// Again, if set, is called for each further interrupt of a cell that still
	// runs after its first.
	Again func()

	mu        sync.Mutex
	cell      atomic.Pointer[cell] // the running cell, or the last one
	interrupt func()               // stops the running cell; nil when none runs
	ended     chan struct{}        // closed at the end of the running cell
	hit       atomic.Bool          // the running cell was interrupted
	count     int                  // of the cells
	cause     error                // why it was stopped, if not by an interrupt
}

// New returns a session in which no cell runs.
func New() *Session {
	s := &Session{SlowAfter: 3 * time.Second}
	s.cell.Store(newCell())
	return s
}

// Begin starts a cell. Its interrupt function is called when the cell is to be
// stopped, possibly more than once.
func (s *Session) Begin(interrupt func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cell.Store(newCell())
	s.interrupt, s.ended = interrupt, make(chan struct{})
	s.count++
	s.cause = nil
	s.hit.Store(false)
}

// End ends the cell and reports whether it was interrupted.
func (s *Session) End() (interrupted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interrupt = nil
	close(s.ended)
	return s.hit.Load()
}

// Cell names the cell that runs, or the last one that did.
func (s *Session) Cell() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// Fail stops a cell, as an interrupt does, because of an error. It reports false
// and does nothing if that cell no longer runs.
func (s *Session) Fail(cell int, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.interrupt == nil || s.count != cell {
		return false
	}
	if s.cause == nil && !s.hit.Load() {
		s.cause = err
	}
	s.stop()
	return true
}

// Cause is the error that stopped the last cell, or nil.
func (s *Session) Cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// Context returns the context that an interrupt of the running cell cancels. It
// may be kept: in the next cell it is alive again.
func (s *Session) Context() context.Context { return cellContext{s} }

// Interrupt stops the cell that runs and cancels its context. Between two cells
// it does nothing: what earlier cells started goes on.
func (s *Session) Interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.interrupt == nil {
		return
	}
	if s.hit.Load() && s.Again != nil {
		s.Again()
	}
	s.stop()
}

// stop stops the cell that runs and cancels its context. The caller holds mu.
func (s *Session) stop() {
	// The cell is stopped first: a call that returns because its context is
	// cancelled must not find a cell that goes on.
	if s.interrupt != nil && !s.hit.Load() {
		s.hit.Store(true)
		s.interrupt()
		go s.insist(s.interrupt, s.ended)
	}
	s.cell.Load().cancel()
}

// insist repeats the interrupt until the cell has ended.
func (s *Session) insist(interrupt func(), ended <-chan struct{}) {
	tick := time.NewTicker(again)
	defer tick.Stop()
	slow := time.NewTimer(s.SlowAfter)
	defer slow.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
			interrupt()
		case <-slow.C:
			if s.Slow != nil {
				s.Slow()
			}
		}
	}
}

// Interrupted reports whether the cell that runs was interrupted.
func (s *Session) Interrupted() bool { return s.hit.Load() }

// Sleep is time.Sleep for a cell: an interrupt ends it early.
func (s *Session) Sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.Context().Done():
	}
}
