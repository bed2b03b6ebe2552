package session

import (
	"context"
	"time"
)

// A cancelableContext is the context of one cell.
type cancelableContext struct {
	context.Context
	cancel context.CancelFunc
}

func newCancelableContext() *cancelableContext {
	c := &cancelableContext{}
	c.Context, c.cancel = context.WithCancel(context.Background())
	return c
}

// A cellContext is a context whose methods use the context of the cell that runs when they are called.
//
// A derived context belongs to the cell that derived it, because Value gives package context that cell's own
// context: only an interrupt of that cell cancels it.
type cellContext struct{ s *Session }

func (c cellContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c cellContext) Done() <-chan struct{}       { return c.s.cell.Load().Done() }
func (c cellContext) Err() error                  { return c.s.cell.Load().Err() }
func (c cellContext) Value(key any) any           { return c.s.cell.Load().Value(key) }
func (c cellContext) String() string              { return "notebook.Context()" }
