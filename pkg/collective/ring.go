package collective

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/process"
)

// Ring is the group of processes joined by stream sockets in a ring: each rank
// sends to the one after it and receives from the one before it.
//
// An all-reduce is a reduce-scatter and an all-gather (P. Patarasuk and
// X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", 2009): shard c begins at rank c+1, and each rank on its way
// adds its own, until it is whole at rank c; then the sums go round. So each
// rank sends and receives 2(n−1)/n of the buffer, whatever n is. Shards go in
// pieces, and a piece is passed on as soon as it was added, while the next one
// is received. The order of the additions depends on the shard alone, and each
// sum is computed once: all ranks get the same bits, in every run.
//
// A rank that waits sleeps in the kernel until something arrives: ranks may
// outnumber cores.
//
// Trouble goes round too. The rank after one that is missing, gone or failed
// knows; it tells the next, and so on, so that every rank's error names the
// right one. rendezvous.Join makes rings.
type Ring struct {
	turn
	name       string
	rank, size int
	options    Options
	in         net.Conn // from the rank before
	reader     *bufio.Reader
	out        *sender // to the rank after
	piece      int     // bytes of a piece
	scratch    []byte

	mine    frame             // this rank's last call …
	last    frame             // … and that of the rank before
	missing *frame            // who is missing, as ranks before this one say; nil since the last progress
	told    bool              // this rank has said that the one before is missing
	silent  process.Stopwatch // how long nothing has come, since the last progress
	blame   *frame            // the note that ended the group, to be passed on
}

// The parts of a wait: as long as the shared memory's.
const (
	lookTime = napTime // between two looks at context, time-out and sender
	// tellTime is how long a rank is missing before the others are told.
	tellTime = 4 * lookTime
	// graceTime is how long a rank that cannot send listens for the reason,
	// which comes round the other way.
	graceTime = 5 * lookTime
)

// NewRing joins a ring of two or more ranks: from is the connection on which
// the rank before sends, to that on which the rank after receives. The ring
// owns both from then on. name is what Name returns, such as "tcp ring".
func NewRing(name string, rank, size int, from, to net.Conn, o Options) (*Ring, error) {
	if size < 2 || rank < 0 || rank >= size {
		return nil, fmt.Errorf("make ring: rank %d of %d: use at least 2 ranks, from 0 on", rank, size)
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("make ring: %w", err)
	}
	o = o.withDefaults()
	r := &Ring{name: name, rank: rank, size: size, options: o, in: from, piece: ringPiece(o.ChunkBytes)}
	if err := from.SetReadDeadline(time.Now()); err != nil {
		return nil, fmt.Errorf("make ring: %w", err)
	}
	for _, c := range []net.Conn{from, to} {
		if err := errors.Join(widen(c), probe(c)); err != nil {
			return nil, fmt.Errorf("make ring: %w", err)
		}
	}
	r.reader = bufio.NewReaderSize(from, 4096)
	r.scratch = alignedBytes(r.piece)
	// A rank that reads is woken when it can send no more.
	r.out = newSender(to, func() { _ = from.SetReadDeadline(time.Now()) })
	return r, nil
}

// widen gives a unix socket room for several pieces. TCP finds out by itself.
func widen(c net.Conn) error {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil
	}
	const room = 1 << 20 // the kernel may give less
	return errors.Join(u.SetReadBuffer(room), u.SetWriteBuffer(room))
}

// The kernels of two neighbors in a ring exchange a heartbeat on each silent TCP
// connection. A host that is gone no longer answers, and its connections end within
// beatTime × (1 + missedBeats), less than 10 s (environment/adr/008). A process that is stopped, or busy,
// is not gone: its kernel answers for it, and it has until the time-out.
const (
	beatTime    = time.Second
	missedBeats = 7
)

// probe has the kernel notice that the host at the other end of c is gone.
func probe(c net.Conn) error {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil // both ends are on this host
	}
	return t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: beatTime, Interval: beatTime, Count: missedBeats})
}

// ringPiece is a quarter of a chunk, in whole cache lines: several pieces are
// under way at once.
func ringPiece(chunk int) int { return pieceBytes(4, chunk) }

// Rank is this process's, from 0.
func (r *Ring) Rank() int { return r.rank }

// Size is the number of ranks.
func (r *Ring) Size() int { return r.size }

// Name says what carries the data.
func (r *Ring) Name() string { return r.name }

// AllReduce leaves the sum over all ranks in b.
func (r *Ring) AllReduce(ctx context.Context, b device.Buffer) error {
	return r.do(ctx, kindAllReduce, b, 0, func() error {
		if b.F64 != nil {
			return ringReduce(ctx, r, b.F64, true)
		}
		return ringReduce(ctx, r, b.F32, true)
	})
}

