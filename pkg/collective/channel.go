package collective

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/process"
)

// channel is a queue of bytes from one rank to another in a segment. Byte i of everything
// that was ever written is at data[i%len(data)].
type channel struct {
	*channelCounters
	data []byte
}

// channelCounters counts the bytes of a channel. Each counter is on its own cache line,
// because one rank writes it.
type channelCounters struct {
	written atomic.Uint64 // by the sender
	_       [cacheLine - 8]byte
	read    atomic.Uint64 // by the receiver
	_       [cacheLine - 8]byte
}

// maxChannelCopy limits how many bytes are copied between two updates of a counter, so that
// the other rank can begin with the first bytes.
const maxChannelCopy = 64 << 10

// write copies bytes from p to the queue, as many as have room and at most maxChannelCopy, and
// returns their number.
func (c channel) write(p []byte) int {
	written := c.written.Load()
	free := len(c.data) - int(written-c.read.Load())
	begin := int(written % uint64(len(c.data)))
	n := min(len(p), free, len(c.data)-begin, maxChannelCopy)
	copy(c.data[begin:begin+n], p)
	c.written.Store(written + uint64(n))
	return n
}

// receive copies bytes from the queue to p, as many as there are and at most maxChannelCopy,
// and returns their number.
func (c channel) receive(p []byte) int {
	read := c.read.Load()
	begin := int(read % uint64(len(c.data)))
	n := min(len(p), int(c.written.Load()-read), len(c.data)-begin, maxChannelCopy)
	copy(p[:n], c.data[begin:])
	c.read.Store(read + uint64(n))
	return n
}

// Send sends the elements of b to rank to, as Group describes.
func (g *memoryGroup) Send(ctx context.Context, b device.Buffer, to int) error {
	return g.runMessage(ctx, kindSend, b, g.rank, g.size, to, func(m *message) error {
		c, header := g.memory.channel(forMessages, g.rank, to), m.header.encode()
		for _, p := range [][]byte{header[:], m.payload} {
			if err := g.transfer(ctx, m, p, c.write); err != nil {
				return err
			}
		}
		return nil
	}, g.leaveAfterFailure)
}

// Recv receives the elements of b from rank from, as Group describes.
func (g *memoryGroup) Recv(ctx context.Context, b device.Buffer, from int) error {
	return g.runMessage(ctx, kindReceive, b, g.rank, g.size, from, func(m *message) error {
		c := g.memory.channel(forMessages, from, g.rank)
		var header [frameBytes]byte
		if err := g.transfer(ctx, m, header[:], c.receive); err != nil {
			return err
		}
		if err := m.compare(decodeFrame(header[:])); err != nil {
			return err
		}
		return g.transfer(ctx, m, m.payload, c.receive)
	}, g.leaveAfterFailure)
}

// leaveAfterFailure notifies the other ranks that this one has failed.
func (g *memoryGroup) leaveAfterFailure() { g.leave(stateFailed) }

// transfer writes p to a channel, or receives it from a channel: move is the channel's write or
// receive.
func (g *memoryGroup) transfer(ctx context.Context, m *message, p []byte, move func([]byte) int) error {
	for len(p) > 0 {
		n := move(p)
		if n == 0 {
			if err := g.waitForChannels(ctx, m, func() bool { n = move(p); return n > 0 }); err != nil {
				return err
			}
		}
		p = p[n:]
		g.notifyEvent(m.peer)
	}
	return nil
}

// notifyEvent notifies rank that this rank has written to a channel between the two, or read
// from one.
func (g *memoryGroup) notifyEvent(rank int) {
	c := g.memory.controlBlock(rank)
	c.events.Add(1)
	if c.sleepers.Load() > 0 {
		g.notifier.notify(g.size + rank)
	}
}

// waitForChannels waits until move returns true: it moves bytes through channels, and reports
// whether there were any. m is the message that waits. Like synchronize, waitForChannels
// first polls for spinTime, and then sleeps.
func (g *memoryGroup) waitForChannels(ctx context.Context, m *message, move func() bool) error {
	for begin := time.Now(); time.Since(begin) < spinTime; runtime.Gosched() {
		for range 64 {
			if move() {
				return nil
			}
		}
	}
	var waited process.Stopwatch
	g.control.sleepers.Add(1)
	defer g.control.sleepers.Add(-1)
	for sleeps := 1; ; sleeps++ {
		seen := g.control.events.Load()
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
		g.notifier.sleep(ctx, g.size+g.rank, seen, maxSleep)
	}
}

// checkMessageWait returns the error that ends the wait for the other rank of m, or nil if the
// wait goes on. If checkProcess is true, it also checks that the rank's process exists.
func (g *memoryGroup) checkMessageWait(ctx context.Context, m *message, waited time.Duration, checkProcess bool) error {
	if err := g.checkRank(m.what, m.peer, checkProcess); err != nil {
		return err
	}
	seen := g.memory.controlBlock(m.peer).describeLastCall()
	return m.checkWait(ctx, waited, g.options.Timeout, seen)
}
