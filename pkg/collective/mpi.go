package collective

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"lockstep/pkg/collective/internal/numbers"
	"lockstep/pkg/collective/internal/wire"
	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/mpi"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/process"
)

// MPI is a Group of processes that mpirun or srun has started, and that exchange data through Open
// MPI or MPICH. The MPI library is opened at run time.
//
// The library chooses the algorithms. Whether all ranks get the same bits in every run depends on
// it. MPI does not compare the calls of the ranks: if they call different operations, or with
// buffers of different sizes, the result is undefined. After an error, MPI may still write to the
// buffer of the operation that failed.
//
// MPI does not report which rank is missing. So a rank that waits for long in a collective
// operation sends the other ranks a note. A rank whose wait times out names the ranks that have
// sent none. If a process ends, mpirun ends the others.
type MPI struct {
	serializer
	name       string
	rank, size int
	options    Options
	thread     *mpiThread
	mine       wire.Frame // this rank's last collective operation
	counts     []int32
	offsets    []int32
	token      []float64     // what a barrier adds up
	sent       atomic.Uint64 // see Sent
	missing    *wire.Frame   // the note about a rank for which this one waited too long; nil otherwise
}

// JoinMPI joins the group of all processes that mpirun has started with this one, and waits for
// them until ctx ends. A process can do so only once. Options.Algorithm must be empty.
func JoinMPI(ctx context.Context, o Options) (*MPI, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if o.Algorithm != "" {
		return nil, fmt.Errorf("join MPI: got the algorithm %q, but MPI chooses its algorithms itself: leave it unset", o.Algorithm)
	}
	name := mpi.DetectImplementation(os.Getenv)
	if name == "" {
		return nil, errors.New("join MPI: no mpirun has started this process: start the workers with mpirun, or use another transport")
	}
	lib, err := mpi.Open(clib.NewSearch(clib.Environment{}), name)
	if err != nil {
		return nil, fmt.Errorf("join MPI: %w", err)
	}
	t, err := startMPI(ctx, lib)
	if err != nil {
		return nil, fmt.Errorf("join MPI: %w", err)
	}
	version, _, _ := strings.Cut(lib.Version(), ",")
	return &MPI{
		name: strings.Join(strings.Fields(version), " "), rank: t.rank, size: t.size,
		options: o, thread: t, token: make([]float64, 1),
	}, nil
}

// Rank returns the rank in MPI_COMM_WORLD.
func (g *MPI) Rank() int { return g.rank }

// Size returns the number of ranks.
func (g *MPI) Size() int { return g.size }

// Name returns, for example, "Open MPI v4.1.4".
func (g *MPI) Name() string { return g.name }

// AllReduce implements Group.
func (g *MPI) AllReduce(ctx context.Context, b device.Buffer) error {
	return g.runCollective(ctx, kindAllReduce, b, 0, g.thread.lib.IAllReduce)
}

// Broadcast implements Group.
func (g *MPI) Broadcast(ctx context.Context, b device.Buffer, root int) error {
	if root < 0 || root >= g.size {
		return fmt.Errorf("broadcast: invalid root %d: use 0 to %d", root, g.size-1)
	}
	return g.runCollective(ctx, kindBroadcast, b, root, func(r *mpi.Request, p unsafe.Pointer, n int, t mpi.DataType) error {
		return g.thread.lib.IBroadcast(r, p, n, t, root)
	})
}

// ReduceScatter implements Group.
func (g *MPI) ReduceScatter(ctx context.Context, b device.Buffer) error {
	// MPICH 4.0 copies within the buffer in a way that it refuses itself ("memcpy argument
	// memory ranges overlap").
	allReduce := g.thread.lib.Name == clib.MPICH
	err := g.runCollective(ctx, kindReduceScatter, b, 0, func(r *mpi.Request, p unsafe.Pointer, n int, t mpi.DataType) error {
		if allReduce {
			return g.thread.lib.IAllReduce(r, p, n, t)
		}
		return g.thread.lib.IReduceScatter(r, p, g.counts, t)
	})
	if err != nil || g.size == 1 || allReduce {
		return err
	}
	// MPI writes the sum to the beginning of the buffer.
	lo, hi := Shard(b.Len(), g.size, g.rank)
	if b.F64 != nil {
		copy(b.F64[lo:hi], b.F64[:hi-lo])
	} else {
		copy(b.F32[lo:hi], b.F32[:hi-lo])
	}
	return nil
}

