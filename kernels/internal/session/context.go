package session

import (
	"context"
	"time"
)

// A cell is one cell's context.
type cell struct {
	context.Context
	cancel context.CancelFunc
}

func newCell() *cell {
	c := &cell{}
	c.Context, c.cancel = context.WithCancel(context.Background())
	return c
}

// A cellContext is the context of whichever cell runs when a method is called.
//
// A context that is derived from it belongs to the cell that derived it, because
// Value gives package context the running cell's own: the derived context is
// canceled by an interrupt of that cell and of no later one.
type cellContext struct{ s *Session }

func (c cellContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c cellContext) Done() <-chan struct{}       { return c.s.cell.Load().Done() }
func (c cellContext) Err() error                  { return c.s.cell.Load().Err() }
func (c cellContext) Value(key any) any           { return c.s.cell.Load().Value(key) }
func (c cellContext) String() string              { return "notebook.Context()" }
