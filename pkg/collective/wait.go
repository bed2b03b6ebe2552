package collective

import (
	"context"
	"runtime"
	"time"

	"lockstep/pkg/collective/internal/segment"
	"lockstep/pkg/internal/process"
)

const (
	// spinTime is how long a rank polls before it sleeps. It is a little longer than the
	// exchange of a chunk. So ranks on different cores do not sleep, and ranks that share a
	// core soon yield it.
	spinTime = 30 * time.Microsecond
	// maxSleep limits a sleep, so that the context, the time-out and the other processes
	// are checked now and then. The arrival of a rank ends a sleep at once.
	maxSleep = 50 * time.Millisecond
	// checkEvery is the number of sleeps between two checks of the other processes. A
	// dead process is noticed within a quarter of a second.
	checkEvery = 5
)

func (g *memoryGroup) announceArrival() {
	c := g.control
	g.syncs++
	c.Arrived.Store(g.syncs)
	if c.Waiters.Load() > 0 {
		g.notifier.Notify(g.rank)
	}
}

func (g *memoryGroup) synchronize(ctx context.Context) error {
	g.announceArrival()
	var waited process.Stopwatch
	for rank := range g.size {
		if rank == g.rank {
			continue
		}
		c := g.memory.ControlBlock(rank)
		if g.spinUntilArrived(c) {
			continue
		}
		if err := g.sleepUntilArrived(ctx, rank, &waited); err != nil {
			return err
		}
	}
	return nil
}

// hasArrived reports whether the rank with control block c has reached this rank's
// synchronization. It allows for counters that wrap around.
func (g *memoryGroup) hasArrived(c *segment.ControlBlock) bool {
	return int32(c.Arrived.Load()-g.syncs) >= 0
}

// spinUntilArrived polls the control block c of another rank for about spinTime, and reports
// whether that rank has arrived.
func (g *memoryGroup) spinUntilArrived(c *segment.ControlBlock) bool {
	if g.hasArrived(c) {
		return true
	}
	begin := time.Now()
	for {
		for range 64 {
			if g.hasArrived(c) {
				return true
			}
		}
		if time.Since(begin) > spinTime {
			return false
		}
		runtime.Gosched()
	}
}

// sleepUntilArrived returns an error if the wait must end; waited measures the whole
// synchronization.
func (g *memoryGroup) sleepUntilArrived(ctx context.Context, rank int, waited *process.Stopwatch) error {
	c := g.memory.ControlBlock(rank)
	c.Waiters.Add(1)
	defer c.Waiters.Add(-1)
	for sleeps := 1; ; sleeps++ {
		seen := c.Arrived.Load()
		if g.hasArrived(c) {
			return nil
		}
		if err := g.checkRankWait(ctx, rank, waited.Elapsed(), sleeps%checkEvery == 0); err != nil {
			// The rank may have left after it arrived.
			if g.hasArrived(c) {
				return nil
			}
			return err
		}
		g.notifier.Sleep(ctx, rank, seen, maxSleep)
	}
}
