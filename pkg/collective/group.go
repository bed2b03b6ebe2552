// Package collective is how workers combine numbers: broadcast, all-reduce,
// reduce-scatter, all-gather, barrier.
//
// SharedMemory joins the processes of one machine, Ring those of one or several
// over sockets, InProcess the goroutines of a test. rendezvous.Join chooses and
// makes them. Whatever carries the numbers, all ranks get the same bits, in
// every run; over three and more ranks, shared memory and a ring add in another
// order, so that their sums may differ in the last bit.
package collective

import (
	"context"

	"lockstep/pkg/internal/device"
)

// Group is a set of ranks that call the same operations in the same order.
// Every method works in place and returns an error that names the missing rank
// when the context ends or a peer is gone. A Group is for one goroutine at a
// time.
type Group interface {
	Rank() int
	Size() int
	// AllReduce leaves the element-wise sum over all ranks in b, bit-identical on every rank.
	AllReduce(ctx context.Context, b device.Buffer) error
	// Broadcast copies root's b to every rank.
	Broadcast(ctx context.Context, b device.Buffer, root int) error
	// ReduceScatter leaves the sum over all ranks in this rank's shard of b
	// (Shard(b.Len(), size, rank)); the rest of b is undefined.
	ReduceScatter(ctx context.Context, b device.Buffer) error
	// AllGather fills b with every rank's shard.
	AllGather(ctx context.Context, b device.Buffer) error
	Barrier(ctx context.Context) error
	// Name says what carries the data, for run.json ("shared memory", "in-process").
	Name() string
	Close() error
}

// Shard is the part [lo, hi) of n elements that belongs to rank.
func Shard(n, size, rank int) (lo, hi int) { return n * rank / size, n * (rank + 1) / size }
