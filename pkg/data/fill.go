package data

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"lockstep/pkg/data/internal/window"
)

// fillBatch loads the samples with the given indices into b, or copies the batch from the cache.
func (l *Loader) fillBatch(ctx context.Context, b *batchBuffer, epoch int, indices []int) error {
	if l.p.cache == cacheBatches || l.c.Kind == LoaderSynthetic {
		// The first sample identifies a batch, because only the batches of epoch 0 are cached.
		return l.cache.getOrLoad(indices[0], b.image, b.target, func() error { return l.fillUncachedBatch(ctx, b, 0, indices) })
	}
	return l.fillUncachedBatch(ctx, b, epoch, indices)
}

// fillUncachedBatch loads the samples with the given indices into b, in parallel if b has temporary
// memory for several goroutines.
func (l *Loader) fillUncachedBatch(ctx context.Context, b *batchBuffer, epoch int, indices []int) error {
	if l.p.cache == cacheMapped {
		epoch = 0
	}
	if len(b.scratch) == 1 {
		for k := range indices {
			if err := l.fillSample(ctx, b, &b.scratch[0], epoch, k, indices[k]); err != nil {
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
		l.workerPool.Run(func() {
			defer wg.Done()
			for k := int(next.Add(1)) - 1; k < len(indices) && errs[hand] == nil; k = int(next.Add(1)) - 1 {
				errs[hand] = l.fillSample(ctx, b, &b.scratch[hand], epoch, k, indices[k])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// fillSample loads sample i, or copies it from the cache of augmented samples, to position k of batch b.
func (l *Loader) fillSample(ctx context.Context, b *batchBuffer, s *sampleScratch, epoch, k, i int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ni, nt := len(s.image), len(s.target)
	image, target := b.image[k*ni:][:ni], b.target[k*nt:][:nt]
	load := func() error {
		if err := l.loadSample(ctx, s, epoch, i, image, target); err != nil {
			return fmt.Errorf("load sample %s: %w", l.ds.SampleName(i), err)
		}
		return nil
	}
	if l.p.cache == cacheMapped {
		return l.cache.getOrLoad(i, image, target, load)
	}
	return load()
}

// Sample copies sample i, augmented as in the given epoch, to image and target, which have the
// sizes of ImageShape and TargetShape.
func (l *Loader) Sample(ctx context.Context, epoch, i int, image, target []float32) error {
	s := sampleScratch{make([]float32, len(image)), make([]float32, len(target))}
	return l.loadSample(ctx, &s, epoch, i, image, target)
}

// loadSample reads and augments sample i for the given epoch. s is temporary memory.
func (l *Loader) loadSample(ctx context.Context, s *sampleScratch, epoch, i int, image, target []float32) error {
	is, ts := l.ds.ImageShape(), l.ds.TargetShape()
	if _, ok := window.SpatialSize(is); !ok {
		return readSample(ctx, l.ds, i, image, target)
	}
	c := l.c.Augment.drawChoices(l.c.Seed, epoch, i, is)
	turnTarget := window.AreShapesAligned(is, ts)
	// Mirroring and warping move values between two buffers. The result must be in the second.
	from, to := sampleScratch{image, target}, *s
	if c.IsMirroredOrRotated() != c.IsWarped() {
		from, to = to, from
	}
	if !turnTarget {
		from.target, to.target = target, target
	}
	if err := readWindow(ctx, l.ds, i, c.Window, from.image, from.target); err != nil {
		return err
	}
	if c.IsMirroredOrRotated() {
		c.MirrorAndRotate(to.image, from.image, is[0])
		if turnTarget {
			c.MirrorAndRotate(to.target, from.target, ts[0])
		}
		from, to = to, from
	}
	c.Recolor(from.image)
	if c.IsWarped() {
		c.WarpImage(to.image, from.image)
		if turnTarget {
			c.WarpMask(to.target, from.target, l.c.outsideTarget())
		}
	}
	return nil
}

// loaderCache caches augmented samples, or whole batches, for a stage "cache" after "map" or
// "batch". The key is the sample's index, or the index of the batch's first sample.
type loaderCache struct {
	mu      sync.Mutex
	entries map[int]cachedValues
}

type cachedValues struct{ image, target []float32 }

// getOrLoad copies the cached values of key to image and target. If key is not cached, it calls
// load, which must fill image and target, and caches them.
func (s *loaderCache) getOrLoad(key int, image, target []float32, load func() error) error {
	s.mu.Lock()
	v, ok := s.entries[key]
	s.mu.Unlock()
	if ok {
		copy(image, v.image)
		copy(target, v.target)
		return nil
	}
	if err := load(); err != nil {
		return err
	}
	v = cachedValues{slices.Clone(image), slices.Clone(target)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries == nil {
		s.entries = map[int]cachedValues{}
	}
	s.entries[key] = v
	return nil
}
