package threads

import (
	"sync/atomic"
	"testing"
	"time"
)

// TestBackground checks that goroutines which wait for another one compute the allowed pieces:
// the caller's part of a task ends only when others have computed them. The pieces are allowed before
// the task starts, because a goroutine that already sleeps computes none.
func TestBackground(t *testing.T) {
	for _, threads := range []int{2, 5, 10} {
		g := New(threads)
		workers := make([]Worker, threads)
		for i := range workers {
			workers[i].Number = i
		}
		const pieces, allowed = 20, 7
		var seen [pieces]atomic.Int32
		done := make(chan struct{})
		b := &BackgroundWork{Run: func(worker, piece int) {
			if worker < 0 || worker >= threads {
				t.Errorf("%d threads: piece %d is computed by goroutine %d", threads, piece, worker)
			}
			seen[piece].Add(1)
			if piece == allowed-1 {
				close(done)
			}
		}}
		for range 3 { // a Background can be used again
			for i := range seen {
				seen[i].Store(0)
			}
			done = make(chan struct{})
			g.StartBackgroundWork(b)
			b.AllowPieces(allowed)
			g.Run(Task{threads, func(_ *Worker, lo, _ int) {
				if lo == 0 {
					<-done // else the test never ends
				}
			}}, workers)
			for i := allowed; i < pieces; i++ {
				if seen[i].Load() != 0 {
					t.Errorf("%d threads: piece %d is computed before it is allowed", threads, i)
				}
			}
			g.FinishBackgroundWork(b, pieces, workers)
			for i := range seen {
				if n := seen[i].Load(); n != 1 {
					t.Errorf("%d threads compute piece %d %d times", threads, i, n)
				}
			}
		}
		g.Close()
	}
}

// TestFinishBackgroundWaits checks that FinishBackgroundWork waits for a piece that a helper has
// begun, even if it has nothing left to compute itself.
func TestFinishBackgroundWaits(t *testing.T) {
	g := New(2)
	defer g.Close()
	workers := make([]Worker, 2)
	begun, end := make(chan struct{}), make(chan struct{})
	var done atomic.Bool
	b := &BackgroundWork{Run: func(int, int) {
		close(begun)
		<-end
		done.Store(true)
	}}
	g.StartBackgroundWork(b)
	g.Run(Task{2, func(_ *Worker, lo, _ int) {
		if lo == 0 {
			<-begun
		} else {
			b.AllowPieces(1) // the helper begins the piece when it has ended this part
		}
	}}, workers)
	go func() {
		time.Sleep(5 * time.Millisecond)
		close(end)
	}()
	g.FinishBackgroundWork(b, 1, workers)
	if !done.Load() {
		t.Error("FinishBackground returns before the piece of a helper is done")
	}
}
