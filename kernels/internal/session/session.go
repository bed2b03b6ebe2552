// Package session keeps track of the cell that a kernel runs, of its interrupt,
// and of the context that the interrupt cancels.
package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// interruptRepeatInterval is the time after which an interrupt is repeated, because the
// interpreter ignores an interrupt that arrives while it compiles the cell.
const interruptRepeatInterval = 500 * time.Millisecond

// A Session keeps track of the running cell and its interrupts. It is safe for concurrent
// use. Use New to create one; the zero value is not valid.
type Session struct {
	// Slow, if not nil, is called once if a cell is still running when SlowAfter has
	// passed since the interrupt. The usual reason is a compiled function, which does not
	// react to interrupts.
	Slow      func()
	SlowAfter time.Duration

	// Again, if not nil, is called for each further interrupt of a cell that is still
	// running after its first interrupt.
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

// Begin records that a cell begins. interrupt stops the cell; it may be called more than
// once.
func (s *Session) Begin(interrupt func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cell.Store(newCancelableContext())
	s.interrupt, s.ended = interrupt, make(chan struct{})
	s.count++
	s.cause = nil
	s.hit.Store(false)
}

// End records that the cell has ended, and reports whether it was interrupted.
func (s *Session) End() (interrupted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interrupt = nil
	close(s.ended)
	return s.hit.Load()
}

// CellNumber returns the number of the running cell, or of the last cell if none is running.
func (s *Session) CellNumber() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// Fail stops the given cell because of the error err, in the same way as an interrupt. It
// reports whether the cell was still running; if not, Fail does nothing.
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

// Context returns a context that is canceled when the running cell is interrupted. The
// same value can be used in later cells: when the next cell begins, it is no longer
// canceled.
func (s *Session) Context() context.Context { return cellContext{s} }

// Interrupt stops the running cell and cancels its context. If no cell runs it does
// nothing; goroutines that earlier cells started continue.
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

// stopCell stops the running cell and cancels its context. The caller must hold mu.
func (s *Session) stopCell() {
	// Stop the cell first, so that it cannot continue after a call that returns because
	// the context is canceled.
	if s.interrupt != nil && !s.hit.Load() {
		s.hit.Store(true)
		s.interrupt()
		go s.repeatInterrupt(s.interrupt, s.ended)
	}
	s.cell.Load().cancel()
}

// repeatInterrupt repeats the interrupt until the cell has ended.
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
