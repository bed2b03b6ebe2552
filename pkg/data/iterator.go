package data

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Iterator returns the batches of one epoch in order:
//
//	it := loader.Epoch(ctx, epoch)
//	defer it.Close()
//	for it.Next() {
//		b := it.Batch()
//		…
//	}
//	if err := it.Err(); err != nil { … }
//
// It must be used by one goroutine only.
type Iterator struct {
	loader  *Loader
	epoch   int
	ctx     context.Context
	cancel  context.CancelFunc
	batches [][]int

	next    int // step of the batch that Next will return
	current Batch
	err     error
	ended   bool

	buffers       []*buffer // all buffers of this iterator
	free          chan *buffer
	filled        chan filled
	early         []*filled // batches prepared out of order, at step modulo number of buffers
	currentBuffer *buffer   // buffer of current
	claimed       atomic.Int64
	wg            sync.WaitGroup
	once          sync.Once
}

// filled is a batch that a goroutine has prepared, or the error that prevented it.
type filled struct {
	step int
	b    *buffer
	err  error
}

// start takes buffers and starts the goroutines. The caller holds the loader's lock.
func (it *Iterator) start() {
	workers := min(it.loader.goroutines(), len(it.batches))
	// One buffer is in use while the others are filled.
	n := 1
	if workers > 0 {
		n += max(it.loader.c.Prefetch, workers)
	}
	it.free = make(chan *buffer, n)
	for range n {
		b := it.loader.takeBuffer()
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
		it.loader.workerPool.do(func() {
			defer it.wg.Done()
			it.prepare()
		})
	}
}

// prepare fills free buffers with the next batches until none is left. A goroutine
// claims a step only after it has obtained a buffer. So the steps that are in
// preparation or waiting never outnumber the buffers and always include the next one: no
// order of events can deadlock.
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
		it.filled <- filled{step, b, err} // never blocks: the channel's capacity is the number of buffers
		if err != nil {
			return
		}
	}
}

// Next prepares or waits for the next batch. It returns false at the end of the epoch,
// on an error, or when the context is canceled (see Err).
func (it *Iterator) Next() bool {
	if it.ended {
		return false
	}
	if it.currentBuffer != nil {
		it.free <- it.currentBuffer
		it.currentBuffer = nil
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
	it.currentBuffer = f.b
	it.current = Batch{
		Image: f.b.image, Target: f.b.target,
		Indices: it.batches[it.next], Padding: it.loader.paddingOf(it.next),
	}
	it.next++
	return true
}

// await waits for the batch of step it.next and returns it.
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

// cause returns the reason why the context ended.
func (it *Iterator) cause() error { return context.Cause(it.ctx) }

// Batch returns the batch that Next prepared. It is valid until the next call of Next or
// Close.
func (it *Iterator) Batch() Batch { return it.current }

// Err returns the error that ended the iteration early, or nil at the end of the epoch.
func (it *Iterator) Err() error { return it.err }

// Close ends the iteration and its goroutines. It may be called more than once.
func (it *Iterator) Close() {
	it.ended = true
	it.current = Batch{}
	it.stop()
}

// stop ends the goroutines and returns the buffers to the loader. Because Loader.Close
// calls it from another goroutine, it does not touch the fields that Next and Batch use.
func (it *Iterator) stop() {
	it.once.Do(func() {
		it.cancel()
		it.wg.Wait()
		it.loader.release(it, it.buffers)
	})
}
