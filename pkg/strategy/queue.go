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

// bucketQueue is the part of a step that is the same for all strategies on the host. It is the
// engine.GradSync that a strategy passes to the executable. It exchanges the buckets by the
// strategy's operation, usually one by one in the order in which ReduceBucket was called: in a
// separate goroutine during the backward pass, in Wait, in ShareStatistics or in runGroupOperation. The
// last two first drain the queue, so that all ranks call the operations of the group in the same
// order, however fast each rank is. Nothing else may use the group between a step's first
// ReduceBucket or ShareStatistics and its Wait.
type bucketQueue struct {
	accumulation

	ctx    context.Context
	cancel context.CancelFunc
	group  collective.Group
	// exchange exchanges the gradients of some of the waiting buckets between the ranks. It is nil
	// if the strategy does not exchange gradients.
	exchange func() ([]completedExchange, error)
	// silent is true if batch norms do not exchange their statistics either.
	silent bool

	mu            sync.Mutex
	changed       sync.Cond
	waiting       []gradientBucket // not exchanged yet, in the order of ReduceBucket
	draining      bool             // drain is running: the executable queues no bucket before it returns
	busy          bool             // an operation of the group is running
	err           error
	closed        bool
	stats         Stats
	reduced       []engine.Reduction // buckets exchanged since the last Wait
	waited        bool               // nothing was queued since the last Wait
	worker        sync.WaitGroup
	allStatistics []float64 // statistics of all workers, by rank
}

// gradientBucket is a gradient bucket that waits for its exchange.
type gradientBucket struct {
	index  int
	buffer device.Buffer
}

// completedExchange describes an operation that has exchanged gradients.
type completedExchange struct {
	buckets []int // buckets that are now exchanged; empty: the ranks have only negotiated
	begin   time.Time
	took    time.Duration
	bytes   int // what this worker contributed
}

// Special values of the parameter bucket of runGroupOperation.
const (
	onStatistics = -1 // as in engine.Reduction
	betweenSteps = -2 // not part of a step's reductions
)

// newBucketQueue returns a queue that calls one to exchange a bucket. one is nil if the strategy
// does not exchange gradients, and is not called in a group of one rank. If ctx is canceled,
// operations in progress are canceled too.
func newBucketQueue(ctx context.Context, group collective.Group, one func(q *bucketQueue, b gradientBucket) error) *bucketQueue {
	if one == nil {
		return newNegotiatingQueue(ctx, group, nil)
	}
	return newNegotiatingQueue(ctx, group, func(q *bucketQueue) ([]completedExchange, error) {
		return exchangeFirstBucket(q, func(q *bucketQueue, b gradientBucket) (int, error) { return b.buffer.Bytes(), one(q, b) })
	})
}

// exchangeFirstBucket calls one to exchange the first waiting bucket. one returns the number of
// bytes that this worker contributes.
func exchangeFirstBucket(q *bucketQueue, one func(q *bucketQueue, b gradientBucket) (int, error)) ([]completedExchange, error) {
	q.mu.Lock()
	b := q.waiting[0]
	q.mu.Unlock()
	collective.SetBucket(q.group, b.index)
	begin := time.Now()
	bytes, err := one(q, b)
	if err != nil {
		err = fmt.Errorf("reduce gradient bucket %d: %w", b.index, err)
	}
	return []completedExchange{{buckets: []int{b.index}, begin: begin, took: time.Since(begin), bytes: bytes}}, err
}

// newNegotiatingQueue is like newBucketQueue, for a strategy that chooses which of the waiting
// buckets it exchanges next. some is called while there are waiting buckets, which it gets from
// waitingBuckets.
func newNegotiatingQueue(ctx context.Context, group collective.Group, some func(q *bucketQueue) ([]completedExchange, error)) *bucketQueue {
	q := &bucketQueue{group: group}
	q.ctx, q.cancel = context.WithCancel(ctx)
	q.changed.L = &q.mu
	if some != nil && group.Size() > 1 {
		q.exchange = func() ([]completedExchange, error) { return some(q) }
		q.worker.Go(q.exchangeUntilClosed)
	}
	return q
}

// waitingBuckets returns the buckets that are not exchanged yet. complete is true if the executable
// waits for them, so that it queues no further bucket until they are exchanged.
func (q *bucketQueue) waitingBuckets() (waiting []gradientBucket, complete bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.waiting), q.draining
}

func (q *bucketQueue) Name() string { return q.group.Name() }

// ReduceBucket queues the exchange of bucket i and returns at once. The caller must not use
// b until Wait has returned.
func (q *bucketQueue) ReduceBucket(i int, b device.Buffer, _ device.Stream) error {
	if q.exchange == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return fmt.Errorf("reduce bucket %d: the strategy is closed", i)
	}
	if q.err != nil {
		return q.err
	}
	q.markQueued()
	q.waiting = append(q.waiting, gradientBucket{i, b})
	q.changed.Broadcast()
	return nil
}

// markQueued records that a bucket or statistics were queued. The caller must hold q.mu.
func (q *bucketQueue) markQueued() {
	if q.stats.First.IsZero() {
		q.stats.First = time.Now()
	}
	if q.waited {
		q.reduced, q.waited = q.reduced[:0], false
	}
}

// ShareStatistics returns the concatenated statistics of all workers, in the order of their
// ranks. own contains the statistics of this worker. It first waits until all queued buckets
// are exchanged.
func (q *bucketQueue) ShareStatistics(own []float64) ([]float64, error) {
	n := q.group.Size()
	if n == 1 || q.silent {
		return own, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, errors.New("share batch norm statistics: the strategy is closed")
	}
	q.markQueued()
	if err := q.exchangeQueuedBuckets(); err != nil {
		return nil, err
	}
	q.allStatistics = slices.Grow(q.allStatistics[:0], n*len(own))[:n*len(own)]
	copy(q.allStatistics[q.group.Rank()*len(own):], own)
	q.err = q.runGroupOperation(onStatistics, func() error { return q.group.AllGather(q.ctx, device.Buffer{F64: q.allStatistics}) })
	q.stats.Shared++
	q.stats.Bytes += 8 * len(own)
	q.changed.Broadcast()
	return q.allStatistics, q.err
}