// ReduceScatter leaves the sum over all ranks in this rank's shard of b.
func (r *Ring) ReduceScatter(ctx context.Context, b device.Buffer) error {
	return r.do(ctx, kindReduceScatter, b, 0, func() error {
		if b.F64 != nil {
			return ringReduce(ctx, r, b.F64, false)
		}
		return ringReduce(ctx, r, b.F32, false)
	})
}

// AllGather fills b with every rank's shard.
func (r *Ring) AllGather(ctx context.Context, b device.Buffer) error {
	return r.do(ctx, kindAllGather, b, 0, func() error {
		if b.F64 != nil {
			return ringGather(ctx, r, b.F64)
		}
		return ringGather(ctx, r, b.F32)
	})
}

// Broadcast copies root's b to every rank.
func (r *Ring) Broadcast(ctx context.Context, b device.Buffer, root int) error {
	if root < 0 || root >= r.size {
		return fmt.Errorf("broadcast: root is %d: use 0 to %d", root, r.size-1)
	}
	return r.do(ctx, kindBroadcast, b, root, func() error {
		if b.F64 != nil {
			return ringBroadcast(ctx, r, b.F64, root)
		}
		return ringBroadcast(ctx, r, b.F32, root)
	})
}

// Barrier returns when every rank has called it.
func (r *Ring) Barrier(ctx context.Context) error {
	return r.do(ctx, kindBarrier, device.Buffer{}, 0, func() error {
		if err := r.meet(ctx); err != nil {
			return err
		}
		// After k tokens the call of the k+1-th rank before is here, too.
		for range r.size - 2 {
			r.out.put(frame{kind: frameToken, rank: r.rank, number: r.number}, nil)
			if _, err := r.expect(ctx, frameToken); err != nil {
				return err
			}
		}
		return nil
	})
}

// Close leaves the group and tells the others.
func (r *Ring) Close() error {
	return r.end(func() error {
		if r.broken != nil { // said already
			return r.in.Close()
		}
		return errors.Join(r.out.close(r.note(noteClosed)), r.in.Close())
	})
}

// before is the rank that this one receives from, after the one it sends to.
func (r *Ring) before() int { return (r.rank + r.size - 1) % r.size }
func (r *Ring) after() int  { return (r.rank + 1) % r.size }

// note is what this rank says about itself.
func (r *Ring) note(state uint8) frame {
	return frame{kind: frameNote, state: state, rank: r.rank, number: r.mine.number, what: r.mine.what}
}

// do is the frame of every operation: it tells the next rank (body compares
// with the one before, so that, once round, all are compared), and at the end
// waits until everything is sent, since b is the caller's again.
func (r *Ring) do(ctx context.Context, k kind, b device.Buffer, root int, body func() error) error {
	return r.take(ctx, k, b, r.size, func() error {
		r.missing, r.told, r.silent = nil, false, process.Stopwatch{}
		r.mine = frame{kind: frameCall, rank: r.rank, number: r.number, what: signature(k, b, root), length: uint64(b.Len())}
		r.out.put(r.mine, nil)
		if err := body(); err != nil {
			return err
		}
		return r.sent(ctx, 0, true)
	}, r.fail)
}

// meet receives the call of the rank before, and compares. What is sent first
// need not wait for it.
func (r *Ring) meet(ctx context.Context) error {
	theirs, err := r.expect(ctx, frameCall)
	if err != nil {
		return err
	}
	r.last = theirs
	if theirs.what != r.mine.what || theirs.length != r.mine.length {
		return fmt.Errorf("%s: rank %d calls %s, rank %d calls %s: every rank must call the same operations in the same order",
			r.what, r.rank, callText(r.mine.what, r.mine.length), theirs.rank, callText(theirs.what, theirs.length))
	}
	return nil
}

// fail tells the next rank why this one gives up, and sends no more.
func (r *Ring) fail() {
	f := r.note(noteFailed)
	if r.blame != nil {
		f = *r.blame
	}
	_ = r.out.close(f) // the next rank may be what is gone
}

// next receives a frame's header; notes are heard on the way.
func (r *Ring) next(ctx context.Context) (frame, error) {
	var header [frameBytes]byte
	for {
		silent, missing := r.silent, r.missing
		if err := r.fill(ctx, header[:]); err != nil {
			return frame{}, err
		}
		f := decodeFrame(header[:])
		if f.kind != frameNote {
			return f, nil
		}
		r.silent, r.missing = silent, missing // a note is no progress
		if err := r.hear(f); err != nil {
			return frame{}, err
		}
	}
}

