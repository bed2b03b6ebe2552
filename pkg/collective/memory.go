package collective

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"lockstep/pkg/collective/internal/segment"
	"lockstep/pkg/internal/device"
)

// memoryGroup is a Group whose ranks exchange data through a segment. A buffer is divided
// into one shard per rank, and each shard into pieces. For each piece:
//
//  1. Every rank copies its piece of each other rank's shard into its own slot. The
//     ranks synchronize.
//  2. Rank r adds all ranks' pieces of shard r, in rank order. It writes the sum to its
//     buffer and to the result area. The ranks synchronize.
//  3. Every rank copies the pieces of the other shards from the result area.
//
// Each sum is computed once, by the owner of the shard, in an order that does not depend
// on timing. So all ranks get the same bits in every run.
//
// Slots are written before the first synchronization of a piece and read before the
// second. The result area is written between the two and read after the second; no rank
// can pass the first synchronization of the next piece before all ranks have read it.
//
// An all-reduce of a small buffer between two ranks needs only one synchronization, see reduceSmallBuffer.
type memoryGroup struct {
	name      string
	rank      int
	size      int
	memory    segment.Segment
	control   *segment.ControlBlock // this rank's control block
	notifier  segment.Notifier
	options   Options
	algorithm algorithmSelector
	exchange  *memoryExchange     // for schedules; nil until the first
	isAlive   func(rank int) bool // reports whether rank's process exists; nil if all ranks share a process
	release   func() error        // frees the memory; may be nil

	serializer
	syncs uint32        // how often this rank has synchronized
	sent  atomic.Uint64 // see Sent
}

func (g *memoryGroup) Rank() int    { return g.rank }
func (g *memoryGroup) Size() int    { return g.size }
func (g *memoryGroup) Name() string { return g.algorithm.nameWithAlgorithm(g.name) }

func (g *memoryGroup) AllReduce(ctx context.Context, b device.Buffer) error {
	name := g.algorithm.chooseForSize(b.Bytes())
	if name == g.algorithm.native && g.size == 2 && b.Bytes() <= segment.SmallBufferBytes {
		return g.reduceSmallBuffer(ctx, b)
	}
	return g.runOperation(ctx, kindAllReduce, b, algorithmNumber(name), func() error {
		if name != g.algorithm.native {
			return g.allReduceBySchedule(ctx, b, name)
		}
		if b.F64 != nil {
			return memoryReduce(ctx, g, b.F64, true)
		}
		return memoryReduce(ctx, g, b.F32, true)
	})
}

func (g *memoryGroup) ReduceScatter(ctx context.Context, b device.Buffer) error {
	return g.runOperation(ctx, kindReduceScatter, b, 0, func() error {
		if b.F64 != nil {
			return memoryReduce(ctx, g, b.F64, false)
		}
		return memoryReduce(ctx, g, b.F32, false)
	})
}

func (g *memoryGroup) AllGather(ctx context.Context, b device.Buffer) error {
	return g.runOperation(ctx, kindAllGather, b, 0, func() error {
		if b.F64 != nil {
			return memoryGather(ctx, g, b.F64)
		}
		return memoryGather(ctx, g, b.F32)
	})
}

func (g *memoryGroup) Broadcast(ctx context.Context, b device.Buffer, root int) error {
	if root < 0 || root >= g.size {
		return fmt.Errorf("broadcast: invalid root %d: use 0 to %d", root, g.size-1)
	}
	return g.runOperation(ctx, kindBroadcast, b, root, func() error {
		if b.F64 != nil {
			return memoryBroadcast(ctx, g, b.F64, root)
		}
		return memoryBroadcast(ctx, g, b.F32, root)
	})
}

func (g *memoryGroup) Barrier(ctx context.Context) error {
	return g.runOperation(ctx, kindBarrier, device.Buffer{}, 0, func() error { return nil })
}

// Close leaves the group. Ranks that wait for this one get an error.
func (g *memoryGroup) Close() error {
	return g.closeOnce(func() error {
		if !g.notified {
			g.leaveGroup(segment.StateClosed)
		}
		if g.release == nil {
			return nil
		}
		return g.release()
	})
}

