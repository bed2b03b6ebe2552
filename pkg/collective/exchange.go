package collective

import (
	"context"
	"unsafe"
)

// pieces walks the shards of a buffer of n numbers, a piece of each at a time.
type pieces struct {
	n, size int
	length  int // numbers of a piece
	steps   int
}

func cut[T number](g *memoryGroup, n int) pieces {
	var v T
	p := pieces{n: n, size: g.size, length: g.memory.pieceBytes / int(unsafe.Sizeof(v))}
	longest := (n + g.size - 1) / g.size
	p.steps = (longest + p.length - 1) / p.length
	return p
}

// bounds is piece step of rank's shard; shards differ by one number, so the
// last piece of some may be empty.
func (p pieces) bounds(rank, step int) (lo, hi int) {
	begin, end := Shard(p.n, p.size, rank)
	lo = min(begin+step*p.length, end)
	return lo, min(lo+p.length, end)
}

// reduce leaves the sum in this rank's shard of b, and with all in every shard.
func reduce[T number](ctx context.Context, g *memoryGroup, b []T, all bool) error {
	p, m := cut[T](g, len(b)), g.memory
	for step := range p.steps {
		for rank := range g.size {
			if rank != g.rank {
				lo, hi := p.bounds(rank, step)
				copy(view[T](m.piece(m.slot(g.rank), rank)), b[lo:hi])
			}
		}
		if err := g.meet(ctx); err != nil {
			return err
		}
		lo, hi := p.bounds(g.rank, step)
		sum := view[T](m.piece(m.result(), g.rank))[:hi-lo]
		addRanks(g, sum, b[lo:hi])
		copy(b[lo:hi], sum)
		if err := g.meet(ctx); err != nil {
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

// addRanks sets sum to the pieces of this rank's shard of all ranks, added in
// rank order; own is this rank's.
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
	p, m := cut[T](g, len(b)), g.memory
	for step := range p.steps {
		lo, hi := p.bounds(g.rank, step)
		copy(view[T](m.slot(g.rank)), b[lo:hi])
		if err := g.meet(ctx); err != nil {
			return err
		}
		for rank := range g.size {
			if rank != g.rank {
				lo, hi := p.bounds(rank, step)
				copy(b[lo:hi], view[T](m.slot(rank)))
			}
		}
		if err := g.meet(ctx); err != nil {
			return err
		}
	}
	return nil
}

// broadcast copies root's b to every rank, a slot at a time.
func broadcast[T number](ctx context.Context, g *memoryGroup, b []T, root int) error {
	slot := view[T](g.memory.slot(root))
	for lo := 0; lo < len(b); lo += len(slot) {
		part := b[lo:min(lo+len(slot), len(b))]
		if g.rank == root {
			copy(slot, part)
		}
		if err := g.meet(ctx); err != nil {
			return err
		}
		if g.rank != root {
			copy(part, slot)
		}
		if err := g.meet(ctx); err != nil {
			return err
		}
	}
	return nil
}
