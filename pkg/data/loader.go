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
	LoaderInMem     = "inmem"     // each sample is kept in memory once it was read
	LoaderSynthetic = "synthetic" // the first batch again and again: no loading at all
)

// maxWorkers bounds the goroutines of a loader.
const maxWorkers = 256

// LoaderOptions says how batches are prepared.
type LoaderOptions struct {
	Kind     string `yaml:"kind,omitempty" json:"kind,omitempty"` // lowmem (as empty), inmem or synthetic
	Workers  int    `yaml:"workers" json:"workers"`               // goroutines that prepare batches ahead, the same ones over all epochs; 0: each batch is prepared when it is asked for
	Prefetch int    `yaml:"prefetch" json:"prefetch"`             // batches ready ahead; at least as many as workers are kept
	// Order is the sequence of the stages shuffle, shard, cache, batch, map
	// (augmentation) and prefetch; empty: DefaultOrder. What it changes:
	//
	//   - shard before shuffle: each rank keeps its share for all epochs;
	//   - no shuffle: ascending order; shuffle behind batch: batches keep their
	//     samples and change their order;
	//   - cache: samples are kept in memory, behind map as they are in epoch 0,
	//     behind batch and map whole batches of epoch 0;
	//   - no map: no augmentation; map before batch: the goroutines share the
	//     samples of one batch, so that it is ready earlier, rather than preparing a
	//     batch each;
	//   - no prefetch: nothing is prepared ahead.
	Order   []string `yaml:"order,omitempty" json:"order,omitempty"`
	Augment Augment  `yaml:"augment" json:"augment"`
	Seed    int64    `yaml:"seed" json:"seed"` // of augmentation
}

// Validate reports the first value that cannot be.
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

// Batch is what a worker trains on in one step. Its slices are reused: they
// hold until the next call of Next or Close.
type Batch struct {
	Image   []float32 // [batch, ImageShape...], a picture's values of 0 to 1
	Target  []float32 // [batch, TargetShape...]: a mask's 0 or 1, a field's values, a class's index
	Indices []int     // of the samples in the data set
	Padding int       // samples at the end that repeat others to fill the batch
}

// Valid is the number of samples that are not padding; they come first.
func (b Batch) Valid() int { return len(b.Indices) - b.Padding }

// dealer gives the batches of one rank. Sampler and shard are dealers.
type dealer interface {
	Steps() int
	Epoch(e int) [][]int
	paddingOf(step int) int
}

// Loader prepares the batches of one rank, ahead of their use and in an order
// and with contents that do not depend on how many goroutines do it. Its
// methods may be called from several goroutines.
type Loader struct {
	ds     Dataset
	dealer dealer
	batch  int
	c      LoaderOptions
	p      pipeline
	kept   store
	crew   crew

	mu     sync.Mutex
	closed bool
	active map[*Iterator]struct{}
	spare  []*buffer
}

// NewLoader is a loader of training batches. Where c.Order shuffles, shards or
// leaves shuffling out, that holds, else what sampler was made with.
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
		// Without its stage nothing varies, but samples keep the size that is asked for.
		c.Augment = Augment{Crop: c.Augment.Crop}
	}
	if err := c.Augment.fits(ds.ImageShape(), ds.TargetShape()); err != nil {
		return nil, fmt.Errorf("make loader: %w", err)
	}
	if c.Kind == LoaderInMem || p.cache == cacheSamples {
		ds = InMemory(ds)
		n := ds.Len()
		if s, ok := d.(*Sampler); ok && s.Config().ShardFirst { // the other ranks read the rest
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

// Steps is the number of batches in an epoch.
func (l *Loader) Steps() int { return l.dealer.Steps() }

// ImageShape is the shape of a sample's image as it is delivered: the crop's
// size where augmentation crops.
func (l *Loader) ImageShape() []int { return l.c.Augment.delivered(l.ds.ImageShape()) }

// TargetShape is the shape of a sample's target as it is delivered.
func (l *Loader) TargetShape() []int {
	ts := l.ds.TargetShape()
	if !aligned(l.ds.ImageShape(), ts) {
		return slices.Clone(ts)
	}
	return l.c.Augment.delivered(ts)
}

// Epoch starts loading the batches of epoch e (from 0). Close the iterator
// when done with it, or read it to its end.
func (l *Loader) Epoch(ctx context.Context, e int) *Iterator { return l.EpochFrom(ctx, e, 0) }

// EpochFrom is Epoch without its first batches, step of them (0 to Steps()).
// Those that follow are the same as in the whole epoch, so that epoch and step
// are all that a checkpoint needs to go on from here.
func (l *Loader) EpochFrom(ctx context.Context, e, step int) *Iterator {
	ctx, cancel := context.WithCancel(ctx)
	batches := l.dealer.Epoch(e)
	if l.p.cache == cacheBatches && !l.p.shuffleBatches {
		batches = l.dealer.Epoch(0) // which are those that are kept
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

// Close ends every iteration that still goes on and waits for its goroutines.
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
	l.crew.close()
}

// paddingOf is how many samples of a batch are padding.
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

// scratch is one sample before it is turned.
type scratch struct{ image, target []float32 }

// take returns a spare or new buffer; l.mu is held.
func (l *Loader) take() *buffer {
	if n := len(l.spare); n > 0 {
		b := l.spare[n-1]
		l.spare = l.spare[:n-1]
		return b
	}
	image, target := volume(l.ImageShape()), volume(l.TargetShape())
	b := &buffer{image: make([]float32, l.batch*image), target: make([]float32, l.batch*target), scratch: make([]scratch, l.hands())}
	for i := range b.scratch {
		b.scratch[i] = scratch{make([]float32, image), make([]float32, target)}
	}
	return b
}

// goroutines is how many prepare a batch each.
func (l *Loader) goroutines() int {
	switch {
	case l.p.bySample && l.c.Prefetch > 0 && l.c.Workers > 0:
		return 1 // which has the others help it
	case l.p.bySample:
		return 0
	}
	return l.c.Workers
}

// hands is how many goroutines fill one batch.
func (l *Loader) hands() int {
	if l.p.bySample {
		return min(max(1, l.c.Workers), l.batch)
	}
	return 1
}

// release gives an ended iterator's buffers back.
func (l *Loader) release(it *Iterator, buffers []*buffer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.active, it)
	if !l.closed {
		l.spare = append(l.spare, buffers...)
	}
}
