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

// Stats summarizes the exchange through the collective since the last call of DDP.Stats.
type Stats struct {
	AllReduce time.Duration // time in the collective, whether it overlaps with backward or not
	First     time.Time     // when the first bucket or statistics were queued; zero if none were
	Buckets   int
	Shared    int // exchanges of batch norm statistics
	Bytes     int // size of this worker's buckets and statistics
}

// DDP is the engine.GradSync of data parallelism, for one engine. It reduces the buckets
// in the order in which they are queued: in its own goroutine, in Wait or in
// ShareStatistics. The statistics of synchronized batch norms are queued after the
// buckets, so that all ranks take part in the same operation at any pace. Nothing else
// may use the group between a step's first ReduceBucket or ShareStatistics and its Wait.
type DDP struct {
	ctx    context.Context
	cancel context.CancelFunc
	group  collective.Group

	mu      sync.Mutex
	changed sync.Cond
	queue   []bucket
	pending int  // buckets in the queue or in the collective
	busy    bool // whether an operation is in the collective
	err     error
	closed  bool
	stats   Stats
	reduced []engine.Reduction // buckets reduced since the last Wait
	waited  bool               // nothing was queued since the last Wait
	worker  sync.WaitGroup
	all     []float64 // every worker's statistics
}

type bucket struct {
	index  int
	buffer device.Buffer
}

var (
	_ engine.NormSync          = (*DDP)(nil)
	_ engine.ReductionReporter = (*DDP)(nil)
)

// NewDDP returns a DDP that exchanges through group. If ctx ends, so do operations in
// progress. In a group of one rank, DDP does nothing.
func NewDDP(ctx context.Context, group collective.Group) *DDP {
	d := &DDP{group: group}
	d.ctx, d.cancel = context.WithCancel(ctx)
	d.changed.L = &d.mu
	if group.Size() > 1 {
		d.worker.Go(d.serve)
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
	d.begin()
	d.queue = append(d.queue, bucket{i, b})
	d.pending++
	d.changed.Broadcast()
	return nil
}

// begin records that something was queued. The caller holds the lock.
func (d *DDP) begin() {
	if d.stats.First.IsZero() {
		d.stats.First = time.Now()
	}
	if d.waited {
		d.reduced, d.waited = d.reduced[:0], false
	}
}

// ShareStatistics returns the statistics of all workers, by rank. It first waits until
// all queued buckets are reduced.
func (d *DDP) ShareStatistics(own []float64) ([]float64, error) {
	n := d.group.Size()
	if n == 1 {
		return own, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errors.New("the strategy is closed")
	}
	d.begin()
	if err := d.drain(); err != nil {
		return nil, err
	}
	d.all = slices.Grow(d.all[:0], n*len(own))[:n*len(own)]
	copy(d.all[d.group.Rank()*len(own):], own)
	d.err = d.exchange(-1, func() error { return d.group.AllGather(d.ctx, device.Buffer{F64: d.all}) })
	d.stats.Shared++
	d.stats.Bytes += 8 * len(own)
	d.changed.Broadcast()
	return d.all, d.err
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

// drain returns when all queued buckets are reduced. The caller holds the lock, which
// drain releases while an operation is in the collective.
func (d *DDP) drain() error {
	for d.pending > 0 {
		if len(d.queue) > 0 && !d.busy {
			d.next()
			continue
		}
		d.changed.Wait()
	}
	return d.err
}

// Reduced returns the times during which the buckets before the last Wait were in the
// collective.
func (d *DDP) Reduced() []engine.Reduction {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reduced
}

// Capturable reports false, because the exchange runs on the host, except in a group of
// one rank, which exchanges nothing.
func (d *DDP) Capturable() bool { return d.group.Size() == 1 }

// Stats returns the exchange since its last call. Call it after Wait.
func (d *DDP) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	d.stats = Stats{}
	return s
}

// Close cancels operations in progress and waits for their end. The group remains open.
func (d *DDP) Close() error {
	d.mu.Lock()
	d.closed = true
	d.changed.Broadcast()
	d.mu.Unlock()
	d.cancel()
	d.worker.Wait()
	return nil
}

// serve reduces the queued buckets one after the other until Close.
func (d *DDP) serve() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		for len(d.queue) == 0 || d.busy {
			if d.closed && !d.busy {
				return
			}
			d.changed.Wait()
		}
		d.next()
	}
}

// next reduces the first bucket of the queue.
func (d *DDP) next() {
	b := d.queue[0]
	d.queue = d.queue[1:]
	if d.err == nil {
		d.err = d.exchange(b.index, func() error { return d.reduce(b) })
		d.stats.Buckets++
		d.stats.Bytes += b.buffer.Bytes()
	}
	d.pending--
	d.changed.Broadcast()
}

// exchange runs one operation of the group. The caller holds the lock, which exchange
// releases during the operation; busy keeps other operations out meanwhile.
func (d *DDP) exchange(bucket int, operation func() error) error {
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

// divide divides by n. A product with 1/n gives the same bits when n is a
// power of two, and is faster.
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
