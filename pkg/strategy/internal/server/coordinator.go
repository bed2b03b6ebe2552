package server

import (
	"context"
	"slices"
	"sync"
	"time"
)

// HeartbeatInterval limits how long a server lets a worker wait for a reply. After that time, it
// replies that the worker must ask again. This ensures that, however long the wait is, no rank goes
// without a message for longer than the group's time-out.
const HeartbeatInterval = time.Second

// timedCondition is a mutex with a condition that callers can wait for, for a limited time.
type timedCondition struct {
	mu      sync.Mutex
	changed chan struct{} // closed at the next change
}

// waitFor calls try until it returns true, for at most limit and until ctx ends. try may change
// what the mutex protects. waitFor reports whether try has returned true, and then wakes the other
// callers.
func (c *timedCondition) waitFor(ctx context.Context, limit time.Duration, try func() bool) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		c.mu.Lock()
		done := try()
		if c.changed == nil || done {
			if c.changed != nil {
				close(c.changed)
			}
			c.changed = make(chan struct{})
		}
		changed := c.changed
		c.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// noReadVersion means that a worker has not read parameters since its last gradient.
const noReadVersion = -1

// coordinator decides the order of the updates in a parameter server whose workers do not wait for
// each other. Update number u changes version u-1 of the parameters into version u. It is admitted
// for all servers at once.
//
// Each gradient is a separate update. Its staleness is the number of updates between the version
// that its worker has read and the version that it changes. The staleness is at most limit: workers
// wait to read, or to be admitted, until this is certain. No worker waits forever, because the
// worker that has read the oldest version is always admitted.
type coordinator struct {
	timedCondition
	limit    int
	version  int    // admitted updates
	read     []int  // by worker: the version that it has read, or noReadVersion
	finished []bool // by worker: it has no further steps in this epoch
}

// newCoordinator returns a coordinator for the given number of workers. version is the current
// version of the parameters.
func newCoordinator(workers, limit, version int) *coordinator {
	return &coordinator{
		limit: limit, version: version,
		read: slices.Repeat([]int{noReadVersion}, workers), finished: make([]bool, workers),
	}
}

// checkOutVersion returns the version of the parameters that a worker must read for its optimizer
// step. If the worker must wait longer than patience, ok is false, and the worker must ask again.
func (c *coordinator) checkOutVersion(ctx context.Context, patience time.Duration, worker int) (version int, ok bool) {
	ok = c.waitFor(ctx, patience, func() bool {
		if len(c.outstandingVersions(worker)) > c.limit {
			return false
		}
		version = c.version
		c.read[worker] = version
		return true
	})
	return version, ok
}

// outstandingVersions returns the versions read by workers other than the given one whose gradients
// are not admitted yet, in ascending order.
func (c *coordinator) outstandingVersions(worker int) []int {
	var versions []int
	for w, v := range c.read {
		if w != worker && v != noReadVersion {
			versions = append(versions, v)
		}
	}
	slices.Sort(versions)
	return versions
}

// admitUpdate returns the number of the update that uses a worker's gradient, and the staleness of
// the gradient. If the worker must wait longer than patience, ok is false, and the worker must ask
// again.
func (c *coordinator) admitUpdate(ctx context.Context, patience time.Duration, worker int) (update, staleness int, ok bool) {
	ok = c.waitFor(ctx, patience, func() bool {
		// After this update, the others must still be able to follow one after another.
		for i, v := range c.outstandingVersions(worker) {
			if c.version+1+i > v+c.limit {
				return false
			}
		}
		staleness = c.version - c.read[worker]
		c.version++
		update, c.read[worker] = c.version, noReadVersion
		return true
	})
	return update, staleness, ok
}

// finishWorker records that a worker has no further steps in this epoch. It waits until this
// applies to all workers, and then returns true. If this takes longer than patience, it returns
// false, and the worker must ask again.
func (c *coordinator) finishWorker(ctx context.Context, patience time.Duration, worker int) bool {
	c.waitFor(ctx, 0, func() bool { c.finished[worker] = true; return true })
	return c.waitFor(ctx, patience, func() bool { return !slices.Contains(c.finished, false) })
}
