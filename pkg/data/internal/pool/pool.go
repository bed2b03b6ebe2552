// Package pool keeps goroutines for reuse.
package pool

import "sync"

// Pool keeps idle goroutines, so that later epochs reuse them.
type Pool struct {
	mu      sync.Mutex
	idle    []chan func()
	Started int // number of goroutines that were started
	closed  bool
	wg      sync.WaitGroup
}

// Run runs f on an idle goroutine, or on a new one if none is idle.
func (c *Pool) Run(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.idle); n > 0 {
		work := c.idle[n-1]
		c.idle = c.idle[:n-1]
		work <- f
		return
	}
	work := make(chan func(), 1)
	work <- f
	c.Started++
	c.wg.Go(func() {
		for f := range work {
			f()
			if !c.markIdle(work) {
				return
			}
		}
	})
}

// markIdle adds work, the channel of a goroutine, to the idle goroutines. It returns false if the
// pool is closed and the goroutine must end.
func (c *Pool) markIdle(work chan func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.idle = append(c.idle, work)
	return true
}

// Close ends the idle goroutines, and waits for the others to finish their work.
func (c *Pool) Close() {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		for _, work := range c.idle {
			close(work)
		}
		c.idle = nil
	}
	c.mu.Unlock()
	c.wg.Wait()
}
