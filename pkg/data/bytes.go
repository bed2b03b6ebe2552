package data

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"lockstep/pkg/data/internal/scale"
	"lockstep/pkg/data/internal/window"
)

// Bytes contains all samples of a loader at one byte per value. A GPU can keep them in its memory
// and augment them there with the same result as the loader.
type Bytes struct {
	// Image and Target contain the samples before augmentation, one after the other, in row-major order.
	// An image value is the byte divided by 255, a target value is the byte divided by TargetDivisor.
	Image, Target           []byte
	ImageShape, TargetShape []int
	TargetDivisor           float64
	// Values contains the targets if augmentation does not change them, as with class indices.
	// Target is then empty.
	Values []float32
	// Stored maps a sample's index in the data set to its number in Image and Target. Samples
	// repeated by Repeat are stored once.
	Stored  []int
	Augment Augment
	Seed    int64 // seed of augmentation
}

// Size returns the number of bytes of memory that the samples of b occupy.
func (b Bytes) Size() int64 { return int64(len(b.Image)+len(b.Target)) + 4*int64(len(b.Values)) }

// BatchIndices returns the sample indices of each batch of an epoch (from 0), in the order in which
// Epoch returns the batches.
func (l *Loader) BatchIndices(epoch int) [][]int { return l.sampler.Epoch(epoch) }

// Bytes reads all samples of the loader. It returns an error if they need more than limit bytes, if
// a value is not an integer divided by 255 (as in 8-bit pictures), or if the loader caches
// augmented samples or batches. If ctx is canceled, Bytes returns ctx's error.
func (l *Loader) Bytes(ctx context.Context, limit int64) (Bytes, error) {
	b, err := l.readBytes(ctx, limit)
	if err != nil {
		return Bytes{}, fmt.Errorf("read samples as bytes: %w", err)
	}
	return b, nil
}

func (l *Loader) readBytes(ctx context.Context, limit int64) (b Bytes, err error) {
	switch {
	case l.c.Kind == LoaderSynthetic:
		return b, fmt.Errorf("a loader of kind %s repeats one batch: use kind lowmem or inmem", LoaderSynthetic)
	case l.p.cache == cacheBatches || l.p.cache == cacheMapped:
		return b, fmt.Errorf("the order %v caches samples as augmented in epoch 0: move cache before map, or leave it out", l.c.Order)
	}
	if name, value := l.c.Augment.CPUOption(); name != "" {
		return b, fmt.Errorf("augment.%s is %g, which a GPU cannot apply: leave it out", name, value)
	}
	ds, list := l.ds, integersBelow(l.ds.Len())
	for { // unwrap data sets that repeat or select samples
		s, ok := ds.(*subsetDataset)
		if !ok {
			break
		}
		for i := range list {
			list[i] = s.indices[list[i]]
		}
		ds = s.ds
	}
	b = Bytes{ImageShape: ds.ImageShape(), TargetShape: ds.TargetShape(), TargetDivisor: 1, Augment: l.c.Augment, Seed: l.c.Seed}
	if _, ok := window.SpatialSize(b.ImageShape); !ok {
		return b, fmt.Errorf("samples have shape %v: want images [C,H,W] or volumes [C,D,H,W]", b.ImageShape)
	}
	if _, ok := ds.(*Volumes); ok {
		return b, errors.New("volumes from files have 4 bytes per value, want 8-bit images")
	}
	turned := window.AreShapesAligned(b.ImageShape, b.TargetShape)
	used := slices.Compact(slices.Sorted(slices.Values(list)))
	ni, nt := window.ElementCount(b.ImageShape), window.ElementCount(b.TargetShape)
	size := int64(ni + nt)
	if !turned {
		size = int64(ni + 4*nt)
	}
	if need := size * int64(len(used)); need > limit {
		return b, fmt.Errorf("%d samples need %d bytes, but at most %d are allowed", len(used), need, limit)
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
				if errs[reader] = b.readSample(ctx, ds, used[k], k, image, target); errs[reader] != nil {
					next.Store(int64(len(used))) // stops the other goroutines
				}
			}
		})
	}
	readers.Wait()
	return b, errors.Join(errs...)
}

// readSample stores sample i of ds as sample number k of b. image and target are temporary memory.
func (b *Bytes) readSample(ctx context.Context, ds Dataset, i, k int, image, target []float32) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := readSample(ctx, ds, i, image, target); err != nil {
		return err
	}
	pixels := scale.UnitFloatsToBytes(image)
	if pixels == nil {
		return fmt.Errorf("image of sample %s has values that are not integers divided by 255", ds.SampleName(i))
	}
	copy(b.Image[k*len(image):], pixels)
	if b.Values != nil {
		copy(b.Values[k*len(target):], target)
		return nil
	}
	mask := scale.WholeFloatsToBytes(target)
	if mask == nil {
		return fmt.Errorf("target of sample %s has values that are not integers from 0 to 255", ds.SampleName(i))
	}
	copy(b.Target[k*len(target):], mask)
	return nil
}

func integersBelow(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}
