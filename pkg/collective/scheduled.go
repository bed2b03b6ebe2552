package collective

import (
	"context"
	"fmt"
	"time"

	"lockstep/pkg/collective/internal/numbers"
	"lockstep/pkg/collective/internal/segment"
	"lockstep/pkg/collective/internal/wire"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/process"
)

// memoryExchange is the exchanger of a memoryGroup. Bytes that do not fit into a channel yet
// are in queues; the rank moves them whenever it waits.
type memoryExchange struct {
	g       *memoryGroup
	queues  [][][]byte // by rank: what is still to be sent
	scratch []byte
}

// scratchBytes is the size of the memory into which bytes are received before they are added.
const scratchBytes = 64 << 10

func (g *memoryGroup) allReduceBySchedule(ctx context.Context, b device.Buffer, name string) error {
	s, err := g.algorithm.findSchedule(name, b.Bytes())
	if err != nil {
		return err
	}
	if g.exchange == nil {
		g.exchange = &memoryExchange{g: g, queues: make([][][]byte, g.size), scratch: numbers.AllocateAligned(scratchBytes)}
	}
	return runScheduleOn(ctx, g.exchange, s, b)
}

func (x *memoryExchange) post(to int, p []byte) {
	if len(p) == 0 {
		return
	}
	x.queues[to] = append(x.queues[to], p)
	x.pushQueued()
}

// pushQueued moves bytes from the queues to the channels, and reports whether it moved any.
func (x *memoryExchange) pushQueued() bool {
	moved := false
	for to, queue := range x.queues {
		for len(queue) > 0 {
			n := x.g.memory.Channel(segment.ForSchedules, x.g.rank, to).Write(queue[0])
			if n == 0 {
				break
			}
			x.g.countSentBytes(queue[0][:n], 1)
			moved = true
			if queue[0] = queue[0][n:]; len(queue[0]) == 0 {
				queue = queue[1:]
			}
			x.g.notifyChannelUse(to)
		}
		x.queues[to] = queue
	}
	return moved
}

func (x *memoryExchange) receive(ctx context.Context, from, n int, use func([]byte)) error {
	c := x.g.memory.Channel(segment.ForSchedules, from, x.g.rank)
	have := 0
	for n > 0 {
		want := x.scratch[have:min(n, len(x.scratch))]
		got := c.Receive(want)
		if got == 0 && !x.pushQueued() {
			err := x.g.waitForChannels(ctx, x.newWaitMessage(from), func() bool {
				got = c.Receive(want)
				return got > 0 || x.pushQueued()
			})
			if err != nil {
				return err
			}
		}
		if got == 0 {
			continue
		}
		x.g.notifyChannelUse(from)
		have += got
		whole := have &^ 7 // numbers that have arrived in full
		if have == n {
			whole = have
		}
		use(x.scratch[:whole])
		copy(x.scratch, x.scratch[whole:have])
		n, have = n-whole, have-whole
	}
	return nil
}

