package data

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Kinds of a loader.
const (
	LoaderLowMem    = "lowmem"    // each sample is read when it is needed
	LoaderInMem     = "inmem"     // each sample is kept in memory after its first use
	LoaderSynthetic = "synthetic" // the first batch is repeated: nothing else is loaded
)

// maxWorkers limits the number of goroutines of a loader.
const maxWorkers = 256

// LoaderOptions configures how batches are prepared.
type LoaderOptions struct {
	Kind     string `yaml:"kind,omitempty" json:"kind,omitempty"` // lowmem (as empty), inmem or synthetic
	Workers  int    `yaml:"workers" json:"workers"`               // goroutines that prepare batches ahead, reused in all epochs; 0: Next prepares each batch
	Prefetch int    `yaml:"prefetch" json:"prefetch"`             // batches prepared ahead, at least as many as Workers
	// Order is the sequence of the stages shuffle, shard, cache, batch, map
	// (augmentation) and prefetch; empty: DefaultOrder. Effects of other orders:
	//
	//   - shard before shuffle: each rank keeps its share for all epochs;
	//   - no shuffle: ascending order; shuffle after batch: batches keep their
	//     samples and change their order;
	//   - cache: samples are kept in memory; after map, as augmented in epoch 0;
	//     after batch and map, complete batches of epoch 0 are kept;
	//   - no map: no augmentation; map before batch: all goroutines load the
	//     samples of one batch together, so that it is ready earlier; otherwise each
	//     prepares one batch;
	//   - no prefetch: nothing is prepared ahead.
	Order   []string `yaml:"order,omitempty" json:"order,omitempty"`
	Augment Augment  `yaml:"augment" json:"augment"`
	Seed    int64    `yaml:"seed" json:"seed"` // seed of augmentation
}

// Validate returns an error for the first invalid field.
func (c LoaderOptions) Validate() error {
	switch {
	case !slices.Contains([]string{"", LoaderLowMem, LoaderInMem, LoaderSynthetic}, c.Kind):
		return fmt.Errorf("validate loader: kind %q is not known: use lowmem, inmem or synthetic", c.Kind)
	case c.Workers < 0 || c.Workers > maxWorkers:
		return fmt.Errorf("validate loader: workers is %d: use 0 (to load in step) to %d", c.Workers, maxWorkers)
	case c.Prefetch < 0:
		return fmt.Errorf("validate loader: prefetch is %d: use 0 or more batches", c.Prefetch)
	}
	if _, err := parseOrder(c.Order); err != nil {
		return fmt.Errorf("validate loader: order: %w", err)
	}
	return c.Augment.Validate()
}

// Batch contains the samples that a worker trains on in one step. Its slices are reused:
// they are valid until the next call of Next or Close.
type Batch struct {
	Image   []float32 // [batch, ImageShape...]; a picture's values are in [0,1]
	Target  []float32 // [batch, TargetShape...]: 0 or 1 (mask), values of a field, or the index of a class
	Indices []int     // indices of the samples in the data set
	Padding int       // samples at the end that repeat others to fill the batch
}

// Valid returns the number of samples that are not padding. They come before the
// padding.
func (b Batch) Valid() int { return len(b.Indices) - b.Padding }

// dealer determines the samples of each batch of one rank. Sampler and shard implement
// it.
type dealer interface {
	Steps() int
	Epoch(e int) [][]int
	paddingOf(step int) int
}

// Loader prepares the batches of one rank before they are needed. Their order and
// contents do not depend on the number of goroutines. Its methods may be called from
// several goroutines.
type Loader struct {
	ds         Dataset
	dealer     dealer
	batch      int
	c          LoaderOptions
	p          pipeline
	kept       store
	workerPool workerPool

	mu     sync.Mutex
	closed bool
	active map[*Iterator]struct{}
	spare  []*buffer
}

