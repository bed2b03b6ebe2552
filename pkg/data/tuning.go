package data

import "fmt"

// SameBatches says whether two orders of a loader's stages (see
// LoaderOptions.Order) give the same batches in the same sequence, on any number
// of ranks, so that a training run may change from one to the other. What is
// prepared ahead, and what is kept of samples as the data set gives them, changes
// nothing but the time.
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

// batches is the pipeline less what changes no batch.
func (p pipeline) batches() pipeline {
	if p.cache == cacheSamples {
		p.cache = cacheNothing
	}
	p.bySample, p.prefetch = false, false
	return p
}

// MemoryBytes is what the loader holds at the moment: the buffers of its
// batches, and what it keeps of the samples or batches that it has read.
func (l *Loader) MemoryBytes() int64 {
	image, target := volume(l.ImageShape()), volume(l.TargetShape())
	l.mu.Lock()
	buffers := len(l.spare)
	for it := range l.active {
		buffers += len(it.buffers)
	}
	l.mu.Unlock()
	n := int64(buffers) * int64(l.batch+l.hands()) * int64(image+target) * 4
	l.kept.mu.Lock()
	for _, v := range l.kept.kept {
		n += int64(len(v.image)+len(v.target)) * 4
	}
	l.kept.mu.Unlock()
	kept, _ := Kept(l.ds)
	return n + kept
}

// Kept is what InMemory keeps of a data set at the moment, and whether that is
// all of it: nothing, and true, of one that is not InMemory's or was in memory
// before.
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
