package collective

import (
	"context"
	"time"

	"lockstep/pkg/collective/internal/numbers"
	"lockstep/pkg/collective/internal/segment"
	"lockstep/pkg/internal/device"
)

// reduceSmallBuffer adds up the buffers b of two ranks, which have at most SmallBytes bytes. Each rank
// passes its buffer to the other one together with its call, and adds up both itself, in rank order.
// So one synchronization is enough.
//
// The last two operations of a rank have separate areas, so no second synchronization is needed
// before an area is written again: a rank that begins operation n has synchronized in operation
// n−1, which the other rank began after it had read the area of operation n−2.
func (g *memoryGroup) reduceSmallBuffer(ctx context.Context, b device.Buffer) error {
	return g.runExclusive(ctx, kindAllReduce, b, g.size, func() error {
		own := hostMemory(b)
		copy(g.memory.SmallBuffer(g.rank, g.number), own)
		g.countSent(own, 1)
		g.announceCall(kindAllReduce, b, 0)
		if err := g.agreeOnOutcome(g.synchronize(ctx)); err != nil {
			return err
		}
		if err := g.compareCalls(); err != nil {
			return err
		}
		if b.F64 != nil {
			addSmallBuffers(g, b.F64)
		} else {
			addSmallBuffers(g, b.F32)
		}
		return nil
	}, g.leaveAfterFailure)
}

func addSmallBuffers[T numbers.Number](g *memoryGroup, b []T) {
	of := func(rank int) []T { return numbers.FromBytes[T](g.memory.SmallBuffer(rank, g.number))[:len(b)] }
	numbers.Add(b, of(0), of(1))
}

// agreeOnOutcome makes two ranks reach the same outcome after a synchronization: both complete the
// operation, or both return an error. err is the result of the synchronization on this rank.
//
// Without agree, one rank could complete the operation although the other one has stopped waiting
// for it. So a rank that stops waiting sets its flag GaveUp, and then checks once more whether
// the other rank has arrived; and a rank that arrives checks the other's flag GaveUp. Each writes
// before it reads, so that at least one rank sees what the other has written. A rank that gave up
// but finds that the other one has arrived follows the decision of that rank in Agreed, even if
// that rank fails later.
func (g *memoryGroup) agreeOnOutcome(err error) error {
	peer := 1 - g.rank
	c := g.memory.ControlBlock(peer)
	switch {
	case err != nil:
		g.control.GaveUp.Store(g.number)
		if !g.hasArrived(c) || !g.waitForDecision(peer) {
			return err
		}
	case c.GaveUp.Load() == g.number:
		return rankFailedError(g.describeOperation(), peer, c)
	}
	g.control.Agreed.Store(g.number)
	return nil
}

// How long, and in which intervals, a rank waits for the other one's decision, which takes only
// some instructions unless that process has been stopped.
const (
	decisionTimeout = time.Second
	decisionPause   = 50 * time.Microsecond
)

// waitForDecision waits for the decision of the other rank, which has arrived, and reports
// whether it completes the operation.
func (g *memoryGroup) waitForDecision(peer int) bool {
	c := g.memory.ControlBlock(peer)
	agreed := func() bool { return c.Agreed.Load() >= g.number }
	for begin := time.Now(); !agreed() && time.Since(begin) < decisionTimeout; time.Sleep(decisionPause) {
		if c.GaveUp.Load() == g.number || c.State.Load() != segment.StatePresent {
			break
		}
	}
	return agreed()
}