// exchangeBetweenSteps exchanges something other than gradients between two steps, such as
// parameters. It calls exchange after all queued buckets are exchanged. size is the number of bytes
// that this worker contributes. After an error, all methods return this error.
func (q *bucketQueue) exchangeBetweenSteps(size int, exchange func(ctx context.Context) error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errors.New("exchange parameters: the strategy is closed")
	}
	if q.stats.First.IsZero() {
		q.stats.First = time.Now()
	}
	if err := q.exchangeQueuedBuckets(); err != nil {
		return err
	}
	q.err = q.runGroupOperation(betweenSteps, func() error { return exchange(q.ctx) })
	q.stats.Bytes += size
	q.changed.Broadcast()
	return q.err
}

// measureExchange calls exchange, which must not use the queue, and adds its duration to the
// statistics.
func (q *bucketQueue) measureExchange(exchange func() error) (time.Duration, error) {
	begin := time.Now()
	err := exchange()
	took := time.Since(begin)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stats.First.IsZero() {
		q.stats.First = begin
	}
	q.stats.AllReduce += took
	return took, err
}

// Wait returns when every queued bucket is exchanged. After an error, every further call
// returns that error, because the workers are no longer synchronized. Wait exchanges the
// buckets that are still in the queue itself: no computation remains that could overlap with
// them, and waking the other goroutine would cost time.
func (q *bucketQueue) Wait() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.exchangeQueuedBuckets()
	q.waited = true
	return err
}

// exchangeQueuedBuckets returns when all queued buckets are exchanged. It exchanges buckets itself unless
// the other goroutine is doing so. The caller must hold q.mu, which drain releases during
// each operation of the group.
func (q *bucketQueue) exchangeQueuedBuckets() error {
	q.draining = true
	for len(q.waiting) > 0 {
		if q.busy {
			q.changed.Wait()
			continue
		}
		q.exchangeWaitingBuckets()
	}
	q.draining = false
	return q.err
}

// Reduced returns the start and the duration of every exchange of buckets or batch norm
// statistics between the last two calls of Wait. Call it after Wait.
func (q *bucketQueue) Reduced() []engine.Reduction {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.reduced
}

// Capabilities reports that exchanges run on the host. A group of one rank has nothing to exchange.
func (q *bucketQueue) Capabilities() engine.SyncCapabilities {
	return engine.SyncCapabilities{Enqueues: q.group.Size() == 1, ShareStatistics: q.ShareStatistics, Reduced: q.Reduced}
}

// Stats returns statistics of the exchange since the previous call of Stats. Call it after
// Wait.
func (q *bucketQueue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.stats
	q.stats = Stats{}
	return s
}

// Close cancels operations in progress and returns when they have ended. It does not close the
// group.
func (q *bucketQueue) Close() error {
	q.mu.Lock()
	q.closed = true
	q.changed.Broadcast()
	q.mu.Unlock()
	q.cancel()
	q.worker.Wait()
	return nil
}

func (q *bucketQueue) exchangeUntilClosed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for len(q.waiting) == 0 || q.busy {
			if q.closed && !q.busy {
				return
			}
			q.changed.Wait()
		}
		q.exchangeWaitingBuckets()
	}
}

// exchangeWaitingBuckets lets the strategy exchange some of the waiting buckets. After an error, no
// more buckets are exchanged. The caller must hold q.mu, which exchangeWaitingBuckets releases
// during the operations of the group.
func (q *bucketQueue) exchangeWaitingBuckets() {
	if q.err == nil {
		q.busy = true
		q.mu.Unlock()
		done, err := q.exchange()
		collective.SetBucket(q.group, betweenSteps)
		q.mu.Lock()
		q.busy, q.err = false, err
		for _, x := range done {
			q.recordExchange(x)
		}
	}
	if q.err != nil {
		q.waiting = nil
	}
	q.changed.Broadcast()
}

// recordExchange adds x to the statistics and removes its buckets from the queue. The caller must
// hold q.mu.
func (q *bucketQueue) recordExchange(x completedExchange) {
	q.stats.AllReduce += x.took
	q.stats.Bytes += x.bytes
	q.stats.Buckets += len(x.buckets)
	for _, b := range x.buckets {
		q.reduced = append(q.reduced, engine.Reduction{Bucket: b, Begin: x.begin, Took: x.took})
		if i := slices.IndexFunc(q.waiting, func(w gradientBucket) bool { return w.index == b }); i >= 0 {
			q.waiting = slices.Delete(q.waiting, i, i+1)
		}
	}
}

// runGroupOperation calls operation, which runs an operation of the group on something other than
// gradients, and records its duration. bucket is onStatistics or betweenSteps. The caller must hold
// q.mu, which runGroupOperation releases during operation; q.busy prevents other operations during that
// time.
func (q *bucketQueue) runGroupOperation(bucket int, operation func() error) error {
	q.busy = true
	q.mu.Unlock()
	collective.SetBucket(q.group, bucket)
	begin := time.Now()
	err := operation()
	took := time.Since(begin)
	collective.SetBucket(q.group, betweenSteps)
	q.mu.Lock()
	q.busy = false
	q.stats.AllReduce += took
	if bucket != betweenSteps {
		q.reduced = append(q.reduced, engine.Reduction{Bucket: bucket, Begin: begin, Took: took})
	}
	return err
}
