package data

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Iterator gives the batches of one epoch in order:
//
//	it := loader.Epoch(ctx, epoch)
//	defer it.Close()
//	for it.Next() {
//		b := it.Batch()
//		…
//	}
//	if err := it.Err(); err != nil { … }
//
// It is for one goroutine.
type Iterator struct {
	loader  *Loader
	epoch   int
	ctx     context.Context
	cancel  context.CancelFunc
	batches [][]int

	next    int // step that Next gives
	current Batch
	err     error
	ended   bool

	buffers []*buffer // all that this iterator holds
	free    chan *buffer
	filled  chan filled
	early   []*filled // prepared before their turn, at step modulo number of buffers
	held    *buffer   // of current
	claimed atomic.Int64
	wg      sync.WaitGroup
	once    sync.Once
}

// filled is a batch that a goroutine prepared, or why it could not.
type filled struct {
	step int
	b    *buffer
	err  error
}

// start takes buffers and starts the goroutines; the loader's lock is held.
func (it *Iterator) start() {
	workers := min(it.loader.goroutines(), len(it.batches))
	// One buffer is in use while the others are filled.
	n := 1
	if workers > 0 {
		n += max(it.loader.c.Prefetch, workers)
	}
	it.free = make(chan *buffer, n)
	for range n {
		b := it.loader.take()
		it.buffers = append(it.buffers, b)
		it.free <- b
	}
	if workers == 0 {
		return
	}
	it.filled = make(chan filled, n)
	it.early = make([]*filled, n)
	for range workers {
		it.wg.Add(1)
		it.loader.crew.do(func() {
			defer it.wg.Done()
			it.prepare()
		})
	}
}

// prepare fills free buffers with the next batches until none is left. A
// goroutine claims a step only once it has a buffer, so the steps being
// prepared or waiting are never more than the buffers and always include the
// next one: no order of events can block.
func (it *Iterator) prepare() {
	for {
		var b *buffer
		select {
		case <-it.ctx.Done():
			return
		case b = <-it.free:
		}
		step := int(it.claimed.Add(1)) - 1
		if step >= len(it.batches) {
			return
		}
		err := it.loader.fill(it.ctx, b, it.epoch, it.batches[step])
		it.filled <- filled{step, b, err} // never blocks: as many places as buffers
		if err != nil {
			return
		}
	}
}

// Next prepares or waits for the next batch; false at the end of the epoch, on
// an error, or when the context is cancelled (see Err).
func (it *Iterator) Next() bool {
	if it.ended {
		return false
	}
	if it.held != nil {
		it.free <- it.held
		it.held = nil
	}
	if it.next == len(it.batches) {
		it.Close()
		return false
	}
	f, err := it.await()
	if err != nil {
		it.err = fmt.Errorf("load batch %d of epoch %d: %w", it.next+1, it.epoch+1, err)
		it.Close()
		return false
	}
	it.held = f.b
	it.current = Batch{
		Image: f.b.image, Target: f.b.target,
		Indices: it.batches[it.next], Padding: it.loader.paddingOf(it.next),
	}
	it.next++
	return true
}

// await returns the batch of step it.next.
func (it *Iterator) await() (*filled, error) {
	if err := it.ctx.Err(); err != nil {
		return nil, it.cause()
	}
	if it.filled == nil {
		b := <-it.free
		err := it.loader.fill(it.ctx, b, it.epoch, it.batches[it.next])
		return &filled{it.next, b, err}, err
	}
	at := it.next % len(it.early)
	for it.early[at] == nil {
		select {
		case <-it.ctx.Done():
			return nil, it.cause()
		case f := <-it.filled:
			it.early[f.step%len(it.early)] = &f
		}
	}
	f := it.early[at]
	it.early[at] = nil
	return f, f.err
}

// cause is why the context ended.
func (it *Iterator) cause() error { return context.Cause(it.ctx) }

// Batch is the batch that Next prepared, valid until the next call of Next or Close.
func (it *Iterator) Batch() Batch { return it.current }

// Err is what ended the iteration early, nil at the end of the epoch.
func (it *Iterator) Err() error { return it.err }

// Close ends the iteration and its goroutines. It may be called more than once.
func (it *Iterator) Close() {
	it.ended = true
	it.current = Batch{}
	it.stop()
}

// stop ends the goroutines and gives the buffers back. Loader.Close calls it
// from another goroutine, so it leaves what Next and Batch use alone.
func (it *Iterator) stop() {
	it.once.Do(func() {
		it.cancel()
		it.wg.Wait()
		it.loader.release(it, it.buffers)
	})
}