// NewLoader returns a loader of training batches. If c.Order is not empty, its stages
// replace ShuffleBatches and ShardFirst of the sampler, and an order without the stage
// shuffle disables Shuffle.
func NewLoader(ds Dataset, sampler *Sampler, c LoaderOptions) (*Loader, error) {
	sc := sampler.Config()
	if sc.Samples != ds.Len() {
		return nil, fmt.Errorf("make loader: the sampler is for %d samples, the data set has %d", sc.Samples, ds.Len())
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if len(c.Order) > 0 {
		p, err := parseOrder(c.Order)
		if err != nil {
			return nil, err
		}
		sc.Shuffle, sc.ShuffleBatches, sc.ShardFirst = p.shuffle && sc.Shuffle, p.shuffleBatches, p.shardFirst
		if sampler, err = NewSampler(sc); err != nil {
			return nil, err
		}
	}
	return newLoader(ds, sampler, sc.BatchPerWorker, c)
}

func newLoader(ds Dataset, d dealer, batch int, c LoaderOptions) (*Loader, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	p, err := parseOrder(c.Order)
	if err != nil {
		return nil, err
	}
	if !p.augment {
		// Without the stage map nothing is augmented, but samples still have the crop's size.
		c.Augment = Augment{Crop: c.Augment.Crop}
	}
	if err := c.Augment.fits(ds.ImageShape(), ds.TargetShape()); err != nil {
		return nil, fmt.Errorf("make loader: %w", err)
	}
	if c.Kind == LoaderInMem || p.cache == cacheSamples {
		ds = InMemory(ds)
		n := ds.Len()
		if s, ok := d.(*Sampler); ok && s.Config().ShardFirst { // the other ranks read the other samples
			n = (n + s.Config().World - 1) / s.Config().World
		}
		if err := checkKept(ds, n); err != nil {
			return nil, fmt.Errorf("make loader: %w", err)
		}
	}
	if !p.prefetch || c.Kind == LoaderSynthetic {
		if c.Prefetch = 0; !p.bySample {
			c.Workers = 0
		}
	}
	return &Loader{ds: ds, dealer: d, batch: batch, c: c, p: p, active: map[*Iterator]struct{}{}}, nil
}

// Steps returns the number of batches per epoch.
func (l *Loader) Steps() int { return l.dealer.Steps() }

// ImageShape returns the shape of a sample's image after augmentation: the size of the
// crop if Augment.Crop is set.
func (l *Loader) ImageShape() []int { return l.c.Augment.delivered(l.ds.ImageShape()) }

// TargetShape returns the shape of a sample's target after augmentation.
func (l *Loader) TargetShape() []int {
	ts := l.ds.TargetShape()
	if !aligned(l.ds.ImageShape(), ts) {
		return slices.Clone(ts)
	}
	return l.c.Augment.delivered(ts)
}

// Epoch starts to load the batches of epoch e (from 0). The caller must close the
// iterator or read it to its end.
func (l *Loader) Epoch(ctx context.Context, e int) *Iterator { return l.EpochFrom(ctx, e, 0) }

// EpochFrom does the same as Epoch, but skips the first step batches (0 to Steps()). The
// batches that follow are the same as in the complete epoch. So a checkpoint needs only
// epoch and step to continue.
func (l *Loader) EpochFrom(ctx context.Context, e, step int) *Iterator {
	ctx, cancel := context.WithCancel(ctx)
	batches := l.dealer.Epoch(e)
	if l.p.cache == cacheBatches && !l.p.shuffleBatches {
		batches = l.dealer.Epoch(0) // the batches of epoch 0 are cached
	}
	if l.c.Kind == LoaderSynthetic && len(batches) > 0 {
		e, batches = 0, slices.Repeat(l.dealer.Epoch(0)[:1], len(batches))
	}
	it := &Iterator{loader: l, epoch: e, ctx: ctx, cancel: cancel, batches: batches, next: step}
	it.claimed.Store(int64(step))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		cancel()
		it.err, it.ended = errors.New("load batches: the loader is closed"), true
		return it
	}
	l.active[it] = struct{}{}
	it.start()
	return it
}

// Close ends all iterations and waits for their goroutines.
func (l *Loader) Close() {
	l.mu.Lock()
	l.closed = true
	var its []*Iterator
	for it := range l.active {
		its = append(its, it)
	}
	l.mu.Unlock()
	for _, it := range its {
		it.stop()
	}
	l.workerPool.close()
}

// paddingOf returns the number of padding samples in the batch of a step.
func (l *Loader) paddingOf(step int) int {
	if l.c.Kind == LoaderSynthetic {
		step = 0
	}
	return l.dealer.paddingOf(step)
}

// buffer is the memory of one batch.
type buffer struct {
	image, target []float32
	scratch       []scratch // one for each goroutine that fills it
}

// scratch is memory for one sample before augmentation.
type scratch struct{ image, target []float32 }

// takeBuffer returns a spare buffer or allocates one. The caller holds l.mu.
func (l *Loader) takeBuffer() *buffer {
	if n := len(l.spare); n > 0 {
		b := l.spare[n-1]
		l.spare = l.spare[:n-1]
		return b
	}
	image, target := volume(l.ImageShape()), volume(l.TargetShape())
	b := &buffer{image: make([]float32, l.batch*image), target: make([]float32, l.batch*target), scratch: make([]scratch, l.goroutinesPerBatch())}
	for i := range b.scratch {
		b.scratch[i] = scratch{make([]float32, image), make([]float32, target)}
	}
	return b
}

// goroutines returns the number of goroutines that each prepare one batch.
func (l *Loader) goroutines() int {
	switch {
	case l.p.bySample && l.c.Prefetch > 0 && l.c.Workers > 0:
		return 1 // the others help it to fill the batch
	case l.p.bySample:
		return 0
	}
	return l.c.Workers
}

// goroutinesPerBatch returns the number of goroutines that fill one batch.
func (l *Loader) goroutinesPerBatch() int {
	if l.p.bySample {
		return min(max(1, l.c.Workers), l.batch)
	}
	return 1
}

// release returns an ended iterator's buffers to the loader.
func (l *Loader) release(it *Iterator, buffers []*buffer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.active, it)
	if !l.closed {
		l.spare = append(l.spare, buffers...)
	}
}
