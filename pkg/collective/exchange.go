package collective

import (
	"context"
	"unsafe"
)

// pieces divides each rank's shard of a buffer of n numbers into pieces. All shards are
// processed together, one piece of each shard per step.
type pieces struct {
	n, size int
	length  int // numbers in one piece
	steps   int
}

func splitShards[T number](g *memoryGroup, n int) pieces {
	var v T
	p := pieces{n: n, size: g.size, length: g.memory.pieceBytes / int(unsafe.Sizeof(v))}
	longest := (n + g.size - 1) / g.size
	p.steps = (longest + p.length - 1) / p.length
	return p
}

// bounds returns the range [lo, hi) of the piece of rank's shard that is processed in a
// step. The lengths of shards differ by at most one, so a shard's last piece may be
// empty.
func (p pieces) bounds(rank, step int) (lo, hi int) {
	begin, end := Shard(p.n, p.size, rank)
	lo = min(begin+step*p.length, end)
	return lo, min(lo+p.length, end)
}

// reduce writes the sum over all ranks to this rank's shard of b, or to every shard if
// all is true.
func reduce[T number](ctx context.Context, g *memoryGroup, b []T, all bool) error {
	p, m := splitShards[T](g, len(b)), g.memory
	for step := range p.steps {
		for rank := range g.size {
			if rank != g.rank {
				lo, hi := p.bounds(rank, step)
				copy(view[T](m.piece(m.slot(g.rank), rank)), b[lo:hi])
			}
		}
		if err := g.synchronize(ctx); err != nil {
			return err
		}
		lo, hi := p.bounds(g.rank, step)
		sum := view[T](m.piece(m.result(), g.rank))[:hi-lo]
		addRanks(g, sum, b[lo:hi])
		copy(b[lo:hi], sum)
		if err := g.synchronize(ctx); err != nil {
			return err
		}
		for rank := 0; all && rank < g.size; rank++ {
			if rank != g.rank {
				lo, hi := p.bounds(rank, step)
				copy(b[lo:hi], view[T](m.piece(m.result(), rank)))
			}
		}
	}
	return nil
}

// addRanks sets sum to the sum of all ranks' pieces of this rank's shard, added in rank
// order. own is this rank's piece.
func addRanks[T number](g *memoryGroup, sum, own []T) {
	of := func(rank int) []T {
		if rank == g.rank {
			return own
		}
		return view[T](g.memory.piece(g.memory.slot(rank), g.rank))[:len(own)]
	}
	addTo(sum, of(0), of(1))
	for rank := 2; rank < g.size; rank++ {
		addTo(sum, sum, of(rank))
	}
}

// gather fills b with every rank's shard.
func gather[T number](ctx context.Context, g *memoryGroup, b []T) error {
	p, m := splitShards[T](g, len(b)), g.memory
	for step := range p.steps {
		lo, hi := p.bounds(g.rank, step)
		copy(view[T](m.slot(g.rank)), b[lo:hi])
		if err := g.synchronize(ctx); err != nil {
			return err
		}
		for rank := range g.size {
			if rank != g.rank {
				lo, hi := p.bounds(rank, step)
				copy(b[lo:hi], view[T](m.slot(rank)))
			}
		}
		if err := g.synchronize(ctx); err != nil {
			return err
		}
	}
	return nil
}

// broadcast copies root's b to every rank, one slot's length at a time.
func broadcast[T number](ctx context.Context, g *memoryGroup, b []T, root int) error {
	slot := view[T](g.memory.slot(root))
	for lo := 0; lo < len(b); lo += len(slot) {
		part := b[lo:min(lo+len(slot), len(b))]
		if g.rank == root {
			copy(slot, part)
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
