package collective

import (
	"context"
	"fmt"
	"unsafe"
)

// bytesOf is the memory of numbers.
func bytesOf[T number](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0])))
}

// alignedBytes is memory that may be read as numbers of any kind.
func alignedBytes(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return bytesOfWords(words)[:n]
}

func bytesOfWords(w []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), 8*len(w))
}

// eachPiece calls f for the pieces of shard i of b, in order; i may be negative.
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

// sendPiece queues a piece, which must not change before it is written.
func sendPiece[T number](r *Ring, part []T) error {
	p := bytesOf(part)
	r.out.put(frame{kind: frameNumbers, rank: r.rank, number: r.number, length: uint64(len(p))}, p)
	return nil
}

// receivePiece receives a piece.
func receivePiece[T number](ctx context.Context, r *Ring, part []T) error {
	f, err := r.expect(ctx, frameNumbers)
	if err != nil {
		return err
	}
	p := bytesOf(part)
	if f.length != uint64(len(p)) {
		return fmt.Errorf("%s: rank %d sent a piece of %d bytes, expected %d: all ranks must have the same chunk size", r.what, r.before(), f.length, len(p))
	}
	return r.fill(ctx, p)
}

// ringReduce leaves the sum in this rank's shard of b, and with all in every
// shard. Rank r sends shard r−1 first; what it receives next, it adds to and
// sends on, so that shard r is whole here at last.
func ringReduce[T number](ctx context.Context, r *Ring, b []T, all bool) error {
	before := r.out.queued()
	if err := eachPiece(r, b, r.rank-1, func(part []T) error { return sendPiece(r, part) }); err != nil {
		return err
	}
	if err := r.meet(ctx); err != nil {
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
	// The sums come in the order in which the parts were sent above.
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
	if err := r.meet(ctx); err != nil {
		return err
	}
	return ringCollect(ctx, r, b, func() error { return nil })
}

// ringCollect receives all shards but this rank's, which was sent, and passes
// them on; free returns when the next piece may be overwritten.
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

// ringBroadcast passes root's b round, a piece at a time.
func ringBroadcast[T number](ctx context.Context, r *Ring, b []T, root int) error {
	if err := r.meet(ctx); err != nil {
		return err
	}
	return inPieces(r, b, func(part []T) error {
		if r.rank != root {
			if err := receivePiece(ctx, r, part); err != nil {
				return err
			}
		}
		if r.after() == root {
			return nil
		}
		return sendPiece(r, part)
	})
}