// leaveGroup notifies the other ranks that this one will not synchronize again. state is the
// reason: StateClosed or StateFailed.
func (g *memoryGroup) leaveGroup(state uint32) {
	g.control.State.Store(state)
	g.notifier.Notify(g.rank)
	for rank := range g.size {
		g.notifyChannelUse(rank)
	}
}

// runOperation announces an operation, checks that all ranks have announced the same one,
// and runs body. After an error the group refuses further operations.
func (g *memoryGroup) runOperation(ctx context.Context, k opKind, b device.Buffer, root int, body func() error) error {
	return g.runExclusive(ctx, k, b, g.size, func() error {
		g.announceCall(k, b, root)
		if err := g.synchronize(ctx); err != nil {
			return err
		}
		if err := g.compareCalls(); err != nil {
			return err
		}
		return body()
	}, g.leaveAfterFailure)
}

// announceCall stores an operation for the other ranks to see after synchronizing.
func (g *memoryGroup) announceCall(k opKind, b device.Buffer, root int) {
	c := &g.control.Calls[g.number%2]
	c.What.Store(callSignature(k, b, root))
	c.Length.Store(uint64(b.Len()))
	c.Number.Store(g.number)
}

// compareCalls returns an error if the ranks' operations or buffer sizes differ.
func (g *memoryGroup) compareCalls() error {
	at := func(rank int) *segment.AnnouncedCall { return &g.memory.ControlBlock(rank).Calls[g.number%2] }
	mine := at(g.rank)
	for rank := range g.size {
		c := at(rank)
		if c.What.Load() != mine.What.Load() || c.Length.Load() != mine.Length.Load() {
			return fmt.Errorf("%s: rank %d calls %s, rank %d calls %s: every rank must call the same operations in the same order",
				g.describeOperation(), g.rank, formatCall(mine.What.Load(), mine.Length.Load()), rank, formatCall(c.What.Load(), c.Length.Load()))
		}
	}
	return nil
}

// checkRankWait returns the error that ends the wait for rank, or nil if the wait goes on. If
// checkProcess is true, it also checks that the rank's process exists.
func (g *memoryGroup) checkRankWait(ctx context.Context, rank int, waited time.Duration, checkProcess bool) error {
	if err := g.checkRankPresent(g.describeOperation(), rank, checkProcess); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w while waiting for %s", g.describeOperation(), context.Cause(ctx), g.describeMissingRanks())
	}
	if waited >= g.options.Timeout {
		return fmt.Errorf("%s: %s did not arrive within %v", g.describeOperation(), g.describeMissingRanks(), g.options.Timeout)
	}
	return nil
}

// checkRankPresent returns an error if rank has left the group, or if another operation of this
// rank has failed. If checkProcess is true, rank's process must also exist. The error names the
// waiting operation, what.
func (g *memoryGroup) checkRankPresent(what string, rank int, checkProcess bool) error {
	// The other rank may have failed because of this one.
	if err := g.checkGroupFailure(what); err != nil {
		return err
	}
	c := g.memory.ControlBlock(rank)
	switch state := c.State.Load(); {
	case state == segment.StateFailed:
		return rankFailedError(what, rank, c)
	case state == segment.StateClosed:
		return fmt.Errorf("%s: rank %d %w (%s)", what, rank, ErrRankLeft, describeLastCall(c))
	case checkProcess && g.isAlive != nil && !g.isAlive(rank):
		return fmt.Errorf("%s: rank %d is gone: its process %d has ended (%s)", what, rank, c.PID.Load(), describeLastCall(c))
	}
	return nil
}

// rankFailedError returns the error that rank, whose control block is c, has failed.
func rankFailedError(what string, rank int, c *segment.ControlBlock) error {
	return fmt.Errorf("%s: rank %d %w (%s); see the error message of that rank", what, rank, ErrRankFailed, describeLastCall(c))
}

func (g *memoryGroup) describeMissingRanks() string {
	var names []string
	for rank := range g.size {
		if c := g.memory.ControlBlock(rank); rank != g.rank && !g.hasArrived(c) {
			names = append(names, fmt.Sprintf("rank %d (%s)", rank, describeLastCall(c)))
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func describeLastCall(c *segment.ControlBlock) string {
	last := c.LastCall()
	return formatLastCall(last.Number.Load(), last.What.Load())
}
