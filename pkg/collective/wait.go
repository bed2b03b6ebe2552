package collective

import (
	"context"
	"runtime"
	"time"

	"lockstep/pkg/internal/process"
)

const (
	// spinTime is how long a rank looks again and again before it sleeps: a
	// little more than an exchange of a chunk takes, so that ranks that run at
	// the same time do not sleep, and ranks that share a core soon do.
	spinTime = 30 * time.Microsecond
	// napTime bounds a sleep, so that the context, the time-out and the
	// peers' health are looked at. An arrival ends a sleep at once.
	napTime = 50 * time.Millisecond
	// checkEvery is the number of naps between two looks at the peers'
	// processes: a dead one is noticed in a quarter of a second.
	checkEvery = 5
)

// A bell wakes the ranks that sleep until a rank arrives somewhere.
type bell interface {
	// sleep returns when rank's arrived is no longer seen, when it was rung,
	// when ctx ended where it can know that, and at the latest after d.
	sleep(ctx context.Context, rank int, seen uint32, d time.Duration)
	// ring wakes those who sleep for rank.
	ring(rank int)
}

// arrive tells the others that this rank has reached its next meeting.
func (g *memoryGroup) arrive() {
	c := g.control
	g.meeting++
	c.arrived.Store(g.meeting)
	if c.waiters.Load() > 0 {
		g.bell.ring(g.rank)
	}
}

// meet arrives and waits until every other rank has arrived too.
func (g *memoryGroup) meet(ctx context.Context) error {
	g.arrive()
	var waited process.Stopwatch
	for rank := range g.size {
		if rank == g.rank {
			continue
		}
		c := g.memory.control(rank)
		if g.spin(c) {
			continue
		}
		if err := g.sleepUntil(ctx, rank, &waited); err != nil {
			return err
		}
	}
	return nil
}

// here says whether c's rank has reached the meeting; the counter may wrap.
func (g *memoryGroup) here(c *control) bool { return int32(c.arrived.Load()-g.meeting) >= 0 }

// spin waits a short time without sleeping.
func (g *memoryGroup) spin(c *control) bool {
	if g.here(c) {
		return true
	}
	begin := time.Now()
	for {
		for range 64 {
			if g.here(c) {
				return true
			}
		}
		if time.Since(begin) > spinTime {
			return false
		}
		runtime.Gosched()
	}
}

// sleepUntil waits for one rank, asleep.
func (g *memoryGroup) sleepUntil(ctx context.Context, rank int, waited *process.Stopwatch) error {
	c := g.memory.control(rank)
	c.waiters.Add(1)
	defer c.waiters.Add(-1)
	for naps := 1; ; naps++ {
		seen := c.arrived.Load()
		if g.here(c) {
			return nil
		}
		if err := g.missing(ctx, rank, waited.Elapsed(), naps%checkEvery == 0); err != nil {
			// What happened may have been the rank's last act after it arrived.
			if g.here(c) {
				return nil
			}
			return err
		}
		g.bell.sleep(ctx, rank, seen, napTime)
	}
}
