package collective

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"lockstep/pkg/collective/internal/numbers"
	"lockstep/pkg/collective/internal/segment"
	"lockstep/pkg/collective/internal/wire"
	"lockstep/pkg/collective/schedule"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/process"
)

// Ring is a Group of processes that are connected in a ring by stream sockets: each rank
// sends to the next rank and receives from the previous one. rendezvous.Join creates it.
//
// An all-reduce is a reduce-scatter followed by an all-gather (P. Patarasuk and X. Yuan,
// "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009). Shard c
// starts at rank c+1. Each rank adds its own numbers and sends the shard on, until rank c
// has the complete sum. Then the sums are passed around the ring. With n ranks, each rank
// sends and receives 2(n−1)/n of the buffer. Shards are sent in pieces: a rank forwards one
// piece while it receives the next. The order of the additions depends only on the shard,
// and each sum is computed once, so all ranks get the same bits in every run.
//
// A waiting rank sleeps in the kernel until data arrive, so there may be more ranks than
// cores.
//
// Send and Recv use separate connections, one between each pair of ranks, so they may run
// beside an operation of the ring. Algorithms of all-reduce other than the ring, which
// Options.Algorithm selects, use another one.
//
// Failures are passed around the ring too. If a rank is missing, gone or failed, the rank
// after it notices first and notifies the next rank, and so on. So every rank's error names
// the rank that failed.
type Ring struct {
	serializer
	name       string
	rank, size int
	options    Options
	in         net.Conn // from the previous rank
	inEnded    bool     // in has ended, and reader contains all that has arrived
	reader     *bufio.Reader
	out        *wire.Sender // to the next rank
	piece      int          // bytes per piece: a quarter of a chunk, so that several are in flight at a time
	scratch    []byte
	links      []*peerLink // to each other rank, for Send and Recv; nil for this rank
	scheduled  []*peerLink // the same for scheduled operations
	algorithm  algorithmSelector
	exchange   *linkExchange // for schedules

	mine            wire.Frame        // this rank's last call
	last            wire.Frame        // the previous rank's last call
	missing         *wire.Frame       // the last note about a missing rank; nil if data have arrived since
	missingReported bool              // this rank has reported that the previous one is missing
	idle            process.Stopwatch // time since data were last received or sent
	failureNote     *wire.Frame       // the note about the rank that ended the group, to be passed on
}

// Durations for a rank that waits for a neighbor.
const (
	// reportMissingAfter is how long the previous rank may be missing before this rank
	// reports it to the next one.
	reportMissingAfter = 4 * wire.WaitCheckInterval
	// graceTime is how long a rank that can no longer send goes on receiving, because the
	// note that names the failed rank arrives from the previous rank.
	graceTime = 5 * wire.WaitCheckInterval
)

// Connections are the connections of one rank of a Ring.
type Connections struct {
	From net.Conn // from the previous rank
	To   net.Conn // to the next rank
	// Messages contains one more connection to each other rank, for Send and Recv, and Scheduled
	// another one, for the algorithms of package schedule. Both contain nil for this rank.
	Messages, Scheduled []net.Conn
}

