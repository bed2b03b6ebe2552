package collective

import (
	"context"
	"fmt"
	"unsafe"
)

// asBytes returns the numbers v as bytes without copying them.
func asBytes[T number](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0])))
}

// allocateAligned allocates n > 0 bytes that are aligned for 64-bit numbers and atomic
// fields.
func allocateAligned(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), n)
}

// forEachShardPiece calls f for each piece of the shard of rank in b, in order. rank is
// taken modulo the number of ranks and may be negative.
func forEachShardPiece[T number](r *Ring, b []T, rank int, f func(part []T) error) error {
	lo, hi := Shard(len(b), r.size, ((rank%r.size)+r.size)%r.size)
	return forEachPiece(r, b[lo:hi], f)
}

// forEachPiece calls f for each piece of b, in order.
func forEachPiece[T number](r *Ring, b []T, f func(part []T) error) error {
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
func sendPiece[T number](r *Ring, part []T) error {
	p := asBytes(part)
	r.out.enqueue(frame{kind: frameNumbers, rank: r.rank, number: r.number, length: uint64(len(p))}, p)
	return nil
}

// receivePiece receives the next piece into part.
func receivePiece[T number](ctx context.Context, r *Ring, part []T) error {
	f, err := r.receiveKind(ctx, frameNumbers)
	if err != nil {
		return err
	}
	p := asBytes(part)
	if f.length != uint64(len(p)) {
		return fmt.Errorf("%s: rank %d sent a piece of %d bytes, want %d: all ranks must have the same chunk size", r.what, r.previousRank(), f.length, len(p))
	}
	return r.readFull(ctx, p)
}

// ringReduce adds up the buffers b of all ranks. It writes the sum to this rank's shard of b
// (reduce-scatter) or, if complete is true, to the complete buffer b (all-reduce). Rank r
// sends shard r−1 first. It adds its own numbers to each shard that it receives and sends
// the shard on, except the last one: that is shard r, whose sum is then complete.
func ringReduce[T number](ctx context.Context, r *Ring, b []T, complete bool) error {
	sent := r.out.queuedPieces()
	if err := forEachShardPiece(r, b, r.rank-1, func(part []T) error { return sendPiece(r, part) }); err != nil {
		return err
	}
	if err := r.compareCalls(ctx); err != nil {
		return err
	}
	scratch := asNumbers[T](r.scratch)
	for step := 2; step <= r.size; step++ {
		err := forEachShardPiece(r, b, r.rank-step, func(part []T) error {
			got := scratch[:len(part)]
			if err := receivePiece(ctx, r, got); err != nil {
				return err
			}
			addTo(part, got, part)
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

// ringGather copies each rank's shard of b to the buffers b of all ranks.
func ringGather[T number](ctx context.Context, r *Ring, b []T) error {
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
func ringReceiveAndForward[T number](ctx context.Context, r *Ring, b []T, waitFree func() error) error {
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

// ringBroadcast sends root's b around the ring, piece by piece.
func ringBroadcast[T number](ctx context.Context, r *Ring, b []T, root int) error {
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
