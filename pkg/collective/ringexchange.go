package collective

import (
	"context"
	"fmt"
	"unsafe"
)

// bytesOf returns the memory of v as bytes.
func bytesOf[T number](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0])))
}

// alignedBytes allocates n bytes that are aligned for every type of number.
func alignedBytes(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return bytesOfWords(words)[:n]
}

func bytesOfWords(w []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), 8*len(w))
}

// eachPiece calls f for each piece of shard i of b, in order. i is taken modulo the
// number of ranks and may be negative.
func eachPiece[T number](r *Ring, b []T, i int, f func(part []T) error) error {
	lo, hi := Shard(len(b), r.size, ((i%r.size)+r.size)%r.size)
	return inPieces(r, b[lo:hi], f)
}

func inPieces[T number](r *Ring, b []T, f func(part []T) error) error {
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
	p := bytesOf(part)
	r.out.put(frame{kind: frameNumbers, rank: r.rank, number: r.number, length: uint64(len(p))}, p)
	return nil
}

// receivePiece receives the next piece into part.
func receivePiece[T number](ctx context.Context, r *Ring, part []T) error {
	f, err := r.expect(ctx, frameNumbers)
	if err != nil {
		return err
	}
	p := bytesOf(part)
	if f.length != uint64(len(p)) {
		return fmt.Errorf("%s: rank %d sent a piece of %d bytes, want %d: all ranks must have the same chunk size", r.what, r.previous(), f.length, len(p))
	}
	return r.fill(ctx, p)
}

// ringReduce writes the sum over all ranks to this rank's shard of b, or to every shard
// if all is true. Rank r sends shard r−1 first. It adds its own numbers to each shard
// that it receives and sends the shard on, except the last one: that is shard r, whose
// sum is then complete.
func ringReduce[T number](ctx context.Context, r *Ring, b []T, all bool) error {
	before := r.out.queued()
	if err := eachPiece(r, b, r.rank-1, func(part []T) error { return sendPiece(r, part) }); err != nil {
		return err
	}
	if err := r.compareCalls(ctx); err != nil {
		return err
	}
	scratch := view[T](r.scratch)
	for step := 2; step <= r.size; step++ {
		err := eachPiece(r, b, r.rank-step, func(part []T) error {
			got := scratch[:len(part)]
			if err := receivePiece(ctx, r, got); err != nil {
				return err
			}
			addTo(part, got, part)
			if step < r.size || all {
				return sendPiece(r, part)
			}
			return nil
		})
		if err != nil || step == r.size && !all {
			return err
		}
	}
	// The sums arrive in the order in which the pieces were sent above.
	return ringCollect(ctx, r, b, func() error {
		before++
		return r.sent(ctx, before, false)
	})
}

// ringGather fills b with every rank's shard.
func ringGather[T number](ctx context.Context, r *Ring, b []T) error {
	if err := eachPiece(r, b, r.rank, func(part []T) error { return sendPiece(r, part) }); err != nil {
		return err
	}
	if err := r.compareCalls(ctx); err != nil {
		return err
	}
	return ringCollect(ctx, r, b, func() error { return nil })
}

// ringCollect receives all shards but this rank's own, which is sent already, and
// forwards them. free returns once the next piece of b may be overwritten.
func ringCollect[T number](ctx context.Context, r *Ring, b []T, free func() error) error {
	for step := 1; step < r.size; step++ {
		err := eachPiece(r, b, r.rank-step, func(part []T) error {
			if err := free(); err != nil {
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
	return inPieces(r, b, func(part []T) error {
		if r.rank != root {
			if err := receivePiece(ctx, r, part); err != nil {
				return err
			}
		}
		if r.next() == root {
			return nil
		}
		return sendPiece(r, part)
	})
}
