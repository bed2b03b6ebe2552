package data

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// LoaderConfig says how batches are prepared.
type LoaderConfig struct {
	Workers  int     `yaml:"workers" json:"workers"`   // goroutines that prepare batches ahead; 0: each batch is prepared when it is asked for
	Prefetch int     `yaml:"prefetch" json:"prefetch"` // batches ready ahead; at least as many as workers are kept
	Augment  Augment `yaml:"augment" json:"augment"`
	Seed     int64   `yaml:"seed" json:"seed"` // of augmentation
}

// Validate reports the first value that cannot be.
func (c LoaderConfig) Validate() error {
	switch {
	case c.Workers < 0:
		return fmt.Errorf("validate loader: workers is %d: use 0 to load in step", c.Workers)
	case c.Prefetch < 0:
		return fmt.Errorf("validate loader: prefetch is %d: use 0 or more batches", c.Prefetch)
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
	c      LoaderConfig

	mu     sync.Mutex
	closed bool
	active map[*Iterator]struct{}
	spare  []*buffer
}

// NewLoader is a loader of training batches.
func NewLoader(ds Dataset, sampler *Sampler, c LoaderConfig) (*Loader, error) {
	if n := sampler.Config().Samples; n != ds.Len() {
		return nil, fmt.Errorf("make loader: the sampler is for %d samples, the data set has %d", n, ds.Len())
	}
	return newLoader(ds, sampler, sampler.Config().BatchPerWorker, c)
}

func newLoader(ds Dataset, d dealer, batch int, c LoaderConfig) (*Loader, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := c.Augment.fits(ds.ImageShape(), ds.TargetShape()); err != nil {
		return nil, fmt.Errorf("make loader: %w", err)
	}
	return &Loader{ds: ds, dealer: d, batch: batch, c: c, active: map[*Iterator]struct{}{}}, nil
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
// Those that follow are the same as in the whole epoch.
func (l *Loader) EpochFrom(ctx context.Context, e, step int) *Iterator {
	ctx, cancel := context.WithCancel(ctx)
	it := &Iterator{loader: l, epoch: e, ctx: ctx, cancel: cancel, batches: l.dealer.Epoch(e), next: step}
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
}

// buffer is the memory of one batch.
type buffer struct {
	image, target               []float32
	scratchImage, scratchTarget []float32 // one sample before it is turned
}

// take returns a spare or new buffer; l.mu is held.
func (l *Loader) take() *buffer {
	if n := len(l.spare); n > 0 {
		b := l.spare[n-1]
		l.spare = l.spare[:n-1]
		return b
	}
	image, target := volume(l.ImageShape()), volume(l.TargetShape())
	return &buffer{
		image: make([]float32, l.batch*image), target: make([]float32, l.batch*target),
		scratchImage: make([]float32, image), scratchTarget: make([]float32, target),
	}
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

// fill loads the samples of a batch into b.
func (l *Loader) fill(ctx context.Context, b *buffer, epoch int, indices []int) error {
	ni, nt := len(b.scratchImage), len(b.scratchTarget)
	for k, i := range indices {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.load(b, epoch, i, b.image[k*ni:][:ni], b.target[k*nt:][:nt]); err != nil {
			return fmt.Errorf("load sample %s: %w", l.ds.SampleName(i), err)
		}
	}
	return nil
}

// load reads sample i as it is in an epoch.
func (l *Loader) load(b *buffer, epoch, i int, image, target []float32) error {
	is, ts := l.ds.ImageShape(), l.ds.TargetShape()
	if _, ok := spatial(is); !ok {
		return l.ds.Get(i, image, target)
	}
	c := l.c.Augment.draw(l.c.Seed, epoch, i, is)
	toImage, toTarget, turnTarget := image, target, aligned(is, ts)
	if !c.identity() {
		toImage = b.scratchImage
		if turnTarget {
			toTarget = b.scratchTarget
		}
	}
	if err := readWindow(l.ds, i, c.window, toImage, toTarget); err != nil {
		return err
	}
	if !c.identity() {
		c.turn(image, toImage, is[0])
		if turnTarget {
			c.turn(target, toTarget, ts[0])
		}
	}
	c.jitter(image)
	return nil
}
