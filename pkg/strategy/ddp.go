package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
)

// Stats contains statistics of the exchange since the previous call of Exchange.Stats.
type Stats struct {
	AllReduce time.Duration // time in operations of the group, also while the backward pass went on
	First     time.Time     // when the first bucket or statistics were queued; zero if none were
	Buckets   int           // number of reduced buckets
	Shared    int           // number of exchanges of batch norm statistics
	Bytes     int           // size of this worker's buckets and statistics
}

// DDP is the engine.GradSync of data parallelism, for one engine. It replaces each bucket
// by its mean over all ranks, in the order in which ReduceBucket was called: in a separate
// goroutine, in Wait or in ShareStatistics. ShareStatistics first reduces all queued
// buckets, so that all ranks call the operations of the group in the same order, however
// fast each rank is. Nothing else may use the group between a step's first ReduceBucket or
// ShareStatistics and its Wait.
type DDP struct {
	ctx    context.Context
	cancel context.CancelFunc
	group  collective.Group

	mu            sync.Mutex
	changed       sync.Cond
	queue         []bucket
	pending       int  // number of buckets that are queued or being reduced
	busy          bool // an operation of the group is running
	err           error
	closed        bool
	stats         Stats
	reduced       []engine.Reduction // buckets reduced since the last Wait
	waited        bool               // nothing was queued since the last Wait
	worker        sync.WaitGroup
	allStatistics []float64 // statistics of all workers, by rank
}

// bucket is a gradient bucket that waits for its reduction.
type bucket struct {
	index  int
	buffer device.Buffer
}

var (
	_ engine.NormSync          = (*DDP)(nil)
	_ engine.ReductionReporter = (*DDP)(nil)
)

// NewDDP returns a DDP that exchanges through group. If ctx is canceled, operations in
// progress are canceled too. In a group of one rank, DDP does nothing.
func NewDDP(ctx context.Context, group collective.Group) *DDP {
	d := &DDP{group: group}
	d.ctx, d.cancel = context.WithCancel(ctx)
	d.changed.L = &d.mu
	if group.Size() > 1 {
		d.worker.Go(d.reduceUntilClosed)
	}
	return d
}

// ReduceBucket queues the all-reduce of bucket i and returns at once. The caller must not use
// b until Wait has returned.
func (d *DDP) ReduceBucket(i int, b device.Buffer, _ device.Stream) error {
	if d.group.Size() == 1 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("reduce bucket %d: the strategy is closed", i)
	}
	if d.err != nil {
		return d.err
	}
	d.markQueued()
	d.queue = append(d.queue, bucket{i, b})
	d.pending++
	d.changed.Broadcast()
	return nil
}

// markQueued records that a bucket or statistics were queued. The caller must hold d.mu.
func (d *DDP) markQueued() {
	if d.stats.First.IsZero() {
		d.stats.First = time.Now()
	}
	if d.waited {
		d.reduced, d.waited = d.reduced[:0], false
	}
}

// ShareStatistics returns the concatenated statistics of all workers, in the order of their
// ranks. own contains the statistics of this worker. It first waits until all queued buckets
// are reduced.
func (d *DDP) ShareStatistics(own []float64) ([]float64, error) {
	n := d.group.Size()
	if n == 1 {
		return own, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errors.New("share batch norm statistics: the strategy is closed")
	}
	d.markQueued()
	if err := d.drain(); err != nil {
		return nil, err
	}
	d.allStatistics = slices.Grow(d.allStatistics[:0], n*len(own))[:n*len(own)]
	copy(d.allStatistics[d.group.Rank()*len(own):], own)
	d.err = d.runOperation(-1, func() error { return d.group.AllGather(d.ctx, device.Buffer{F64: d.allStatistics}) })
	d.stats.Shared++
	d.stats.Bytes += 8 * len(own)
	d.changed.Broadcast()
	return d.allStatistics, d.err
}

