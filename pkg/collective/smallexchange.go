package collective

import (
	"context"
	"time"

	"lockstep/pkg/collective/internal/numbers"
	"lockstep/pkg/collective/internal/segment"
	"lockstep/pkg/internal/device"
)

// reduceSmallBuffer adds up the buffers of two ranks, each of at most SmallBufferBytes bytes. Each rank
// passes its buffer to the other rank together with its call, and both add them up in rank order.
// So one synchronization is enough.
//
// The last two operations of a rank have separate areas, so that no second synchronization is
// needed before an area is written again. A rank that begins operation n has synchronized in
// operation n−1, which the other rank began only after it had read the area of operation n−2.
func (g *memoryGroup) reduceSmallBuffer(ctx context.Context, b device.Buffer) error {
	return g.runExclusive(ctx, kindAllReduce, b, g.size, func() error {
		own := hostMemory(b)
		copy(g.memory.SmallBuffer(g.rank, g.number), own)
		g.countSentBytes(own, 1)
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
	of := func(rank int) []T { return numbers.ReinterpretBytes[T](g.memory.SmallBuffer(rank, g.number))[:len(b)] }
	numbers.Add(b, of(0), of(1))
}

// agreeOnOutcome makes two ranks agree on the outcome of an operation after a synchronization:
// either both complete it, or both return an error. err is the result of the synchronization on
// this rank.
//
// Without this agreement, one rank could complete the operation although the other one has stopped
// waiting for it. So a rank that stops waiting sets its flag GaveUp, and then checks once more
// whether the other rank has arrived. A rank that arrives checks GaveUp of the other one. Each
// writes before it reads, so that at least one of them sees what the other has written. If a rank
// gave up but finds that the other one has arrived, it follows that rank's decision in Agreed, even
// if that rank fails later.
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

// How long a rank waits for the decision of the other rank, and the pause between two checks. The
// decision takes only a few instructions unless the other process has been stopped.
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
