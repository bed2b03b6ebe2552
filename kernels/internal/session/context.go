package session

import (
	"context"
	"time"
)

// A cancelableContext is the context of one cell and the function that cancels it.
type cancelableContext struct {
	context.Context
	cancel context.CancelFunc
}

func newCancelableContext() *cancelableContext {
	c := &cancelableContext{}
	c.Context, c.cancel = context.WithCancel(context.Background())
	return c
}

// A cellContext is a context whose methods use the context of the cell that is running
// when they are called.
//
// A context that is derived from it belongs to the cell in which it was derived, because
// Value gives package context that cell's own context. An interrupt of that cell cancels
// the derived context; an interrupt of a later cell does not.
type cellContext struct{ s *Session }

func (c cellContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c cellContext) Done() <-chan struct{}       { return c.s.cell.Load().Done() }
func (c cellContext) Err() error                  { return c.s.cell.Load().Err() }
func (c cellContext) Value(key any) any           { return c.s.cell.Load().Value(key) }
func (c cellContext) String() string              { return "notebook.Context()" }
