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

// Bytes is a loader's samples as a device holds them whole, to vary them there as the
// loader does: a byte a value.
type Bytes struct {
	// Image and Target hold sample after sample in the order of their shapes, those of
	// a sample before augmentation. A value is its byte over 255, or for targets over
	// TargetDivisor.
	Image, Target           []byte
	ImageShape, TargetShape []int
	TargetDivisor           float64
	// Values are, in place of Target, targets that augmentation leaves as they are,
	// such as the index of a class.
	Values []float32
	// Stored is where each sample of the data set lies: Repeat's lie once.
	Stored  []int
	Augment Augment
	Seed    int64 // of augmentation
}

// Size is the memory that b takes, in bytes.
func (b Bytes) Size() int64 { return int64(len(b.Image)+len(b.Target)) + 4*int64(len(b.Values)) }

// Batches lists the samples of the batches that an epoch (from 0) has, in order: what
// Epoch's iterator delivers.
func (l *Loader) Batches(epoch int) [][]int { return l.dealer.Epoch(epoch) }

// Bytes reads all samples, where they take at most limit bytes. The error says why a
// device cannot hold them: their values are no whole 255ths, as those of pictures of 8
// bits are, or the loader keeps batches or samples as they were in epoch 0. It is ctx's
// error when ctx is canceled before all samples are read.
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
	for { // what repeats samples, or leaves some out
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
		return b, fmt.Errorf("samples have shape %v: only images [C,H,W] and volumes [C,D,H,W] are varied on a device", b.ImageShape)
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
	// Pictures in files take longest to unpack.
	var next atomic.Int64
	errs := make([]error, min(runtime.GOMAXPROCS(0), len(used)))
	var readers sync.WaitGroup
	for reader := range errs {
		readers.Go(func() {
			image, target := make([]float32, ni), make([]float32, nt)
			for k := int(next.Add(1)) - 1; k < len(used) && errs[reader] == nil; k = int(next.Add(1)) - 1 {
				if errs[reader] = b.take(ctx, ds, used[k], k, image, target); errs[reader] != nil {
					next.Store(int64(len(used))) // the others need not go on
				}
			}
		})
	}
	readers.Wait()
	return b, errors.Join(errs...)
}

// take stores sample i of ds as number at.
func (b *Bytes) take(ctx context.Context, ds Dataset, i, at int, image, target []float32) error {
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
	mask := asWhole(target)
	if mask == nil {
		return fmt.Errorf("the target of sample %s has values that are no whole numbers of 0 to 255", ds.SampleName(i))
	}
	copy(b.Target[at*len(target):], mask)
	return nil
}

// ascending is 0 to n−1.
func ascending(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// asWhole is values as whole numbers, nil where one of them is none.
func asWhole(values []float32) []uint8 {
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
