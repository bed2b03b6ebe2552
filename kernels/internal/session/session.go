// Package session keeps track of the running cell, its interrupt, and the context that the interrupt cancels.
package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// interruptRepeatInterval is the time after which an interrupt is repeated, because the interpreter ignores
// it while it compiles the cell.
const interruptRepeatInterval = 500 * time.Millisecond

// A Session keeps track of the running cell. It is safe for concurrent use. New creates it; the zero value is not
// valid.
type Session struct {
	// Slow, if not nil, is called once if a cell still runs SlowAfter after its interrupt, usually in a
	// compiled function, which does not react to interrupts.
	Slow      func()
	SlowAfter time.Duration

	// Again, if not nil, is called for each further interrupt of a cell.
	Again func()

	mu        sync.Mutex
	cell      atomic.Pointer[cancelableContext] // the running cell, or the last one
	interrupt func()                            // stops the running cell; nil if no cell runs
	ended     chan struct{}                     // closed at the end of the running cell
	hit       atomic.Bool                       // the running cell was interrupted
	count     int                               // number of cells that have begun
	cause     error                             // error that stopped the cell, or nil after an interrupt
}

// New returns a session in which no cell runs.
func New() *Session {
	s := &Session{SlowAfter: 3 * time.Second}
	s.cell.Store(newCancelableContext())
	return s
}

// Begin records that a cell begins. interrupt stops it, and may be called more than once.
func (s *Session) Begin(interrupt func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cell.Store(newCancelableContext())
	s.interrupt, s.ended = interrupt, make(chan struct{})
	s.count++
	s.cause = nil
	s.hit.Store(false)
}

// End records the end of the cell, and reports whether it was interrupted.
func (s *Session) End() (interrupted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interrupt = nil
	close(s.ended)
	return s.hit.Load()
}

// CellNumber returns the number of the running cell or, if none runs, of the last one.
func (s *Session) CellNumber() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// Fail stops the given cell with err, like an interrupt. It reports whether the cell was still running.
func (s *Session) Fail(cell int, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.interrupt == nil || s.count != cell {
		return false
	}
	if s.cause == nil && !s.hit.Load() {
		s.cause = err
	}
	s.stopCell()
	return true
}

// Cause returns the error that stopped the last cell, or nil if no error did.
func (s *Session) Cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// Context returns a context that an interrupt cancels until the next cell begins, so that later cells can
// use it too.
func (s *Session) Context() context.Context { return cellContext{s} }

// Interrupt stops the running cell, if any, and cancels its context. Goroutines of earlier cells continue.
func (s *Session) Interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.interrupt == nil {
		return
	}
	if s.hit.Load() && s.Again != nil {
		s.Again()
	}
	s.stopCell()
}

// stopCell stops the running cell. The caller must hold mu.
func (s *Session) stopCell() {
	// Stop the cell first, so that it cannot continue after a call that returns because of the context.
	if s.interrupt != nil && !s.hit.Load() {
		s.hit.Store(true)
		s.interrupt()
		go s.repeatInterrupt(s.interrupt, s.ended)
	}
	s.cell.Load().cancel()
}

func (s *Session) repeatInterrupt(interrupt func(), ended <-chan struct{}) {
	tick := time.NewTicker(interruptRepeatInterval)
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

// Interrupted reports whether the running cell was interrupted.
func (s *Session) Interrupted() bool { return s.hit.Load() }

// Sleep replaces time.Sleep in a cell. An interrupt ends it early.
func (s *Session) Sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.Context().Done():
	}
}
