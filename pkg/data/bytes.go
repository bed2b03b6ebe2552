package data

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Bytes contains all samples of a loader at one byte per value, so that a device can
// keep them in its memory and augment them there as the loader does.
type Bytes struct {
	// Image and Target contain the samples one after the other, in the order of their
	// shapes before augmentation. An image's value is its byte divided by 255, a
	// target's is its byte divided by TargetDivisor.
	Image, Target           []byte
	ImageShape, TargetShape []int
	TargetDivisor           float64
	// Values contains the targets if augmentation does not change them (such as the
	// index of a class). Target is empty then.
	Values []float32
	// Stored contains, for each sample of the data set, its position in Image. Samples
	// that Repeat repeats are stored once.
	Stored  []int
	Augment Augment
	Seed    int64 // seed of augmentation
}

// Size returns the memory that b occupies, in bytes.
func (b Bytes) Size() int64 { return int64(len(b.Image)+len(b.Target)) + 4*int64(len(b.Values)) }

// Batches returns the sample indices of each batch of an epoch (from 0), in the order in
// which Epoch's iterator returns the batches.
func (l *Loader) Batches(epoch int) [][]int { return l.dealer.Epoch(epoch) }

// Bytes reads all samples if they need at most limit bytes. The error explains why a
// device cannot keep them: their values are not integers divided by 255 (as those of
// 8-bit pictures are), or the loader caches batches or samples as augmented in epoch 0.
// If ctx is canceled before all samples are read, Bytes returns ctx's error.
func (l *Loader) Bytes(ctx context.Context, limit int64) (Bytes, error) {
	b, err := l.bytes(ctx, limit)
	if err != nil {
		return Bytes{}, fmt.Errorf("take samples as bytes: %w", err)
	}
	return b, nil
}

func (l *Loader) bytes(ctx context.Context, limit int64) (b Bytes, err error) {
	switch {
	case l.c.Kind == LoaderSynthetic:
		return b, fmt.Errorf("a loader of kind %s has one batch", LoaderSynthetic)
	case l.p.cache == cacheBatches || l.p.cache == cacheMapped:
		return b, fmt.Errorf("the order %v keeps what was varied in epoch 0", l.c.Order)
	}
	ds, list := l.ds, ascending(l.ds.Len())
	for { // unwrap data sets that repeat or select samples
		s, ok := ds.(*subset)
		if !ok {
			break
		}
		for i := range list {
			list[i] = s.indices[list[i]]
		}
		ds = s.ds
	}
	b = Bytes{ImageShape: ds.ImageShape(), TargetShape: ds.TargetShape(), TargetDivisor: 1, Augment: l.c.Augment, Seed: l.c.Seed}
	if _, ok := spatial(b.ImageShape); !ok {
		return b, fmt.Errorf("samples have shape %v: only images [C,H,W] and volumes [C,D,H,W] can be augmented on a device", b.ImageShape)
	}
	if _, ok := ds.(*Volumes); ok {
		return b, fmt.Errorf("volumes in files are not of bytes")
	}
	turned := aligned(b.ImageShape, b.TargetShape)
	used := slices.Compact(slices.Sorted(slices.Values(list)))
	ni, nt := volume(b.ImageShape), volume(b.TargetShape)
	size := int64(ni + nt)
	if !turned {
		size = int64(ni + 4*nt)
	}
	if need := size * int64(len(used)); need > limit {
		return b, fmt.Errorf("%d samples take %d bytes, %d are allowed", len(used), need, limit)
	}
	b.Stored = make([]int, len(list))
	for i, s := range list {
		b.Stored[i], _ = slices.BinarySearch(used, s)
	}
	b.Image = make([]byte, ni*len(used))
	if turned {
		b.Target = make([]byte, nt*len(used))
	} else {
		b.Values = make([]float32, nt*len(used))
	}
	// Goroutines decode in parallel: decoding picture files takes the most time.
	var next atomic.Int64
	errs := make([]error, min(runtime.GOMAXPROCS(0), len(used)))
	var readers sync.WaitGroup
	for reader := range errs {
		readers.Go(func() {
			image, target := make([]float32, ni), make([]float32, nt)
			for k := int(next.Add(1)) - 1; k < len(used) && errs[reader] == nil; k = int(next.Add(1)) - 1 {
				if errs[reader] = b.store(ctx, ds, used[k], k, image, target); errs[reader] != nil {
					next.Store(int64(len(used))) // stops the other goroutines
				}
			}
		})
	}
	readers.Wait()
	return b, errors.Join(errs...)
}

// store reads sample i of ds and stores it as sample number at.
func (b *Bytes) store(ctx context.Context, ds Dataset, i, at int, image, target []float32) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := ds.Get(i, image, target); err != nil {
		return err
	}
	pixels := asBytes(image)
	if pixels == nil {
		return fmt.Errorf("sample %s has values that are no whole 255ths", ds.SampleName(i))
	}
	copy(b.Image[at*len(image):], pixels)
	if b.Values != nil {
		copy(b.Values[at*len(target):], target)
		return nil
	}
	mask := asIntegers(target)
	if mask == nil {
		return fmt.Errorf("the target of sample %s has values that are no whole numbers of 0 to 255", ds.SampleName(i))
	}
	copy(b.Target[at*len(target):], mask)
	return nil
}

// ascending returns the integers 0 to n−1.
func ascending(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// asIntegers returns the values as integers of 8 bits, or nil if a value is not one.
func asIntegers(values []float32) []uint8 {
	b := make([]uint8, len(values))
	for i, v := range values {
		if v >= 0 && v <= 255 {
			b[i] = uint8(v)
		}
		if float32(b[i]) != v {
			return nil
		}
	}
	return b
}
