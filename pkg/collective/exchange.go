package collective

import (
	"context"
	"unsafe"

	"lockstep/pkg/collective/internal/numbers"
)

// pieceLayout divides a buffer of n numbers into one shard per rank, and each shard into
// pieces. Each step processes one piece of every shard.
type pieceLayout struct {
	n, size int
	length  int // numbers per piece
	steps   int
}

func newPieceLayout[T numbers.Number](g *memoryGroup, n int) pieceLayout {
	var v T
	p := pieceLayout{n: n, size: g.size, length: g.memory.PieceBytes / int(unsafe.Sizeof(v))}
	longest := (n + g.size - 1) / g.size
	p.steps = (longest + p.length - 1) / p.length
	return p
}

// pieceBounds returns the range [lo, hi) of the buffer that step processes in the shard of rank.
// The lengths of the shards differ by at most one, so a shard's last piece may be empty.
func (p pieceLayout) pieceBounds(rank, step int) (lo, hi int) {
	begin, end := Shard(p.n, p.size, rank)
	lo = min(begin+step*p.length, end)
	return lo, min(lo+p.length, end)
}

// memoryReduce adds up the buffers b of all ranks. It writes the sum to this rank's shard of b
// (reduce-scatter) or, if complete is true, to the complete buffer b (all-reduce).
func memoryReduce[T numbers.Number](ctx context.Context, g *memoryGroup, b []T, complete bool) error {
	p, m := newPieceLayout[T](g, len(b)), g.memory
	for step := range p.steps {
		for rank := range g.size {
			if rank != g.rank {
				lo, hi := p.pieceBounds(rank, step)
				copy(numbers.ReinterpretBytes[T](m.RankPiece(m.RankSlot(g.rank), rank)), b[lo:hi])
				g.countSentBytes(numbers.AsBytes(b[lo:hi]), 1)
			}
		}
		if err := g.synchronize(ctx); err != nil {
			return err
		}
		lo, hi := p.pieceBounds(g.rank, step)
		sum := numbers.ReinterpretBytes[T](m.RankPiece(m.ResultArea(), g.rank))[:hi-lo]
		sumRanks(g, sum, b[lo:hi])
		copy(b[lo:hi], sum)
		if complete {
			g.countSentBytes(numbers.AsBytes(sum), g.size-1)
		}
		if err := g.synchronize(ctx); err != nil {
			return err
		}
		for rank := 0; complete && rank < g.size; rank++ {
			if rank != g.rank {
				lo, hi := p.pieceBounds(rank, step)
				copy(b[lo:hi], numbers.ReinterpretBytes[T](m.RankPiece(m.ResultArea(), rank)))
			}
		}
	}
	return nil
}

// sumRanks adds up one piece of this rank's shard over all ranks, in rank order, and writes the
// result to sum. own is this rank's copy of the piece; the copies of the other ranks are in their
// slots.
func sumRanks[T numbers.Number](g *memoryGroup, sum, own []T) {
	pieceOf := func(rank int) []T {
		if rank == g.rank {
			return own
		}
		return numbers.ReinterpretBytes[T](g.memory.RankPiece(g.memory.RankSlot(rank), g.rank))[:len(own)]
	}
	numbers.Add(sum, pieceOf(0), pieceOf(1))
	for rank := 2; rank < g.size; rank++ {
		numbers.Add(sum, sum, pieceOf(rank))
	}
}

func memoryGather[T numbers.Number](ctx context.Context, g *memoryGroup, b []T) error {
	p, m := newPieceLayout[T](g, len(b)), g.memory
	for step := range p.steps {
		lo, hi := p.pieceBounds(g.rank, step)
		copy(numbers.ReinterpretBytes[T](m.RankSlot(g.rank)), b[lo:hi])
		g.countSentBytes(numbers.AsBytes(b[lo:hi]), g.size-1)
		if err := g.synchronize(ctx); err != nil {
			return err
		}
		for rank := range g.size {
			if rank != g.rank {
				lo, hi := p.pieceBounds(rank, step)
				copy(b[lo:hi], numbers.ReinterpretBytes[T](m.RankSlot(rank)))
			}
		}
		if err := g.synchronize(ctx); err != nil {
			return err
		}
	}
	return nil
}

// memoryBroadcast copies b in parts that fit into root's slot.
func memoryBroadcast[T numbers.Number](ctx context.Context, g *memoryGroup, b []T, root int) error {
	slot := numbers.ReinterpretBytes[T](g.memory.RankSlot(root))
	for lo := 0; lo < len(b); lo += len(slot) {
		part := b[lo:min(lo+len(slot), len(b))]
		if g.rank == root {
			copy(slot, part)
			g.countSentBytes(numbers.AsBytes(part), g.size-1)
		}
		if err := g.synchronize(ctx); err != nil {
			return err
		}
		if g.rank != root {
			copy(part, slot)
		}
		if err := g.synchronize(ctx); err != nil {
			return err
		}
	}
	return nil
}
