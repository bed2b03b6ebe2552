package collective

import (
	"context"
	"runtime"
	"time"

	"lockstep/pkg/collective/internal/segment"
	"lockstep/pkg/collective/internal/wire"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/process"
)

func (g *memoryGroup) Send(ctx context.Context, b device.Buffer, to int) error {
	return g.runMessage(ctx, kindSend, b, g.rank, g.size, to, func(m *message) error {
		c, header := g.memory.Channel(segment.ForMessages, g.rank, to), m.header.Encode()
		for _, p := range [][]byte{header[:], m.payload} {
			g.countSentBytes(p, 1)
			if err := g.transfer(ctx, m, p, c.Write); err != nil {
				return err
			}
		}
		return nil
	}, g.leaveAfterFailure)
}

func (g *memoryGroup) Recv(ctx context.Context, b device.Buffer, from int) error {
	return g.runMessage(ctx, kindReceive, b, g.rank, g.size, from, func(m *message) error {
		c := g.memory.Channel(segment.ForMessages, from, g.rank)
		var header [wire.EncodedFrameBytes]byte
		if err := g.transfer(ctx, m, header[:], c.Receive); err != nil {
			return err
		}
		if err := m.checkHeader(wire.DecodeFrame(header[:])); err != nil {
			return err
		}
		return g.transfer(ctx, m, m.payload, c.Receive)
	}, g.leaveAfterFailure)
}

func (g *memoryGroup) leaveAfterFailure() { g.leaveGroup(segment.StateFailed) }

// transfer moves p by move, a channel's Write or Receive.
func (g *memoryGroup) transfer(ctx context.Context, m *message, p []byte, move func([]byte) int) error {
	for len(p) > 0 {
		n := move(p)
		if n == 0 {
			if err := g.waitForChannels(ctx, m, func() bool { n = move(p); return n > 0 }); err != nil {
				return err
			}
		}
		p = p[n:]
		g.notifyChannelUse(m.peer)
	}
	return nil
}

// notifyChannelUse notifies rank that this rank has used a channel between them.
func (g *memoryGroup) notifyChannelUse(rank int) {
	c := g.memory.ControlBlock(rank)
	c.Events.Add(1)
	if c.Sleepers.Load() > 0 {
		g.notifier.Notify(g.size + rank)
	}
}

// waitForChannels calls move, which moves bytes through channels, until it returns true because it
// has moved some. Like synchronize, it polls for spinTime and then sleeps between the calls. m is
// the message that waits.
func (g *memoryGroup) waitForChannels(ctx context.Context, m *message, move func() bool) error {
	for begin := time.Now(); time.Since(begin) < spinTime; runtime.Gosched() {
		for range 64 {
			if move() {
				return nil
			}
		}
	}
	var waited process.Stopwatch
	g.control.Sleepers.Add(1)
	defer g.control.Sleepers.Add(-1)
	for sleeps := 1; ; sleeps++ {
		seen := g.control.Events.Load()
		if move() {
			return nil
		}
		if err := g.checkMessageWait(ctx, m, waited.Elapsed(), sleeps%checkEvery == 0); err != nil {
			// The rank may have left after it sent.
			if move() {
				return nil
			}
			return err
		}
		g.notifier.Sleep(ctx, g.size+g.rank, seen, maxSleep)
	}
}

// checkMessageWait is like checkRankWait, for a message.
func (g *memoryGroup) checkMessageWait(ctx context.Context, m *message, waited time.Duration, checkProcess bool) error {
	if err := g.checkRankPresent(m.what, m.peer, checkProcess); err != nil {
		return err
	}
	seen := describeLastCall(g.memory.ControlBlock(m.peer))
	return m.checkProgress(ctx, waited, g.options.Timeout, seen)
}
