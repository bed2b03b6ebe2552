package data

import (
	"context"
	"fmt"
	"sync"

	"lockstep/pkg/data/internal/memory"
	"lockstep/pkg/data/internal/scale"
	"lockstep/pkg/data/internal/window"
)

// InMemory returns a data set that keeps each sample of ds in memory after it was first read. A
// sample takes one byte per value if all its values are integers divided by 255 (as in 8-bit
// pictures), otherwise four. If ds selects, cuts or repeats samples of another data set (Subset,
// Tiles, Crops, Repeat), the samples of that data set are kept, once each. A data set that is
// already in memory is returned unchanged.
func InMemory(ds Dataset) Dataset {
	switch d := ds.(type) {
	case *subsetDataset:
		return &subsetDataset{ds: InMemory(d.ds), indices: d.indices}
	case *tileDataset:
		t := *d
		t.ds = InMemory(d.ds)
		return &t
	case *cropDataset:
		c := *d
		c.ds = InMemory(d.ds)
		return &c
	case *byteImageDataset, *Pairs, *floatDataset, *memoryDataset:
		return ds
	case *Classes:
		if _, ok := d.source.(planarSource); ok && d.resized == nil {
			return ds
		}
	}
	return &memoryDataset{ds: ds, image: ds.ImageShape(), target: ds.TargetShape(), samples: make([]memorySample, ds.Len())}
}

// memoryDataset keeps the samples of another data set after they were first read.
type memoryDataset struct {
	ds            Dataset
	image, target []int
	samples       []memorySample
	used          int       // number of samples that will be read; 0: unknown
	wide          sync.Once // runs at the first sample that needs 4 bytes per value
	wideErr       error     // set if samples of 4 bytes per value do not fit into memory
}

// checkFitsInMemory returns an error if ds was made by InMemory and n of its samples do not fit into
// memory. It assumes one byte per value of an image, which is the minimum.
func checkFitsInMemory(ds Dataset, n int) error {
	switch d := ds.(type) {
	case *subsetDataset:
		distinct := map[int]bool{}
		for _, i := range d.indices {
			distinct[i] = true
		}
		return checkFitsInMemory(d.ds, min(n, len(distinct)))
	case *tileDataset: // n tiles may be parts of up to n samples
		return checkFitsInMemory(d.ds, min(n, d.ds.Len()))
	case *cropDataset:
		return checkFitsInMemory(d.ds, min(n, d.ds.Len()))
	case *memoryDataset:
		d.used = min(n, len(d.samples))
		return d.checkMemory(1)
	}
	return nil
}

// checkMemory returns an error if the samples do not fit into memory at bytesPerValue per value of
// an image. The values of a target need 4 bytes each.
func (s *memoryDataset) checkMemory(bytesPerValue float64) error {
	what := fmt.Sprintf("loader.kind %s keeps %d samples of %s values", LoaderInMem, s.used, window.FormatSize(s.image))
	err := memory.CheckFits(what, s.used, bytesPerValue*float64(window.ElementCount(s.image))+4*float64(window.ElementCount(s.target)))
	if err != nil {
		return fmt.Errorf("%w, or set loader.kind to %s", err, LoaderLowMem)
	}
	return nil
}

// memorySample stores its image as bytes (each value times 255) or as floats.
type memorySample struct {
	mu            sync.Mutex // held while the sample is read
	read          bool
	bytes         []uint8
	image, target []float32
}

func (s *memoryDataset) loadSample(ctx context.Context, i int) (*memorySample, error) {
	of := &s.samples[i]
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.read {
		return of, nil
	}
	image, target := NewBuffers(s.ds)
	if err := readSample(ctx, s.ds, i, image, target); err != nil {
		return nil, err
	}
	of.target = target
	if of.bytes = scale.UnitFloatsToBytes(image); of.bytes == nil {
		// All samples probably need 4 bytes per value: report the error now, not when the memory is full.
		s.wide.Do(func() { s.wideErr = s.checkMemory(4) })
		if s.wideErr != nil {
			return nil, s.wideErr
		}
		of.image = image
	}
	of.read = true
	return of, nil
}

func (s *memoryDataset) Len() int                { return len(s.samples) }
func (s *memoryDataset) ImageShape() []int       { return s.image }
func (s *memoryDataset) TargetShape() []int      { return s.target }
func (s *memoryDataset) SampleName(i int) string { return s.ds.SampleName(i) }

func (s *memoryDataset) Get(i int, image, target []float32) error {
	return s.getSample(context.Background(), i, image, target)
}

func (s *memoryDataset) getSample(ctx context.Context, i int, image, target []float32) error {
	if i < 0 || i >= len(s.samples) {
		return s.ds.Get(i, image, target) // returns the error
	}
	if err := window.CheckBuffers(s.SampleName(i), image, target, window.ElementCount(s.image), window.ElementCount(s.target)); err != nil {
		return err
	}
	of, err := s.loadSample(ctx, i)
	if err != nil {
		return err
	}
	copy(target, of.target)
	if of.bytes != nil {
		scale.LookUp(image, of.bytes, &scale.ByteToUnit)
	} else {
		copy(image, of.image)
	}
	return nil
}

func (s *memoryDataset) getWindow(ctx context.Context, i int, w window.Window, image, target []float32) error {
	if err := checkGetArguments(s, i, w, image, target); err != nil {
		return err
	}
	of, err := s.loadSample(ctx, i)
	if err != nil {
		return err
	}
	if of.bytes == nil {
		window.Copy(image, of.image, s.image, w)
	} else {
		copyWindowBytes(image, of.bytes, s.image, w)
	}
	if window.AreShapesAligned(s.image, s.target) {
		window.Copy(target, of.target, s.target, w)
	} else {
		copy(target, of.target)
	}
	return nil
}

// copyWindowBytes is like window.Copy, but src contains each value times 255 as a byte.
func copyWindowBytes(dst []float32, src []uint8, shape []int, w window.Window) {
	size, _ := window.SpatialSize(shape)
	for c := range shape[0] {
		for z := range w.Size[0] {
			for y := range w.Size[1] {
				from := ((c*size[0]+w.Start[0]+z)*size[1]+w.Start[1]+y)*size[2] + w.Start[2]
				scale.LookUp(dst[:w.Size[2]], src[from:][:w.Size[2]], &scale.ByteToUnit)
				dst = dst[w.Size[2]:]
			}
		}
	}
}