// Wait returns when every queued bucket contains the mean over all workers. After an
// error, every further call returns that error, because the workers are no longer
// synchronized. Wait reduces the buckets that are still in the queue itself: no
// computation remains that could overlap with them, and waking the other goroutine would
// cost time.
func (d *DDP) Wait() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.drain()
	d.waited = true
	return err
}

// drain returns when all queued buckets are reduced. It reduces buckets itself unless the
// other goroutine is doing so. The caller must hold d.mu, which drain releases during each
// operation of the group.
func (d *DDP) drain() error {
	for d.pending > 0 {
		if len(d.queue) > 0 && !d.busy {
			d.reduceNext()
			continue
		}
		d.changed.Wait()
	}
	return d.err
}

// Reduced returns the start and the duration of every exchange of buckets or batch norm
// statistics between the last two calls of Wait. Call it after Wait.
func (d *DDP) Reduced() []engine.Reduction {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reduced
}

// Capturable reports whether the group has only one rank, which exchanges nothing.
// Otherwise the exchange runs on the host, so a CUDA graph cannot contain it.
func (d *DDP) Capturable() bool { return d.group.Size() == 1 }

// Stats returns statistics of the exchange since the previous call of Stats. Call it after
// Wait.
func (d *DDP) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	d.stats = Stats{}
	return s
}

// Close cancels operations in progress and returns when they have ended. It does not close
// the group.
func (d *DDP) Close() error {
	d.mu.Lock()
	d.closed = true
	d.changed.Broadcast()
	d.mu.Unlock()
	d.cancel()
	d.worker.Wait()
	return nil
}

// reduceUntilClosed reduces the queued buckets one after the other until Close.
func (d *DDP) reduceUntilClosed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		for len(d.queue) == 0 || d.busy {
			if d.closed && !d.busy {
				return
			}
			d.changed.Wait()
		}
		d.reduceNext()
	}
}

// reduceNext reduces the first bucket of the queue. The caller must hold d.mu, which
// reduceNext releases during the operation of the group.
func (d *DDP) reduceNext() {
	b := d.queue[0]
	d.queue = d.queue[1:]
	if d.err == nil {
		d.err = d.runOperation(b.index, func() error { return d.reduce(b) })
		d.stats.Buckets++
		d.stats.Bytes += b.buffer.Bytes()
	}
	d.pending--
	d.changed.Broadcast()
}

// runOperation calls operation, an operation of the group on the given bucket (-1:
// statistics of a batch norm), and records its duration. The caller must hold d.mu, which
// runOperation releases meanwhile; d.busy prevents other operations during that time.
func (d *DDP) runOperation(bucket int, operation func() error) error {
	d.busy = true
	d.mu.Unlock()
	begin := time.Now()
	err := operation()
	took := time.Since(begin)
	d.mu.Lock()
	d.busy = false
	d.stats.AllReduce += took
	d.reduced = append(d.reduced, engine.Reduction{Bucket: bucket, Begin: begin, Took: took})
	return err
}

// reduce replaces one bucket by its mean over all workers.
func (d *DDP) reduce(b bucket) error {
	if err := d.group.AllReduce(d.ctx, b.buffer); err != nil {
		return fmt.Errorf("reduce gradient bucket %d: %w", b.index, err)
	}
	divide(b.buffer, d.group.Size())
	return nil
}

// divide divides all values of b by n. If n is a power of two, it multiplies them by 1/n,
// which gives the same bits and is faster.
func divide(b device.Buffer, n int) {
	if n&(n-1) == 0 {
		f := 1 / float64(n)
		for i := range b.F64 {
			b.F64[i] *= f
		}
		g := float32(f)
		for i := range b.F32 {
			b.F32[i] *= g
		}
		return
	}
	f := float64(n)
	for i := range b.F64 {
		b.F64[i] /= f
	}
	g := float32(n)
	for i := range b.F32 {
		b.F32[i] /= g
	}
}
