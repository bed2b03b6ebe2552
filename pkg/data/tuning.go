package data

import "fmt"

// SameBatches reports whether two orders of a loader's stages (see LoaderOptions.Order)
// yield the same batches in the same sequence on any number of ranks, so that a training
// run may switch between them. Prefetching, and caching of samples before augmentation,
// affect only the time. An unknown or invalid order is an error.
func SameBatches(order, other []string) (bool, error) {
	a, err := parseOrder(order)
	if err != nil {
		return false, fmt.Errorf("compare orders: %w", err)
	}
	b, err := parseOrder(other)
	if err != nil {
		return false, fmt.Errorf("compare orders: %w", err)
	}
	return a.batches() == b.batches(), nil
}

// batches returns the pipeline without the parts that do not affect the batches.
func (p pipeline) batches() pipeline {
	if p.cache == cacheSamples {
		p.cache = cacheNothing
	}
	p.bySample, p.prefetch = false, false
	return p
}

// MemoryBytes returns the memory that the loader currently occupies: the buffers of its
// batches, and the samples or batches in its cache.
func (l *Loader) MemoryBytes() int64 {
	image, target := volume(l.ImageShape()), volume(l.TargetShape())
	l.mu.Lock()
	buffers := len(l.spare)
	for it := range l.active {
		buffers += len(it.buffers)
	}
	l.mu.Unlock()
	n := int64(buffers) * int64(l.batch+l.goroutinesPerBatch()) * int64(image+target) * 4
	l.kept.mu.Lock()
	for _, v := range l.kept.kept {
		n += int64(len(v.image)+len(v.target)) * 4
	}
	l.kept.mu.Unlock()
	kept, _ := Kept(l.ds)
	return n + kept
}

// Kept returns the number of bytes that InMemory currently keeps of ds, and whether ds
// has been read completely. For a data set that was not made by InMemory, or that was in
// memory before, it returns 0 and true.
func Kept(ds Dataset) (bytes int64, complete bool) {
	switch d := ds.(type) {
	case *subset:
		return Kept(d.ds)
	case *tiles:
		return Kept(d.ds)
	case *crops:
		return Kept(d.ds)
	case *kept:
		complete = true
		for i := range d.samples {
			s := &d.samples[i]
			s.mu.Lock()
			complete = complete && s.read
			bytes += int64(len(s.bytes)) + 4*int64(len(s.image)+len(s.target))
			s.mu.Unlock()
		}
		return bytes, complete
	}
	return 0, true
}
