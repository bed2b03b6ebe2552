package data

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"lockstep/pkg/data/internal/pool"
	"lockstep/pkg/data/internal/window"
)

// Values of LoaderOptions.Kind.
const (
	LoaderLowMem    = "lowmem"    // a sample is read each time that it is needed
	LoaderInMem     = "inmem"     // a sample is kept in memory after it was read
	LoaderSynthetic = "synthetic" // the first batch is loaded once and repeated in every step
)

const maxLoaderWorkers = 256

// LoaderOptions configures how batches are prepared.
type LoaderOptions struct {
	Kind     string `yaml:"kind,omitempty" json:"kind,omitempty"` // lowmem, inmem or synthetic; empty: lowmem
	Workers  int    `yaml:"workers" json:"workers"`               // number of goroutines that prepare batches in advance; 0: Next loads each batch
	Prefetch int    `yaml:"prefetch" json:"prefetch"`             // number of batches prepared in advance; values below Workers mean Workers
	// Order is the order of the stages shuffle, shard, cache, batch, map (augmentation)
	// and prefetch; empty: DefaultOrder. Effects of other orders:
	//
	//   - shard before shuffle: each rank has the same samples in all epochs;
	//   - no shuffle: samples are in ascending order;
	//   - shuffle after batch: the batches have the same samples in all epochs, and
	//     only the order of the batches changes;
	//   - cache: samples are kept in memory;
	//   - cache after map: samples are kept as augmented in epoch 0;
	//   - cache after batch and map: complete batches of epoch 0 are kept;
	//   - no map: no augmentation;
	//   - map before batch: all goroutines load samples of the same batch, so that it is
	//     ready earlier; otherwise each goroutine prepares a separate batch;
	//   - no prefetch: batches are not prepared in advance.
	Order   []string `yaml:"order,omitempty" json:"order,omitempty"`
	Augment Augment  `yaml:"augment" json:"augment"`
	Seed    int64    `yaml:"seed" json:"seed"` // seed of augmentation
	// IgnoreOutside sets the target of pixels from outside a rotated or scaled sample to Ignored,
	// for networks with several classes. If it is false, the target is 0, which is background.
	IgnoreOutside bool `yaml:"ignore_outside,omitempty" json:"ignore_outside,omitempty"`
}

// outsideTarget returns the target of pixels from outside a rotated or scaled sample.
func (c LoaderOptions) outsideTarget() float32 {
	if c.IgnoreOutside {
		return Ignored
	}
	return 0
}

// Validate returns an error for the first invalid field.
func (c LoaderOptions) Validate() error {
	switch {
	case !slices.Contains([]string{"", LoaderLowMem, LoaderInMem, LoaderSynthetic}, c.Kind):
		return fmt.Errorf("validate loader: unknown kind %q: use lowmem, inmem or synthetic", c.Kind)
	case c.Workers < 0 || c.Workers > maxLoaderWorkers:
		return fmt.Errorf("validate loader: workers is %d: use 0 (load each batch when it is needed) to %d", c.Workers, maxLoaderWorkers)
	case c.Prefetch < 0:
		return fmt.Errorf("validate loader: prefetch is %d: use 0 or more batches", c.Prefetch)
	}
	if _, err := parseOrder(c.Order); err != nil {
		return fmt.Errorf("validate loader: order: %w", err)
	}
	return c.Augment.Validate()
}

// Batch contains the samples of one worker in one step. Its slices are valid until the next call of
// Next or Close.
type Batch struct {
	Image   []float32 // [batch, ImageShape...]; a picture's values are in [0,1]
	Target  []float32 // [batch, TargetShape...]: 0 or 1 (mask), values of a field, or the index of a class
	Indices []int     // indices of the samples in the data set
	Padding int       // number of samples at the end that repeat others to fill the batch
}

// ValidCount returns the number of samples before the padding at the end of the batch.
func (b Batch) ValidCount() int { return len(b.Indices) - b.Padding }

// batchSampler determines the sample indices of one rank's batches. It is a *Sampler for training,
// and an *evaluationShard for evaluation.
type batchSampler interface {
	Steps() int               // batches per epoch
	Epoch(e int) [][]int      // sample indices of each batch
	stepPadding(step int) int // number of padding samples at the end of the step's batch
}

// Loader prepares the batches of one rank in advance. Their order and contents do not depend on the
// number of goroutines. Its methods may be called from several goroutines.
type Loader struct {
	ds         Dataset
	sampler    batchSampler
	batch      int
	c          LoaderOptions
	p          loaderPipeline
	cache      loaderCache
	workerPool pool.Pool

	mu     sync.Mutex
	closed bool
	active map[*Iterator]struct{}
	spare  []*batchBuffer
}