// expect receives the next frame, which must be of that kind and this operation.
func (r *Ring) expect(ctx context.Context, kind frameType) (frame, error) {
	f, err := r.next(ctx)
	if err == nil && (f.kind != kind || f.number != r.number) {
		err = fmt.Errorf("%s: rank %d sent something else (frame %d of operation %d): the connection is damaged, or used by another program", r.what, r.before(), f.kind, f.number)
	}
	return f, err
}

// hear takes note of what is said about a rank.
func (r *Ring) hear(f frame) error {
	if f.rank == r.rank {
		return nil // what was said about this rank has been round
	}
	if f.state == noteMissing {
		r.missing = &f
		r.out.put(f, nil)
		return nil
	}
	r.blame = &f
	seen := lastCall(f.number, f.what)
	switch f.state {
	case noteClosed:
		return fmt.Errorf("%s: rank %d has left the group (%s)", r.what, f.rank, seen)
	case noteGone:
		return fmt.Errorf("%s: rank %d is gone: its connection has ended (%s)", r.what, f.rank, seen)
	}
	return fmt.Errorf("%s: rank %d gave up on an error (%s); its own message says which", r.what, f.rank, seen)
}

// fill receives into p; it ends with ctx, the time-out, or the connection.
func (r *Ring) fill(ctx context.Context, p []byte) error {
	for len(p) > 0 {
		n, err := r.reader.Read(p)
		p = p[n:]
		if n > 0 {
			r.silent, r.missing = process.Stopwatch{}, nil
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := r.look(ctx, r.absent); err != nil {
				return err
			}
			if err := r.in.SetReadDeadline(time.Now().Add(lookTime)); err != nil {
				return fmt.Errorf("%s: %w", r.what, err)
			}
		default:
			return r.gone(r.before())
		}
	}
	return nil
}

// look says why a wait must end, nil while it need not; who names those that
// are waited for.
func (r *Ring) look(ctx context.Context, who func() string) error {
	waited := r.silent.Elapsed()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w while waiting for %s", r.what, context.Cause(ctx), who())
	case r.out.error() != nil && waited >= graceTime:
		return r.gone(r.after())
	case waited >= r.options.Timeout:
		return fmt.Errorf("%s: %s did not arrive within %v", r.what, who(), r.options.Timeout)
	case waited >= tellTime && !r.told && r.last.number < r.number:
		r.told = true
		r.out.put(r.notHere(), nil)
	}
	return nil
}

// notHere is the note that the rank before has not come to this operation.
func (r *Ring) notHere() frame {
	return frame{kind: frameNote, state: noteMissing, rank: r.before(), number: r.last.number, what: r.last.what}
}

// absent names the rank that is waited for: the one before, or where that has
// come, the one that keeps it waiting.
func (r *Ring) absent() string {
	f := r.notHere()
	if r.last.number == r.number && r.missing != nil {
		f = *r.missing
	}
	return fmt.Sprintf("rank %d (%s)", f.rank, lastCall(f.number, f.what))
}

// gone is the error of a neighbour whose connection has ended.
func (r *Ring) gone(rank int) error {
	f := frame{kind: frameNote, state: noteGone, rank: rank}
	seen := "it takes nothing any more"
	if rank == r.before() {
		f.number, f.what = r.last.number, r.last.what
		seen = lastCall(f.number, f.what)
	}
	r.blame = &f
	return fmt.Errorf("%s: rank %d is gone: its connection has ended (%s)", r.what, rank, seen)
}

// sent waits until n pieces are written, and with all everything.
func (r *Ring) sent(ctx context.Context, n int, all bool) error {
	if r.out.done(n, all) {
		return r.sendError()
	}
	timer := time.NewTicker(lookTime)
	defer timer.Stop()
	r.silent = process.Stopwatch{}
	for !r.out.done(n, all) {
		select {
		case <-r.out.progress:
			r.silent = process.Stopwatch{}
		case <-timer.C:
			err := r.look(ctx, func() string {
				return fmt.Sprintf("rank %d, which takes nothing (it, or one behind it, is missing)", r.after())
			})
			if err != nil {
				return err
			}
		}
	}
	r.silent = process.Stopwatch{}
	return r.sendError()
}

// sendError is the error of a rank that can send no more, where nothing is
// left to be received that could say why.
func (r *Ring) sendError() error {
	if r.out.error() == nil {
		return nil
	}
	return r.gone(r.after())
}
