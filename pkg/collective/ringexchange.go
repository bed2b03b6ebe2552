package collective

import (
	"context"
	"fmt"
	"unsafe"

	"lockstep/pkg/collective/internal/numbers"
	"lockstep/pkg/collective/internal/wire"
)

// forEachShardPiece calls f for each piece of the shard of rank in b, in order. rank is
// taken modulo the number of ranks and may be negative.
func forEachShardPiece[T numbers.Number](r *Ring, b []T, rank int, f func(part []T) error) error {
	lo, hi := Shard(len(b), r.size, ((rank%r.size)+r.size)%r.size)
	return forEachPiece(r, b[lo:hi], f)
}

func forEachPiece[T numbers.Number](r *Ring, b []T, f func(part []T) error) error {
	var v T
	length := r.piece / int(unsafe.Sizeof(v))
	for lo := 0; lo < len(b); lo += length {
		if err := f(b[lo:min(lo+length, len(b))]); err != nil {
			return err
		}
	}
	return nil
}

// sendPiece queues a piece to be sent. The piece must not change until it is written.
func sendPiece[T numbers.Number](r *Ring, part []T) error {
	p := numbers.AsBytes(part)
	r.out.Enqueue(wire.Frame{Kind: wire.KindNumbers, Rank: r.rank, Number: r.number, Length: uint64(len(p))}, p)
	return nil
}

func receivePiece[T numbers.Number](ctx context.Context, r *Ring, part []T) error {
	f, err := r.receiveFrameOfKind(ctx, wire.KindNumbers)
	if err != nil {
		return err
	}
	p := numbers.AsBytes(part)
	if f.Length != uint64(len(p)) {
		return fmt.Errorf("%s: rank %d sent a piece of %d bytes, want %d: all ranks must have the same chunk size", r.describeOperation(), r.previousRank(), f.Length, len(p))
	}
	return r.readFull(ctx, p)
}

// ringReduce adds up the buffers b of all ranks. It writes the sum to this rank's shard of b
// (reduce-scatter) or, if complete is true, to the complete buffer b (all-reduce). Rank r
// sends shard r−1 first. It adds its own numbers to each shard that it receives and sends
// the shard on, except the last one: that is shard r, whose sum is then complete.
func ringReduce[T numbers.Number](ctx context.Context, r *Ring, b []T, complete bool) error {
	sent := r.out.QueuedPieces()
	if err := forEachShardPiece(r, b, r.rank-1, func(part []T) error { return sendPiece(r, part) }); err != nil {
		return err
	}
	if err := r.compareCalls(ctx); err != nil {
		return err
	}
	scratch := numbers.ReinterpretBytes[T](r.scratch)
	for step := 2; step <= r.size; step++ {
		err := forEachShardPiece(r, b, r.rank-step, func(part []T) error {
			got := scratch[:len(part)]
			if err := receivePiece(ctx, r, got); err != nil {
				return err
			}
			numbers.Add(part, got, part)
			if step < r.size || complete {
				return sendPiece(r, part)
			}
			return nil
		})
		if err != nil || step == r.size && !complete {
			return err
		}
	}
	// The sums arrive in the order in which the pieces were sent above.
	return ringReceiveAndForward(ctx, r, b, func() error {
		sent++
		return r.waitUntilSent(ctx, sent, false)
	})
}

func ringGather[T numbers.Number](ctx context.Context, r *Ring, b []T) error {
	if err := forEachShardPiece(r, b, r.rank, func(part []T) error { return sendPiece(r, part) }); err != nil {
		return err
	}
	if err := r.compareCalls(ctx); err != nil {
		return err
	}
	return ringReceiveAndForward(ctx, r, b, func() error { return nil })
}

// ringReceiveAndForward receives the shards of all other ranks into b and forwards them.
// This rank's shard must have been sent already. Before each piece is overwritten,
// ringReceiveAndForward calls waitFree, which returns once the piece's old content has
// been sent.
func ringReceiveAndForward[T numbers.Number](ctx context.Context, r *Ring, b []T, waitFree func() error) error {
	for step := 1; step < r.size; step++ {
		err := forEachShardPiece(r, b, r.rank-step, func(part []T) error {
			if err := waitFree(); err != nil {
				return err
			}
			if err := receivePiece(ctx, r, part); err != nil || step == r.size-1 {
				return err
			}
			return sendPiece(r, part)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func ringBroadcast[T numbers.Number](ctx context.Context, r *Ring, b []T, root int) error {
	if err := r.compareCalls(ctx); err != nil {
		return err
	}
	return forEachPiece(r, b, func(part []T) error {
		if r.rank != root {
			if err := receivePiece(ctx, r, part); err != nil {
				return err
			}
		}
		if r.nextRank() == root {
			return nil
		}
		return sendPiece(r, part)
	})
}