// NewLoader returns a loader of training batches. If c.Order is not empty, it overrides the
// sampler's options ShuffleBatches and ShardFirst, and Shuffle if the order has no stage shuffle.
func NewLoader(ds Dataset, sampler *Sampler, c LoaderOptions) (*Loader, error) {
	sc := sampler.Config()
	if sc.Samples != ds.Len() {
		return nil, fmt.Errorf("make loader: sampler is configured for %d samples, but the data set has %d", sc.Samples, ds.Len())
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

func newLoader(ds Dataset, d batchSampler, batch int, c LoaderOptions) (*Loader, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	p, err := parseOrder(c.Order)
	if err != nil {
		return nil, err
	}
	if !p.augment {
		// Without the stage map, samples are cropped but not augmented otherwise.
		c.Augment = Augment{Crop: c.Augment.Crop}
	}
	if err := c.Augment.checkShapes(ds.ImageShape(), ds.TargetShape()); err != nil {
		return nil, fmt.Errorf("make loader: %w", err)
	}
	if c.Kind == LoaderInMem || p.cache == cacheSamples {
		ds = InMemory(ds)
		n := ds.Len()
		if s, ok := d.(*Sampler); ok && s.Config().ShardFirst { // this rank only reads its share
			n = (n + s.Config().World - 1) / s.Config().World
		}
		if err := checkFitsInMemory(ds, n); err != nil {
			return nil, fmt.Errorf("make loader: %w", err)
		}
	}
	if !p.prefetch || c.Kind == LoaderSynthetic {
		if c.Prefetch = 0; !p.bySample {
			c.Workers = 0
		}
	}
	return &Loader{ds: ds, sampler: d, batch: batch, c: c, p: p, active: map[*Iterator]struct{}{}}, nil
}

// Steps returns the number of batches per epoch.
func (l *Loader) Steps() int { return l.sampler.Steps() }

// ImageShape returns the shape of a sample's image after augmentation and crop.
func (l *Loader) ImageShape() []int { return l.c.Augment.outputShape(l.ds.ImageShape()) }

// TargetShape returns the shape of a sample's target after augmentation.
func (l *Loader) TargetShape() []int {
	ts := l.ds.TargetShape()
	if !window.AreShapesAligned(l.ds.ImageShape(), ts) {
		return slices.Clone(ts)
	}
	return l.c.Augment.outputShape(ts)
}

// Epoch starts to load epoch e (from 0). The caller must close the iterator or read it to its end.
func (l *Loader) Epoch(ctx context.Context, e int) *Iterator { return l.EpochFrom(ctx, e, 0) }

// EpochFrom is like Epoch, but skips the given number of steps (0 to Steps()). The remaining batches
// equal those of the complete epoch, so a checkpoint needs only the epoch and the step to resume.
func (l *Loader) EpochFrom(ctx context.Context, e, step int) *Iterator {
	ctx, cancel := context.WithCancel(ctx)
	batches := l.sampler.Epoch(e)
	if l.p.cache == cacheBatches && !l.p.shuffleBatches {
		batches = l.sampler.Epoch(0) // the batches of epoch 0 are cached
	}
	if l.c.Kind == LoaderSynthetic && len(batches) > 0 {
		e, batches = 0, slices.Repeat(l.sampler.Epoch(0)[:1], len(batches))
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
	it.startGoroutines()
	return it
}

// Close ends all iterations and waits for their goroutines. Later iterators return an error.
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
	l.workerPool.Close()
}

func (l *Loader) stepPadding(step int) int {
	if l.c.Kind == LoaderSynthetic {
		step = 0
	}
	return l.sampler.stepPadding(step)
}

type batchBuffer struct {
	image, target []float32
	scratch       []sampleScratch // one per goroutine that fills the buffer
}

// sampleScratch is memory for one sample before augmentation.
type sampleScratch struct{ image, target []float32 }

// acquireBuffer returns an unused or a new buffer. The caller holds l.mu.
func (l *Loader) acquireBuffer() *batchBuffer {
	if n := len(l.spare); n > 0 {
		b := l.spare[n-1]
		l.spare = l.spare[:n-1]
		return b
	}
	image, target := window.ElementCount(l.ImageShape()), window.ElementCount(l.TargetShape())
	b := &batchBuffer{image: make([]float32, l.batch*image), target: make([]float32, l.batch*target), scratch: make([]sampleScratch, l.goroutinesPerBatch())}
	for i := range b.scratch {
		b.scratch[i] = sampleScratch{make([]float32, image), make([]float32, target)}
	}
	return b
}

// goroutinesPerIterator returns the number of goroutines of an iterator that prepare batches, each a
// different one. If it is 0, Next loads the batches.
func (l *Loader) goroutinesPerIterator() int {
	switch {
	case l.p.bySample && l.c.Prefetch > 0 && l.c.Workers > 0:
		return 1 // the other workers help to fill its batch (see goroutinesPerBatch)
	case l.p.bySample:
		return 0
	}
	return l.c.Workers
}

// goroutinesPerBatch returns how many goroutines load samples of the same batch.
func (l *Loader) goroutinesPerBatch() int {
	if l.p.bySample {
		return min(max(1, l.c.Workers), l.batch)
	}
	return 1
}

// releaseBuffers takes back the buffers of an iterator that has ended.
func (l *Loader) releaseBuffers(it *Iterator, buffers []*batchBuffer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.active, it)
	if !l.closed {
		l.spare = append(l.spare, buffers...)
	}
}
