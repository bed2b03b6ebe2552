package data

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Iterator iterates over the batches of one epoch, in order:
//
//	it := loader.Epoch(ctx, epoch)
//	defer it.Close()
//	for it.Next() {
//		b := it.Batch()
//		…
//	}
//	if err := it.Err(); err != nil { … }
//
// An Iterator must not be used by several goroutines.
type Iterator struct {
	loader  *Loader
	epoch   int
	ctx     context.Context
	cancel  context.CancelFunc
	batches [][]int

	next    int // step of the batch that the next call of Next prepares
	current Batch
	err     error
	ended   bool

	buffers       []*batchBuffer // all buffers of this iterator
	free          chan *batchBuffer
	prepared      chan preparedBatch
	early         []*preparedBatch // batches received before their turn; index: step modulo number of buffers
	currentBuffer *batchBuffer     // batchBuffer of current
	claimed       atomic.Int64
	wg            sync.WaitGroup
	once          sync.Once
}

type preparedBatch struct {
	step int
	b    *batchBuffer
	err  error
}

// startGoroutines allocates the buffers and starts the goroutines. The caller must hold the loader's lock.
func (it *Iterator) startGoroutines() {
	workers := min(it.loader.goroutinesPerIterator(), len(it.batches))
	// One buffer is used by the caller of Next while the others are filled.
	n := 1
	if workers > 0 {
		n += max(it.loader.c.Prefetch, workers)
	}
	it.free = make(chan *batchBuffer, n)
	for range n {
		b := it.loader.acquireBuffer()
		it.buffers = append(it.buffers, b)
		it.free <- b
	}
	if workers == 0 {
		return
	}
	it.prepared = make(chan preparedBatch, n)
	it.early = make([]*preparedBatch, n)
	for range workers {
		it.wg.Add(1)
		it.loader.workerPool.Run(func() {
			defer it.wg.Done()
			it.prepareBatches()
		})
	}
}

// prepareBatches fills free buffers with batches until the epoch ends or the context is canceled.
// It cannot deadlock: a goroutine claims a step only after it has received a buffer, so every
// claimed step has one, and the step that Next waits for is always claimed first.
func (it *Iterator) prepareBatches() {
	for {
		var b *batchBuffer
		select {
		case <-it.ctx.Done():
			return
		case b = <-it.free:
		}
		step := int(it.claimed.Add(1)) - 1
		if step >= len(it.batches) {
			return
		}
		err := it.loader.fillBatch(it.ctx, b, it.epoch, it.batches[step])
		it.prepared <- preparedBatch{step, b, err} // never blocks: the channel's capacity is the number of buffers
		if err != nil {
			return
		}
	}
}

// Next waits for the next batch, or loads it if the loader has no goroutines. It returns false at
// the end of the epoch, after an error, or if the context is canceled (see Err).
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
	f, err := it.awaitBatch()
	if err != nil {
		it.err = fmt.Errorf("load batch %d of epoch %d: %w", it.next+1, it.epoch+1, err)
		it.Close()
		return false
	}
	it.currentBuffer = f.b
	it.current = Batch{
		Image: f.b.image, Target: f.b.target,
		Indices: it.batches[it.next], Padding: it.loader.stepPadding(it.next),
	}
	it.next++
	return true
}

// awaitBatch waits for the batch of step it.next, or loads it if there are no goroutines.
func (it *Iterator) awaitBatch() (*preparedBatch, error) {
	if err := it.ctx.Err(); err != nil {
		return nil, it.cause()
	}
	if it.prepared == nil {
		b := <-it.free
		err := it.loader.fillBatch(it.ctx, b, it.epoch, it.batches[it.next])
		return &preparedBatch{it.next, b, err}, err
	}
	at := it.next % len(it.early)
	for it.early[at] == nil {
		select {
		case <-it.ctx.Done():
			return nil, it.cause()
		case f := <-it.prepared:
			it.early[f.step%len(it.early)] = &f
		}
	}
	f := it.early[at]
	it.early[at] = nil
	return f, f.err
}

func (it *Iterator) cause() error { return context.Cause(it.ctx) }

// Batch returns the current batch. It is valid until the next call of Next or Close.
func (it *Iterator) Batch() Batch { return it.current }

// Err returns the error that ended the iteration, or nil.
func (it *Iterator) Err() error { return it.err }

// Close ends the iteration and waits for its goroutines. It may be called more than once.
func (it *Iterator) Close() {
	it.ended = true
	it.current = Batch{}
	it.stop()
}

// stop ends the goroutines and returns the buffers to the loader. It avoids the fields of Next and
// Batch, because Loader.Close calls it from another goroutine.
func (it *Iterator) stop() {
	it.once.Do(func() {
		it.cancel()
		it.wg.Wait()
		it.loader.releaseBuffers(it, it.buffers)
	})
}
