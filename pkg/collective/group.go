// Package collective implements the collective operations of data-parallel training:
// broadcast, all-reduce, reduce-scatter, all-gather and barrier, and messages between two
// ranks.
//
// A Group is a set of ranks. There are five kinds: SharedMemory joins the processes of
// one machine, Ring joins processes on one or several machines over sockets, MPI joins the
// processes that mpirun has started, InProcess joins goroutines, and JoinNodes joins
// goroutines of several processes. rendezvous.Join chooses a kind and creates the group.
//
// All ranks get the same bits in every run. Algorithms of all-reduce add in different
// orders, so with three or more ranks their sums may differ from each other in the last bit.
// Options.Algorithm selects one: through memory the direct one is the default, over sockets
// the ring; package schedule describes the others. With AlgorithmAuto, a measurement at
// the start selects one for each size, so the bits may then differ between runs.
//
// The package has more files than others because each kind of group has its own, and all share the
// checks, algorithms and errors of an operation. Wire formats and shared segments are in internal.
package collective

import (
	"context"
	"errors"

	"lockstep/pkg/internal/device"
)

// Errors of an operation that fails because another rank has left or failed; use errors.Is. The
// error of that other rank states the cause.
var (
	ErrRankLeft   = errors.New("has left the group")
	ErrRankFailed = errors.New("failed")
)

// Group is this rank's membership in a set of ranks that call the same operations in the
// same order. Every operation works in place. If the context ends or another rank is gone,
// the operation returns an error that names the missing rank, and the group refuses further
// operations. Only one goroutine may use a Group at a time, except for Send and Recv: one
// Send and one Recv for each other rank may run at the same time, also beside another
// operation.
type Group interface {
	Rank() int
	Size() int
	// AllReduce replaces b by the element-wise sum over all ranks, with the same bits on
	// every rank.
	AllReduce(ctx context.Context, b device.Buffer) error
	// Broadcast copies root's b to every rank.
	Broadcast(ctx context.Context, b device.Buffer, root int) error
	// ReduceScatter replaces this rank's shard of b (Shard(b.Len(), size, rank)) by the
	// sum over all ranks. The rest of b is undefined afterwards.
	ReduceScatter(ctx context.Context, b device.Buffer) error
	// AllGather copies each rank's shard of b to all ranks.
	AllGather(ctx context.Context, b device.Buffer) error
	// Barrier returns once every rank has called it.
	Barrier(ctx context.Context) error
	// Send sends the elements of b to rank to, which must call Recv with a buffer of the same
	// length and type; otherwise its Recv returns an error. Messages from one rank to another
	// arrive in order. Other ranks take no part.
	//
	// Send returns once b may change. It may return before the other rank calls Recv, if
	// buffers between the two have room for the message, but must be expected to block until
	// then: two ranks that send to each other must call Recv in another goroutine, or one of
	// them must receive first.
	Send(ctx context.Context, b device.Buffer, to int) error
	// Recv waits for the next message from rank from and copies it to b.
	Recv(ctx context.Context, b device.Buffer, from int) error
	// Name returns the transport as recorded in run.json, such as "shared memory" or
	// "tcp ring".
	Name() string
	Close() error
}

// Shard returns the range [lo, hi) of rank's shard when n elements are divided among size
// ranks.
func Shard(n, size, rank int) (lo, hi int) { return n * rank / size, n * (rank + 1) / size }
