package data

import "fmt"

// HaveSameBatches reports whether loaders with the two LoaderOptions.Order return the same batches in
// the same order on any number of ranks, so that a run may switch from one to the other. Prefetching,
// and caching before augmentation, affect only the speed. It returns an error if an order is invalid.
func HaveSameBatches(order, other []string) (bool, error) {
	a, err := parseOrder(order)
	if err != nil {
		return false, fmt.Errorf("compare orders of loader stages: %w", err)
	}
	b, err := parseOrder(other)
	if err != nil {
		return false, fmt.Errorf("compare orders of loader stages: %w", err)
	}
	return a.withoutSpeedOptions() == b.withoutSpeedOptions(), nil
}

// withoutSpeedOptions returns p without the options that do not affect the batches.
func (p pipeline) withoutSpeedOptions() pipeline {
	if p.cache == cacheSamples {
		p.cache = cacheNothing
	}
	p.bySample, p.prefetch = false, false
	return p
}

// MemoryBytes returns the size of the loader's buffers and of the samples or batches in its cache.
func (l *Loader) MemoryBytes() int64 {
	image, target := elementCount(l.ImageShape()), elementCount(l.TargetShape())
	l.mu.Lock()
	buffers := len(l.spare)
	for it := range l.active {
		buffers += len(it.buffers)
	}
	l.mu.Unlock()
	n := int64(buffers) * int64(l.batch+l.goroutinesPerBatch()) * int64(image+target) * 4
	l.cache.mu.Lock()
	for _, v := range l.cache.entries {
		n += int64(len(v.image)+len(v.target)) * 4
	}
	l.cache.mu.Unlock()
	kept, _ := CachedBytes(l.ds)
	return n + kept
}

// CachedBytes returns how many bytes a data set made by InMemory keeps in memory, and whether it
// has read all samples. For other data sets it returns 0 and true.
func CachedBytes(ds Dataset) (bytes int64, complete bool) {
	switch d := ds.(type) {
	case *subsetDataset:
		return CachedBytes(d.ds)
	case *tileDataset:
		return CachedBytes(d.ds)
	case *cropDataset:
		return CachedBytes(d.ds)
	case *memoryDataset:
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