func (c Connections) all() []net.Conn {
	all := []net.Conn{c.From, c.To}
	for _, p := range slices.Concat(c.Messages, c.Scheduled) {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// Close closes the connections that are not nil.
func (c Connections) Close() error {
	var errs []error
	for _, one := range c.all() {
		if one != nil {
			errs = append(errs, one.Close())
		}
	}
	return errors.Join(errs...)
}

// NewRing joins a ring of two or more ranks. The ring closes the connections. name is the
// result of Name, such as "tcp ring".
func NewRing(name string, rank, size int, c Connections, o Options) (*Ring, error) {
	if size < 2 || rank < 0 || rank >= size {
		return nil, fmt.Errorf("create ring: invalid rank %d of %d: use at least 2 ranks, numbered from 0", rank, size)
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("create ring: %w", err)
	}
	if o.Algorithm == AlgorithmDirect {
		return nil, fmt.Errorf("create ring: all-reduce algorithm %q needs shared memory, but this group uses sockets: set another algorithm, or leave it unset", o.Algorithm)
	}
	if len(c.Messages) != size || len(c.Scheduled) != size {
		return nil, fmt.Errorf("create ring: got connections for messages to %d ranks and connections for schedules to %d ranks, want both to each of %d ranks", len(c.Messages), len(c.Scheduled), size)
	}
	o = o.withDefaults()
	r := &Ring{name: name, rank: rank, size: size, options: o, in: c.From, piece: segment.PieceBytes(4, o.ChunkBytes)}
	for _, one := range c.all() {
		if err := errors.Join(wire.GrowBuffers(one), wire.EnableKeepAlive(one), one.SetReadDeadline(time.Now())); err != nil {
			return nil, fmt.Errorf("create ring: %w", err)
		}
	}
	r.reader = bufio.NewReaderSize(c.From, wire.ReaderBufferBytes)
	r.scratch = numbers.AllocateAligned(r.piece)
	// If sending fails, a rank that is blocked in a read must wake up.
	r.out = wire.NewSender(c.To, func() { _ = c.From.SetReadDeadline(time.Now()) })
	r.links, r.scheduled = newLinks(c.Messages), newLinks(c.Scheduled)
	r.algorithm = newAlgorithmSelector(o, schedule.Ring, rank, size)
	r.exchange = newLinkExchange(r)
	return r, nil
}

// Rank returns this rank, from 0.
func (r *Ring) Rank() int { return r.rank }

// Size returns the number of ranks.
func (r *Ring) Size() int { return r.size }

// Name returns the transport, such as "tcp ring", and the algorithm if it is not the ring.
func (r *Ring) Name() string { return r.algorithm.nameWithAlgorithm(r.name) }

// AllReduce implements Group.
func (r *Ring) AllReduce(ctx context.Context, b device.Buffer) error {
	if name := r.algorithm.chooseForSize(b.Bytes()); name != r.algorithm.native {
		return r.allReduceBySchedule(ctx, b, name)
	}
	return r.runOperation(ctx, kindAllReduce, b, 0, func() error {
		if b.F64 != nil {
			return ringReduce(ctx, r, b.F64, true)
		}
		return ringReduce(ctx, r, b.F32, true)
	})
}

// ReduceScatter implements Group.
func (r *Ring) ReduceScatter(ctx context.Context, b device.Buffer) error {
	return r.runOperation(ctx, kindReduceScatter, b, 0, func() error {
		if b.F64 != nil {
			return ringReduce(ctx, r, b.F64, false)
		}
		return ringReduce(ctx, r, b.F32, false)
	})
}

// AllGather implements Group.
func (r *Ring) AllGather(ctx context.Context, b device.Buffer) error {
	return r.runOperation(ctx, kindAllGather, b, 0, func() error {
		if b.F64 != nil {
			return ringGather(ctx, r, b.F64)
		}
		return ringGather(ctx, r, b.F32)
	})
}

// Broadcast implements Group.
func (r *Ring) Broadcast(ctx context.Context, b device.Buffer, root int) error {
	if root < 0 || root >= r.size {
		return fmt.Errorf("broadcast: invalid root %d: use 0 to %d", root, r.size-1)
	}
	return r.runOperation(ctx, kindBroadcast, b, root, func() error {
		if b.F64 != nil {
			return ringBroadcast(ctx, r, b.F64, root)
		}
		return ringBroadcast(ctx, r, b.F32, root)
	})
}

// Barrier implements Group.
func (r *Ring) Barrier(ctx context.Context) error {
	return r.runOperation(ctx, kindBarrier, device.Buffer{}, 0, func() error {
		if err := r.compareCalls(ctx); err != nil {
			return err
		}
		// After k tokens, the k+1 ranks before this one have made the call.
		for range r.size - 2 {
			r.out.Enqueue(wire.Frame{Kind: wire.KindToken, Rank: r.rank, Number: r.number}, nil)
			if _, err := r.receiveFrameOfKind(ctx, wire.KindToken); err != nil {
				return err
			}
		}
		return nil
	})
}

// Close leaves the group and notifies the other ranks.
func (r *Ring) Close() error {
	return r.closeOnce(func() error {
		if r.notified {
			return r.in.Close()
		}
		note := r.newStateNote(wire.NoteClosed)
		return errors.Join(r.out.Close(note), r.in.Close(), r.closeLinks(note))
	})
}

func (r *Ring) previousRank() int { return (r.rank + r.size - 1) % r.size }

func (r *Ring) nextRank() int { return (r.rank + 1) % r.size }

func (r *Ring) newStateNote(state uint8) wire.Frame {
	return wire.Frame{Kind: wire.KindNote, State: state, Rank: r.rank, Number: r.mine.Number, What: r.mine.What}
}

// runOperation announces an operation to the next rank, and body compares it with the
// previous rank's announcement, so that all ranks are compared. runOperation returns once
// everything is sent, because the caller may then change b.
func (r *Ring) runOperation(ctx context.Context, k opKind, b device.Buffer, root int, body func() error) error {
	return r.runExclusive(ctx, k, b, r.size, func() error {
		r.missing, r.missingReported, r.idle = nil, false, process.Stopwatch{}
		r.mine = wire.Frame{Kind: wire.KindCall, Rank: r.rank, Number: r.number, What: callSignature(k, b, root), Length: uint64(b.Len())}
		r.out.Enqueue(r.mine, nil)
		if err := body(); err != nil {
			return err
		}
		return r.waitUntilSent(ctx, 0, true)
	}, r.notifyFailure)
}

// compareCalls receives the previous rank's announcement, and returns an error if its kind,
// root or size differs. This rank may have sent pieces already.
func (r *Ring) compareCalls(ctx context.Context) error {
	theirs, err := r.receiveFrameOfKind(ctx, wire.KindCall)
	if err != nil {
		return err
	}
	r.last = theirs
	if theirs.What != r.mine.What || theirs.Length != r.mine.Length {
		return fmt.Errorf("%s: rank %d calls %s, rank %d calls %s: every rank must call the same operations in the same order",
			r.describeOperation(), r.rank, formatCall(r.mine.What, r.mine.Length), theirs.Rank, formatCall(theirs.What, theirs.Length))
	}
	return nil
}

// notifyFailure sends a note why this rank leaves the group, and closes the senders.
func (r *Ring) notifyFailure() {
	f := r.newStateNote(wire.NoteFailed)
	if r.failureNote != nil {
		f = *r.failureNote
	} else if reason := r.newFailureNote(); reason != nil {
		f = *reason
	}
	_ = r.out.Close(f) // the ranks may be gone
	_ = r.closeLinks(f)
}

// receiveFrame returns the next frame that is not a note, and handles the notes before it. The
// caller must read the numbers that follow the frame.
func (r *Ring) receiveFrame(ctx context.Context) (wire.Frame, error) {
	var header [wire.EncodedFrameBytes]byte
	for {
		idle, missing := r.idle, r.missing
		if err := r.readFull(ctx, header[:]); err != nil {
			return wire.Frame{}, err
		}
		f := wire.DecodeFrame(header[:])
		if f.Kind != wire.KindNote {
			return f, nil
		}
		r.idle, r.missing = idle, missing // a note is no progress
		if err := r.recordStateNote(f); err != nil {
			return wire.Frame{}, err
		}
	}
}

// receiveFrameOfKind returns an error if the next frame is of another kind or another operation.
func (r *Ring) receiveFrameOfKind(ctx context.Context, kind wire.FrameKind) (wire.Frame, error) {
	f, err := r.receiveFrame(ctx)
	if err == nil && (f.Kind != kind || f.Number != r.number) {
		err = fmt.Errorf("%s: rank %d sent an unexpected frame (kind %d of operation %d): the connection is damaged or used by another program", r.describeOperation(), r.previousRank(), f.Kind, f.Number)
	}
	return f, err
}

// recordStateNote records a note, which reports the state of a rank and passes around the ring.
// It returns an error if that rank has failed or left the group.
func (r *Ring) recordStateNote(f wire.Frame) error {
	if f.Rank == r.rank {
		return nil // the note has come around the ring
	}
	if f.State == wire.NoteMissing {
		r.missing = &f
		r.out.Enqueue(f, nil)
		return nil
	}
	r.failureNote = &f
	return failureNoteError(r.describeOperation(), f)
}

// readFull reads len(p) bytes into p. It returns an error if ctx or the connection ends, or after a
// time-out.
func (r *Ring) readFull(ctx context.Context, p []byte) error {
	progressed := func() { r.idle, r.missing = process.Stopwatch{}, nil }
	err := wire.ReadFull(r.in, r.reader, p, progressed, func() error { return r.checkWait(ctx, r.describeMissingRank) })
	if errors.Is(err, wire.ErrConnectionEnded) {
		return r.recordLostConnection(r.previousRank())
	}
	return err
}

// checkRankWait returns an error if the wait must end, and nil if it goes on. who describes the rank
// for which this rank waits.
func (r *Ring) checkWait(ctx context.Context, who func() string) error {
	if err := r.checkGroupFailure(r.describeOperation()); err != nil {
		return err
	}
	waited := r.idle.Elapsed()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w while waiting for %s", r.describeOperation(), context.Cause(ctx), who())
	case r.out.LastError() != nil && waited >= graceTime:
		return r.recordLostConnection(r.nextRank())
	case waited >= r.options.Timeout:
		return fmt.Errorf("%s: %s did not arrive within %v", r.describeOperation(), who(), r.options.Timeout)
	case waited >= reportMissingAfter && !r.missingReported && r.last.Number < r.number:
		r.missingReported = true
		r.out.Enqueue(r.newMissingRankNote(), nil)
	}
	return nil
}

// newMissingRankNote reports that the previous rank has not called this operation.
func (r *Ring) newMissingRankNote() wire.Frame {
	return wire.Frame{Kind: wire.KindNote, State: wire.NoteMissing, Rank: r.previousRank(), Number: r.last.Number, What: r.last.What}
}

// describeMissingRank describes the rank for which this rank waits. It is the one in the last note
// about a missing rank, or else the previous rank.
func (r *Ring) describeMissingRank() string {
	f := r.newMissingRankNote()
	if r.last.Number == r.number && r.missing != nil {
		f = *r.missing
	}
	return fmt.Sprintf("rank %d (%s)", f.Rank, formatLastCall(f.Number, f.What))
}

// recordLostConnection records that the connection to rank, a neighbor, is lost, and returns this
// as an error.
func (r *Ring) recordLostConnection(rank int) error {
	f := wire.Frame{Kind: wire.KindNote, State: wire.NoteGone, Rank: rank}
	seen := "it no longer receives"
	if rank == r.previousRank() {
		f.Number, f.What = r.last.Number, r.last.What
		seen = formatLastCall(f.Number, f.What)
	}
	r.failureNote = &f
	return fmt.Errorf("%s: rank %d is gone: its connection has ended (%s)", r.describeOperation(), rank, seen)
}

// waitUntilSent waits for the first n pieces or, if complete is set, for everything.
func (r *Ring) waitUntilSent(ctx context.Context, n int, complete bool) error {
	restart := func() { r.idle = process.Stopwatch{} }
	restart()
	err := r.out.WaitForPieces(n, complete, restart, func() error {
		if err := r.checkPreviousConnection(); err != nil {
			return err
		}
		return r.checkWait(ctx, func() string {
			return fmt.Sprintf("rank %d, which does not receive (it or a rank after it is missing)", r.nextRank())
		})
	})
	if err != nil {
		return err
	}
	restart()
	return r.checkSendConnection(ctx)
}

// checkSendConnection returns an error if this rank can no longer send to the next rank.
func (r *Ring) checkSendConnection(ctx context.Context) error {
	if r.out.LastError() == nil {
		return nil
	}
	return r.awaitFailureNote(ctx)
}