func (x *memoryExchange) flush(ctx context.Context) error {
	for to := range x.queues {
		for len(x.queues[to]) > 0 {
			if err := x.g.waitForChannels(ctx, x.newWaitMessage(to), x.pushQueued); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *memoryExchange) newWaitMessage(peer int) *message {
	return &message{kind: kindAllReduce, peer: peer, what: x.g.describeOperation()}
}

// linkExchange is the exchanger of a Ring. In each operation, before the first bytes, a rank
// sends its call to every rank to which it will send any.
type linkExchange struct {
	r      *Ring
	waits  []*message // by rank; header is that rank's last call
	called []uint64   // by rank: the last operation for which this rank has sent it its call
	failed *message   // the wait that ended the operation
}

func newLinkExchange(r *Ring) *linkExchange {
	x := &linkExchange{r: r, waits: make([]*message, r.size), called: make([]uint64, r.size)}
	for peer := range x.waits {
		x.waits[peer] = &message{kind: kindAllReduce, peer: peer}
	}
	return x
}

// calledRankGracePeriod is how much longer a rank waits for a rank that has called the operation but waits
// for a third rank. The error of the second rank then names the missing third rank.
const calledRankGracePeriod = 2 * time.Second

func (r *Ring) allReduceBySchedule(ctx context.Context, b device.Buffer, name string) error {
	return r.runExclusive(ctx, kindAllReduce, b, r.size, func() error {
		s, err := r.algorithm.findSchedule(name, b.Bytes())
		if err != nil {
			return err
		}
		r.mine = wire.Frame{Kind: wire.KindCall, Rank: r.rank, Number: r.number, What: callSignature(kindAllReduce, b, algorithmNumber(name)), Length: uint64(b.Len())}
		r.exchange.begin(s)
		if err := runScheduleOn(ctx, r.exchange, s, b); err != nil {
			if r.exchange.failed != nil {
				r.failureNote = &r.exchange.failed.note
			}
			return err
		}
		r.last = r.mine // the previous rank has called it too
		return nil
	}, r.notifyFailure)
}

// begin begins an operation: it sends this rank's call to the ranks to which s sends.
func (x *linkExchange) begin(s *rankSchedule) {
	r := x.r
	for _, m := range x.waits {
		m.what = r.describeOperation()
		m.note = wire.Frame{Kind: wire.KindNote, State: wire.NoteFailed, Rank: r.rank, Number: r.number, What: r.mine.What}
	}
	for _, step := range s.steps {
		for _, t := range step.sends {
			if x.called[t.To] != r.number {
				x.called[t.To] = r.number
				r.scheduled[t.To].out.Enqueue(r.mine, nil)
			}
		}
	}
}

func (x *linkExchange) post(to int, p []byte) {
	x.r.scheduled[to].out.Enqueue(wire.Frame{Kind: wire.KindNumbers, Rank: x.r.rank, Number: x.r.number, Length: uint64(len(p))}, p)
}

func (x *linkExchange) receive(ctx context.Context, from, n int, use func([]byte)) error {
	if err := x.receiveBytes(ctx, from, n, use); err != nil {
		x.failed = x.waits[from]
		return err
	}
	return nil
}

func (x *linkExchange) receiveBytes(ctx context.Context, from, n int, use func([]byte)) error {
	r, m := x.r, x.waits[from]
	l := r.scheduled[from]
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.header.Number != r.number { // the other rank's call has not arrived
		f, err := r.readHeader(ctx, l, m)
		if err != nil {
			return err
		}
		if f.Kind == wire.KindCall {
			m.header = f
		}
		if f.Kind != wire.KindCall || f.Number != r.number || f.What != r.mine.What || f.Length != r.mine.Length {
			return fmt.Errorf("%s: rank %d calls %s, rank %d calls %s: every rank must call the same operations in the same order",
				r.describeOperation(), r.rank, formatCall(r.mine.What, r.mine.Length), from, formatCall(f.What, f.Length))
		}
	}
	f, err := r.readHeader(ctx, l, m)
	if err != nil {
		return err
	}
	if f.Kind != wire.KindNumbers || f.Number != r.number || f.Length != uint64(n) {
		return fmt.Errorf("%s: rank %d sent an unexpected frame (kind %d of operation %d, %d bytes), want %d bytes: the connection is damaged or used by another program", r.describeOperation(), from, f.Kind, f.Number, f.Length, n)
	}
	for n > 0 {
		p := r.scratch[:min(n, len(r.scratch))]
		if err := r.readLink(ctx, l, m, p); err != nil {
			return err
		}
		use(p)
		n -= len(p)
	}
	return nil
}

func (x *linkExchange) flush(ctx context.Context) error {
	for peer, m := range x.waits {
		if x.called[peer] != x.r.number {
			continue
		}
		l := x.r.scheduled[peer]
		var idle process.Stopwatch
		err := l.out.WaitForPieces(0, true, func() { idle = process.Stopwatch{} }, x.r.newMessageCheck(ctx, m, &idle))
		if err == nil && l.out.LastError() != nil {
			err = x.r.findSendFailure(l, m)
		}
		if err != nil {
			x.failed = m
			return err
		}
	}
	return nil
}
