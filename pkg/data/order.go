package data

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/data/internal/window"
)

// Stages of a loader's pipeline, which LoaderOptions.Order can reorder.
const (
	StageShuffle  = "shuffle"  // permutes the samples, or after batch the batches, in each epoch
	StageShard    = "shard"    // selects the samples of this rank
	StageCache    = "cache"    // keeps the output of the previous stages in memory
	StageBatch    = "batch"    // combines samples to batches
	StageMap      = "map"      // augments the samples
	StagePrefetch = "prefetch" // prepares batches in advance
)

// DefaultOrder returns the order of the stages if LoaderOptions.Order is empty. It does not contain
// the stage cache.
func DefaultOrder() []string {
	return []string{StageShuffle, StageShard, StageBatch, StageMap, StagePrefetch}
}

type loaderPipeline struct {
	shuffle, shuffleBatches bool
	shardFirst              bool   // each rank has the same samples in all epochs
	cache                   string // what is cached; cacheNothing if the order has no stage cache
	augment                 bool
	bySample                bool // several goroutines load samples of the same batch
	prefetch                bool
}

// Values of pipeline.cache: what is kept in memory.
const (
	cacheNothing = ""
	cacheSamples = "samples" // samples as read from the data set
	cacheMapped  = "mapped"  // samples as augmented in epoch 0
	cacheBatches = "batches" // batches of epoch 0
)

// parseOrder parses and validates an order of stages. If order is empty, it parses DefaultOrder.
func parseOrder(order []string) (loaderPipeline, error) {
	if len(order) == 0 {
		order = DefaultOrder()
	}
	at := map[string]int{}
	for i, stage := range order {
		if !slices.Contains([]string{StageShuffle, StageShard, StageCache, StageBatch, StageMap, StagePrefetch}, stage) {
			return loaderPipeline{}, fmt.Errorf("unknown stage %q: use shuffle, shard, cache, batch, map and prefetch", stage)
		}
		if _, twice := at[stage]; twice {
			return loaderPipeline{}, fmt.Errorf("duplicate stage %s in %s", stage, strings.Join(order, ", "))
		}
		at[stage] = i
	}
	has := func(stage string) bool { _, ok := at[stage]; return ok }
	before := func(a, b string) bool { return has(a) && has(b) && at[a] < at[b] }
	switch {
	case !has(StageBatch):
		return loaderPipeline{}, fmt.Errorf("stage batch is missing in %s: add it, because a step trains on a batch", strings.Join(order, ", "))
	case !has(StageShard):
		return loaderPipeline{}, fmt.Errorf("stage shard is missing in %s: add it, because otherwise all ranks train on the same samples", strings.Join(order, ", "))
	case before(StageBatch, StageShard):
		return loaderPipeline{}, fmt.Errorf("stage shard comes after batch in %s: put it before batch, so that batches consist of the rank's own samples", strings.Join(order, ", "))
	case has(StagePrefetch) && at[StagePrefetch] != len(order)-1:
		return loaderPipeline{}, fmt.Errorf("stage prefetch is not the last one in %s: put it last, because later stages would not be prepared in advance", strings.Join(order, ", "))
	}
	p := loaderPipeline{
		shuffle: has(StageShuffle), shuffleBatches: before(StageBatch, StageShuffle),
		shardFirst: before(StageShard, StageShuffle),
		augment:    has(StageMap), bySample: before(StageMap, StageBatch),
		prefetch: has(StagePrefetch),
	}
	if has(StageCache) {
		switch {
		case before(StageBatch, StageCache) && (!has(StageMap) || before(StageMap, StageCache)):
			p.cache = cacheBatches
		case before(StageMap, StageCache):
			p.cache = cacheMapped
		default:
			p.cache = cacheSamples
		}
	}
	return p, nil
}

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
func (p loaderPipeline) withoutSpeedOptions() loaderPipeline {
	if p.cache == cacheSamples {
		p.cache = cacheNothing
	}
	p.bySample, p.prefetch = false, false
	return p
}

// MemoryBytes returns the size of the loader's buffers and of the samples or batches in its cache.
func (l *Loader) MemoryBytes() int64 {
	image, target := window.ElementCount(l.ImageShape()), window.ElementCount(l.TargetShape())
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
