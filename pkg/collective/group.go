// Package collective implements the collective operations of data-parallel training:
// broadcast, all-reduce, reduce-scatter, all-gather and barrier.
//
// A Group is a set of ranks. There are three kinds: SharedMemory joins the processes of
// one machine, Ring joins processes on one or several machines over sockets, and
// InProcess joins goroutines, for tests. rendezvous.Join chooses a kind and creates the
// group.
//
// All ranks get the same bits in every run. Shared memory and a ring add in different
// orders, so with three or more ranks their sums may differ from each other in the last
// bit.
package collective

import (
	"context"

	"lockstep/pkg/internal/device"
)

// Group is this rank's membership in a set of ranks that call the same operations in the
// same order. Every operation works in place. If the context ends or another rank is gone,
// the operation returns an error that names the missing rank. Only one goroutine may use a
// Group at a time.
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
	// Name returns the transport as recorded in run.json, such as "shared memory" or
	// "tcp ring".
	Name() string
	Close() error
}

// Shard returns the range [lo, hi) of rank's shard when n elements are divided among size
// ranks.
func Shard(n, size, rank int) (lo, hi int) { return n * rank / size, n * (rank + 1) / size }
