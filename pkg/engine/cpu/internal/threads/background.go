package threads

import "sync/atomic"

// BackgroundWork is work that the goroutines of a group do while they wait for each other, for
// example the optimizer's update during the backward pass. It consists of pieces, which are
// claimed in order and may be computed concurrently. A BackgroundWork belongs to one group.
type BackgroundWork struct {
	// Run computes one piece. worker is the number of the goroutine that calls it.
	Run func(worker, piece int)

	first, rest int                         // pieces that FinishBackgroundWork computes
	finish      func(w *Worker, lo, hi int) // made once, so that a step allocates nothing

	_       [cacheLineBytes]byte
	next    atomic.Int64 // the next piece to claim
	allowed atomic.Int64 // number of pieces that may be claimed
	_       [cacheLineBytes]byte
}

// AllowPieces lets waiting goroutines compute the first n pieces.
func (b *BackgroundWork) AllowPieces(n int) { b.allowed.Store(int64(n)) }

// runNextPiece computes the next allowed piece, if there is one, and reports whether it did.
func (b *BackgroundWork) runNextPiece(worker int) bool {
	for {
		i := b.next.Load()
		if i >= b.allowed.Load() {
			return false
		}
		if b.next.CompareAndSwap(i, i+1) {
			b.Run(worker, int(i))
			return true
		}
	}
}

// StartBackgroundWork gives the group work b, which its goroutines do while they wait, until
// FinishBackgroundWork. It replaces earlier work. Initially no pieces are allowed; see AllowPieces.
func (g *Group) StartBackgroundWork(b *BackgroundWork) {
	b.allowed.Store(0) // before next, so that no goroutine claims a piece in between
	b.next.Store(0)
	g.background.Store(b)
}

// FinishBackgroundWork computes the pieces below n that nobody has claimed, and returns when all n
// pieces are done.
func (g *Group) FinishBackgroundWork(b *BackgroundWork, n int, workers []Worker) {
	g.background.CompareAndSwap(b, nil)
	b.first = int(b.next.Swap(int64(n)))
	b.rest = n - b.first
	if b.finish == nil {
		b.finish = func(w *Worker, lo, hi int) {
			for i := b.first + lo*b.rest/g.Size; i < b.first+hi*b.rest/g.Size; i++ {
				b.Run(w.Number, i)
			}
		}
	}
	// All goroutines take part, so that none still computes a piece when Run returns.
	g.Run(Task{g.Size, b.finish}, workers)
}