// AllGather implements Group.
func (g *MPI) AllGather(ctx context.Context, b device.Buffer) error {
	return g.runCollective(ctx, kindAllGather, b, 0, func(r *mpi.Request, p unsafe.Pointer, _ int, t mpi.DataType) error {
		return g.thread.lib.IAllGather(r, p, g.counts, g.offsets, t)
	})
}

// Barrier implements Group.
func (g *MPI) Barrier(ctx context.Context) error {
	return g.runCollective(ctx, kindBarrier, device.Buffer{}, 0, nil)
}

// runCollective runs a collective operation. start starts it in the MPI library. With an empty
// buffer, any operation is a barrier.
func (g *MPI) runCollective(ctx context.Context, k opKind, b device.Buffer, root int, start func(*mpi.Request, unsafe.Pointer, int, mpi.DataType) error) error {
	if b.Len() > math.MaxInt32 {
		return fmt.Errorf("%v: got %d elements, but MPI supports at most %d: use smaller buffers", k, b.Len(), math.MaxInt32)
	}
	return g.runExclusive(ctx, k, b, g.size, func() error {
		g.mine = wire.Frame{Kind: wire.KindCall, Rank: g.rank, Number: g.number, What: callSignature(k, b, root), Length: uint64(b.Len())}
		g.setShardLayout(b.Len())
		memory, n, t := hostMemory(b), b.Len(), mpi.Float32
		if b.F64 != nil {
			t = mpi.Float64
		}
		if n == 0 {
			g.token[0] = 0
			memory, n, t = numbers.AsBytes(g.token), 1, mpi.Float64
			start = g.thread.lib.IAllReduce
		}
		op := g.thread.startOperation(memory, func(r *mpi.Request, p unsafe.Pointer) error { return start(r, p, n, t) })
		if err := g.waitForOperation(g.describeOperation(), op, g.newCollectiveCheck(ctx)); err != nil {
			return err
		}
		g.countSentBytes(k, b, root)
		return nil
	}, g.notifyFailure)
}

func (g *MPI) setShardLayout(n int) {
	g.counts, g.offsets = make([]int32, g.size), make([]int32, g.size) // MPI uses the previous ones only until its operation ends
	for rank := range g.size {
		lo, hi := Shard(n, g.size, rank)
		g.counts[rank], g.offsets[rank] = int32(hi-lo), int32(lo)
	}
}

// The tags of messages.
const (
	tagHeader  = 1
	tagPayload = 2
	tagNote    = 3
)

// Send implements Group.
func (g *MPI) Send(ctx context.Context, b device.Buffer, to int) error {
	return g.runMessage(ctx, kindSend, b, g.rank, g.size, to, func(m *message) error {
		header := m.header.Encode()
		if err := g.transfer(ctx, m, header[:], tagHeader); err != nil || len(m.payload) == 0 {
			return err
		}
		return g.transfer(ctx, m, m.payload, tagPayload)
	}, g.notifyFailure)
}

// Recv implements Group.
func (g *MPI) Recv(ctx context.Context, b device.Buffer, from int) error {
	return g.runMessage(ctx, kindReceive, b, g.rank, g.size, from, func(m *message) error {
		var header [wire.EncodedFrameBytes]byte
		if err := g.transfer(ctx, m, header[:], tagHeader); err != nil {
			return err
		}
		if err := m.checkHeader(wire.DecodeFrame(header[:])); err != nil || len(m.payload) == 0 {
			return err
		}
		return g.transfer(ctx, m, m.payload, tagPayload)
	}, g.notifyFailure)
}

// transfer sends or receives p, in parts that MPI can count.
func (g *MPI) transfer(ctx context.Context, m *message, p []byte, tag int) error {
	for len(p) > 0 {
		part := p[:min(len(p), 1<<30)]
		p = p[len(part):]
		op := g.thread.startOperation(part, func(r *mpi.Request, at unsafe.Pointer) error {
			if m.kind == kindSend {
				return g.thread.lib.ISend(r, at, len(part), mpi.Byte, m.peer, tag)
			}
			return g.thread.lib.IReceive(r, at, len(part), mpi.Byte, m.peer, tag)
		})
		if err := g.waitForOperation(m.what, op, g.newMessageCheck(ctx, m)); err != nil {
			return err
		}
		if m.kind == kindSend {
			g.sent.Add(uint64(len(part)))
		}
	}
	return nil
}

