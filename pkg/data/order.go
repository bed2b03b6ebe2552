package data

import (
	"fmt"
	"slices"
	"strings"
)

// The stages of a loader's pipeline, of which LoaderOptions.Order is a sequence.
const (
	StageShuffle  = "shuffle"  // a different order in each epoch, of the samples or (after batch) of the batches
	StageShard    = "shard"    // each rank selects its share
	StageCache    = "cache"    // the output of the stages before is kept in memory
	StageBatch    = "batch"    // samples are put together to batches
	StageMap      = "map"      // augmentation
	StagePrefetch = "prefetch" // batches are prepared ahead
)

// DefaultOrder returns the stages that are used if LoaderOptions.Order is empty. It has
// no stage cache.
func DefaultOrder() []string {
	return []string{StageShuffle, StageShard, StageBatch, StageMap, StagePrefetch}
}

// pipeline is the parsed form of an order.
type pipeline struct {
	shuffle, shuffleBatches bool
	shardFirst              bool // each rank keeps its share for all epochs
	cache                   string
	augment, bySample       bool
	prefetch                bool
}

// The output that the stage cache keeps.
const (
	cacheNothing = ""
	cacheSamples = "samples" // as read from the data set
	cacheMapped  = "mapped"  // augmented, as in epoch 0
	cacheBatches = "batches" // put together, as in epoch 0
)

// parseOrder validates an order and returns its pipeline.
func parseOrder(order []string) (pipeline, error) {
	if len(order) == 0 {
		order = DefaultOrder()
	}
	at := map[string]int{}
	for i, stage := range order {
		if !slices.Contains([]string{StageShuffle, StageShard, StageCache, StageBatch, StageMap, StagePrefetch}, stage) {
			return pipeline{}, fmt.Errorf("stage %q is not known: use shuffle, shard, cache, batch, map and prefetch", stage)
		}
		if _, twice := at[stage]; twice {
			return pipeline{}, fmt.Errorf("stage %s comes twice in %s", stage, strings.Join(order, ", "))
		}
		at[stage] = i
	}
	has := func(stage string) bool { _, ok := at[stage]; return ok }
	before := func(a, b string) bool { return has(a) && has(b) && at[a] < at[b] }
	switch {
	case !has(StageBatch):
		return pipeline{}, fmt.Errorf("stage batch is missing in %s: a step trains on a batch", strings.Join(order, ", "))
	case !has(StageShard):
		return pipeline{}, fmt.Errorf("stage shard is missing in %s: all ranks would train on the same samples", strings.Join(order, ", "))
	case before(StageBatch, StageShard):
		return pipeline{}, fmt.Errorf("stage shard comes behind batch in %s: put it before, so that each rank's batches are of its share", strings.Join(order, ", "))
	case has(StagePrefetch) && at[StagePrefetch] != len(order)-1:
		return pipeline{}, fmt.Errorf("stage prefetch is not the last in %s: what comes behind it would not be prepared ahead", strings.Join(order, ", "))
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
