package server

import (
	"context"
	"slices"
	"sync"
	"time"
)

// HeartbeatInterval limits how long a server lets a worker wait for a reply. Then it replies that the
// worker must ask again, so that no rank hears nothing from another one for longer than the
// time-out of the group, however long the wait is.
const HeartbeatInterval = time.Second

// timedCondition is a mutex with a condition on which one can wait for a limited time.
type timedCondition struct {
	mu      sync.Mutex
	changed chan struct{} // closed at the next change
}

// waitFor calls try, which may change what the mutex protects, until it returns true, at most
// for the duration limit and until ctx ends. It reports whether try has returned true. After
// that, it wakes the other callers.
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

// noVersion is the version of a worker that has not read parameters since its last gradient.
const noVersion = -1

// coordinator decides the order of the updates of a parameter server whose workers do not
// wait for each other. Update number u of the parameters is admitted as a whole, on all
// servers, and changes version u-1 of the parameters into version u.
//
// Each gradient is an update of its own. Its staleness is the number of updates between the version
// that its worker has read and the version that it changes. It is at most limit: workers wait to
// read, or to be admitted, until this is certain. It always becomes so, because the worker that has
// read the oldest version is always admitted.
type coordinator struct {
	timedCondition
	limit    int
	version  int    // admitted updates
	read     []int  // by worker: the version that it has read, or noVersion
	finished []bool // by worker: it has no further steps in this epoch
}

// newCoordinator returns the coordinator of the given number of workers, whose parameters have
// the given version.
func newCoordinator(workers, limit, version int) *coordinator {
	return &coordinator{
		limit: limit, version: version,
		read: slices.Repeat([]int{noVersion}, workers), finished: make([]bool, workers),
	}
}

// checkOutVersion returns the version of the parameters that a worker shall read for its optimizer
// step. ok is false if the worker must ask again, after patience.
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

// outstandingVersions returns the versions that workers other than the given one have read for
// gradients that are not admitted yet, in ascending order.
func (c *coordinator) outstandingVersions(worker int) []int {
	var versions []int
	for w, v := range c.read {
		if w != worker && v != noVersion {
			versions = append(versions, v)
		}
	}
	slices.Sort(versions)
	return versions
}

// admitUpdate returns the number of the update that uses a worker's gradient, and the gradient's staleness.
// ok is false if the worker must ask again, after patience.
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
		update, c.read[worker] = c.version, noVersion
		return true
	})
	return update, staleness, ok
}

// finishWorker records that a worker has no further steps in this epoch. It returns true once all
// workers have none; if it returns false, after patience, the worker must ask again.
func (c *coordinator) finishWorker(ctx context.Context, patience time.Duration, worker int) bool {
	c.waitFor(ctx, 0, func() bool { c.finished[worker] = true; return true })
	return c.waitFor(ctx, patience, func() bool { return !slices.Contains(c.finished, false) })
}