// waitForOperation waits until op, which what describes, is complete. It calls check every wire.WaitCheckInterval; an
// error of check ends the wait.
func (g *MPI) waitForOperation(what string, op *mpiOperation, check func() error) error {
	timer := time.NewTicker(wire.WaitCheckInterval)
	defer timer.Stop()
	for {
		select {
		case err := <-op.done:
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			return nil
		case <-timer.C:
			if err := check(); err != nil {
				return err
			}
		}
	}
}

// newCollectiveCheck returns a function that returns nil while a rank may go on waiting.
func (g *MPI) newCollectiveCheck(ctx context.Context) func() error {
	var waited process.Stopwatch
	reported := false
	return func() error {
		if err := g.checkGroupFailure(g.describeOperation()); err != nil {
			return err
		}
		for rank, f := range g.thread.receivedNotes() {
			if f.Kind == wire.KindNote && (f.State != wire.NoteClosed || f.Number < g.number) {
				if f.Rank == g.rank { // which did not call in time
					f.State, f.Rank = wire.NoteFailed, rank
				}
				g.missing = &f
				return failureNoteError(g.describeOperation(), f)
			}
		}
		elapsed := waited.Elapsed()
		if elapsed >= reportMissingAfter && !reported {
			reported = true
			g.thread.sendNote(g.mine)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w while waiting for %s", g.describeOperation(), context.Cause(ctx), g.describeMissingRanks())
		}
		if elapsed >= g.options.Timeout {
			for rank, f := range g.thread.receivedNotes() {
				if rank != g.rank && f.Number < g.number {
					g.missing = &wire.Frame{Kind: wire.KindNote, State: wire.NoteMissing, Rank: rank, Number: f.Number, What: f.What}
					break
				}
			}
			return fmt.Errorf("%s: %s did not arrive within %v", g.describeOperation(), g.describeMissingRanks(), g.options.Timeout)
		}
		return nil
	}
}

// describeMissingRanks lists the ranks that have not sent a note that they wait in this
// operation too.
func (g *MPI) describeMissingRanks() string {
	var names []string
	for rank, f := range g.thread.receivedNotes() {
		if rank != g.rank && f.Number < g.number {
			names = append(names, fmt.Sprintf("rank %d", rank))
		}
	}
	if len(names) == 0 {
		return "the result of MPI"
	}
	return strings.Join(names, ", ")
}

// newMessageCheck is like newCollectiveCheck, for a call of Send or Recv.
func (g *MPI) newMessageCheck(ctx context.Context, m *message) func() error {
	var waited, left process.Stopwatch
	return func() error {
		if err := g.checkGroupFailure(m.what); err != nil {
			return err
		}
		f := g.thread.receivedNotes()[m.peer]
		if f.Kind != wire.KindNote {
			left = process.Stopwatch{}
		} else if left.Elapsed() >= graceTime { // a message may still be on its way
			if f.State == wire.NoteMissing {
				f.State = wire.NoteFailed
			}
			return failureNoteError(m.what, wire.Frame{Kind: wire.KindNote, State: f.State, Rank: m.peer, Number: f.Number, What: f.What})
		}
		return m.checkProgress(ctx, waited.Elapsed(), g.options.Timeout, formatLastCall(f.Number, f.What))
	}
}

// notifyFailure sends the other ranks a note that this rank has failed, and stops using MPI.
func (g *MPI) notifyFailure() {
	f := wire.Frame{Kind: wire.KindNote, State: wire.NoteFailed, Rank: g.rank, Number: g.mine.Number, What: g.mine.What}
	if g.missing != nil {
		f = *g.missing
	}
	g.thread.sendNote(f)
	g.thread.stop(wire.CloseTimeout)
}

// Close leaves the group. Like MPI_Finalize, it waits until all other ranks leave the group too.
func (g *MPI) Close() error {
	return g.closeOnce(func() error {
		if g.notified {
			return nil // MPI_Finalize would wait for ranks that may be gone
		}
		g.thread.sendNote(wire.Frame{Kind: wire.KindNote, State: wire.NoteClosed, Rank: g.rank, Number: g.mine.Number, What: g.mine.What})
		missing, err := g.thread.finalize(g.options.Timeout)
		if err != nil {
			return fmt.Errorf("close MPI: %w; has another rank ended without closing its group?", err)
		}
		if len(missing) > 0 {
			return fmt.Errorf("close MPI: ranks %v have not left the group within %v", missing, g.options.Timeout)
		}
		return nil
	})
}
