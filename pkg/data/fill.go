package data

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// fill loads the samples with the given indices into b, or copies the batch from the cache
// if the loader caches batches.
func (l *Loader) fill(ctx context.Context, b *buffer, epoch int, indices []int) error {
	if l.p.cache == cacheBatches || l.c.Kind == LoaderSynthetic {
		return l.kept.batch(indices, b, func() error { return l.fillNew(ctx, b, 0, indices) })
	}
	return l.fillNew(ctx, b, epoch, indices)
}

func (l *Loader) fillNew(ctx context.Context, b *buffer, epoch int, indices []int) error {
	if l.p.cache == cacheMapped {
		epoch = 0
	}
	if len(b.scratch) == 1 {
		for k := range indices {
			if err := l.fillOne(ctx, b, &b.scratch[0], epoch, k, indices[k]); err != nil {
				return err
			}
		}
		return nil
	}
	var next atomic.Int64
	errs := make([]error, len(b.scratch))
	var wg sync.WaitGroup
	for hand := range b.scratch {
		wg.Add(1)
		l.workerPool.do(func() {
			defer wg.Done()
			for k := int(next.Add(1)) - 1; k < len(indices) && errs[hand] == nil; k = int(next.Add(1)) - 1 {
				errs[hand] = l.fillOne(ctx, b, &b.scratch[hand], epoch, k, indices[k])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// fillOne loads sample i into position k of batch b, or copies it from the cache if the
// loader caches augmented samples.
func (l *Loader) fillOne(ctx context.Context, b *buffer, s *scratch, epoch, k, i int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ni, nt := len(s.image), len(s.target)
	image, target := b.image[k*ni:][:ni], b.target[k*nt:][:nt]
	load := func() error {
		if err := l.load(s, epoch, i, image, target); err != nil {
			return fmt.Errorf("load sample %s: %w", l.ds.SampleName(i), err)
		}
		return nil
	}
	if l.p.cache == cacheMapped {
		return l.kept.sample(i, image, target, load)
	}
	return load()
}

// load reads sample i into image and target, and augments it for the given epoch. It uses
// s as temporary memory.
func (l *Loader) load(s *scratch, epoch, i int, image, target []float32) error {
	is, ts := l.ds.ImageShape(), l.ds.TargetShape()
	if _, ok := spatial(is); !ok {
		return l.ds.Get(i, image, target)
	}
	c := l.c.Augment.draw(l.c.Seed, epoch, i, is)
	toImage, toTarget, turnTarget := image, target, aligned(is, ts)
	if !c.identity() {
		toImage = s.image
		if turnTarget {
			toTarget = s.target
		}
	}
	if err := readWindow(l.ds, i, c.window, toImage, toTarget); err != nil {
		return err
	}
	if !c.identity() {
		c.apply(image, toImage, is[0])
		if turnTarget {
			c.apply(target, toTarget, ts[0])
		}
	}
	c.jitter(image)
	return nil
}

// store caches augmented samples or batches for the stage "cache", if this stage comes
// after the stages "map" or "batch".
type store struct {
	mu   sync.Mutex
	kept map[int]keptValues
}

type keptValues struct{ image, target []float32 }

func (s *store) get(key int, image, target []float32) bool {
	s.mu.Lock()
	v, ok := s.kept[key]
	s.mu.Unlock()
	if ok {
		copy(image, v.image)
		copy(target, v.target)
	}
	return ok
}

func (s *store) put(key int, image, target []float32) {
	v := keptValues{append([]float32(nil), image...), append([]float32(nil), target...)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = map[int]keptValues{}
	}
	s.kept[key] = v
}

// sample copies sample i from the cache to image and target. If the cache does not contain
// the sample, sample calls load, which must write image and target, and caches them.
func (s *store) sample(i int, image, target []float32, load func() error) error {
	if s.get(i, image, target) {
		return nil
	}
	if err := load(); err != nil {
		return err
	}
	s.put(i, image, target)
	return nil
}

// batch is like sample, but for a complete batch. The cache key is the index of the first
// sample, which identifies the batch because cached batches are those of epoch 0.
func (s *store) batch(indices []int, b *buffer, load func() error) error {
	return s.sample(indices[0], b.image, b.target, load)
}

// workerPool is a pool of goroutines that are reused in later epochs.
type workerPool struct {
	mu      sync.Mutex
	idle    []chan func()
	started int
	closed  bool
	wg      sync.WaitGroup
}

// do runs f on an idle goroutine, or on a new one if none is idle.
func (c *workerPool) do(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.idle); n > 0 {
		work := c.idle[n-1]
		c.idle = c.idle[:n-1]
		work <- f
		return
	}
	work := make(chan func(), 1)
	work <- f
	c.started++
	c.wg.Go(func() {
		for f := range work {
			f()
			if !c.rest(work) {
				return
			}
		}
	})
}

// rest adds the goroutine that receives from work to the idle goroutines. It returns false
// if the pool is closed and the goroutine must end.
func (c *workerPool) rest(work chan func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.idle = append(c.idle, work)
	return true
}

// close ends the idle goroutines, and waits until the others have finished their work and
// ended.
func (c *workerPool) close() {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		for _, work := range c.idle {
			close(work)
		}
		c.idle = nil
	}
	c.mu.Unlock()
	c.wg.Wait()
}
