package data

import (
	"fmt"
	"slices"
	"strings"
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

// DefaultOrder returns the stages if LoaderOptions.Order is empty, without the stage cache.
func DefaultOrder() []string {
	return []string{StageShuffle, StageShard, StageBatch, StageMap, StagePrefetch}
}

type pipeline struct {
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

// parseOrder parses and validates an order of stages; none means DefaultOrder.
func parseOrder(order []string) (pipeline, error) {
	if len(order) == 0 {
		order = DefaultOrder()
	}
	at := map[string]int{}
	for i, stage := range order {
		if !slices.Contains([]string{StageShuffle, StageShard, StageCache, StageBatch, StageMap, StagePrefetch}, stage) {
			return pipeline{}, fmt.Errorf("unknown stage %q: use shuffle, shard, cache, batch, map and prefetch", stage)
		}
		if _, twice := at[stage]; twice {
			return pipeline{}, fmt.Errorf("duplicate stage %s in %s", stage, strings.Join(order, ", "))
		}
		at[stage] = i
	}
	has := func(stage string) bool { _, ok := at[stage]; return ok }
	before := func(a, b string) bool { return has(a) && has(b) && at[a] < at[b] }
	switch {
	case !has(StageBatch):
		return pipeline{}, fmt.Errorf("stage batch is missing in %s: add it, because a step trains on a batch", strings.Join(order, ", "))
	case !has(StageShard):
		return pipeline{}, fmt.Errorf("stage shard is missing in %s: add it, because otherwise all ranks train on the same samples", strings.Join(order, ", "))
	case before(StageBatch, StageShard):
		return pipeline{}, fmt.Errorf("stage shard comes after batch in %s: put it before batch, so that batches consist of the rank's own samples", strings.Join(order, ", "))
	case has(StagePrefetch) && at[StagePrefetch] != len(order)-1:
		return pipeline{}, fmt.Errorf("stage prefetch is not the last one in %s: put it last, because later stages would not be prepared in advance", strings.Join(order, ", "))
	}
	p := pipeline{
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
