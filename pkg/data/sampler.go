package data

import (
	"fmt"

	"lockstep/pkg/data/internal/stream"
	"lockstep/pkg/internal/english"
)

// SamplerOptions configures how a Sampler distributes the samples of an epoch to workers.
type SamplerOptions struct {
	Samples        int   `yaml:"samples" json:"samples"` // number of samples in the data set
	World          int   `yaml:"world" json:"world"`     // workers
	Rank           int   `yaml:"rank" json:"rank"`       // this worker, from 0
	BatchPerWorker int   `yaml:"batch_per_worker" json:"batch_per_worker"`
	Seed           int64 `yaml:"seed" json:"seed"`
	Shuffle        bool  `yaml:"shuffle" json:"shuffle"`     // permute the samples, differently in each epoch; false: ascending order
	DropLast       bool  `yaml:"drop_last" json:"drop_last"` // omit an incomplete last global batch instead of padding it
	// ShardFirst assigns the samples Rank, Rank+World, Rank+2·World, … to each rank for all epochs. Each
	// rank then shuffles its own samples, so that the batches of N workers differ from those of one worker
	// with an N times larger batch. If it is false, all samples are permuted first and then distributed.
	ShardFirst bool `yaml:"shard_first,omitempty" json:"shard_first,omitempty"`
	// ShuffleBatches uses the same batches in all epochs and shuffles only their order.
	ShuffleBatches bool `yaml:"shuffle_batches,omitempty" json:"shuffle_batches,omitempty"`
}

// Validate returns an error for the first invalid field.
func (c SamplerOptions) Validate() error {
	switch {
	case c.Samples < 1:
		return fmt.Errorf("validate sampler: the data set has %s: want at least 1", english.FormatCount(c.Samples, "sample"))
	case c.World < 1:
		return fmt.Errorf("validate sampler: world size is %d: use at least 1 worker", c.World)
	case c.Rank < 0 || c.Rank >= c.World:
		return fmt.Errorf("validate sampler: rank %d is not in 0 to %d", c.Rank, c.World-1)
	case c.BatchPerWorker < 1:
		return fmt.Errorf("validate sampler: batch per worker is %d: use at least 1", c.BatchPerWorker)
	case c.ShardFirst && c.Samples < c.World:
		return fmt.Errorf("validate sampler: got %d samples for %d workers, want at least one sample per worker: use fewer workers", c.Samples, c.World)
	case c.DropLast && c.Samples < c.World*c.BatchPerWorker:
		return fmt.Errorf("validate sampler: %d samples do not fill one global batch of %d (%d workers × %d), and drop_last omits incomplete batches: use a smaller batch, fewer workers, or drop_last: false",
			c.Samples, c.World*c.BatchPerWorker, c.World, c.BatchPerWorker)
	}
	return nil
}

// Sampler distributes the samples of each epoch to the workers. An epoch is a permutation of all
// samples that depends only on the seed and the epoch. With N workers and batch b, the global batch
// of step s consists of elements s·N·b to (s+1)·N·b − 1 of the permutation, and rank r gets the
// r-th block of b elements. So N workers with batch b process in each step the same samples, in the
// same order, as 1 worker with batch N·b.
//
// An incomplete last global batch is filled with samples from the start of the permutation, or
// omitted if DropLast is set.
type Sampler struct {
	c       SamplerOptions
	steps   int
	padding int
}

// NewSampler returns the sampler of rank c.Rank.
func NewSampler(c SamplerOptions) (*Sampler, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	global := c.World * c.BatchPerWorker
	s := &Sampler{c: c, steps: c.Samples / global}
	if rest := c.Samples % global; rest != 0 && !c.DropLast {
		s.steps++
		s.padding = global - rest
	}
	return s, nil
}

// Config returns the options of the sampler.
func (s *Sampler) Config() SamplerOptions { return s.c }

// Steps returns the number of batches per rank and epoch.
func (s *Sampler) Steps() int { return s.steps }

// Padding returns how many samples, over all ranks, are repeated in an epoch to fill the last global batch.
func (s *Sampler) Padding() int { return s.padding }

// Epoch returns the Steps() batches of this rank in epoch e (from 0). Each consists of
// BatchPerWorker sample indices.
func (s *Sampler) Epoch(e int) [][]int {
	if s.c.ShuffleBatches {
		return s.shuffledBatches(e)
	}
	return s.permutedBatches(e)
}

func (s *Sampler) permutedBatches(e int) [][]int {
	perm := s.permutation(e)
	batches := make([][]int, s.steps)
	for step := range batches {
		batch := make([]int, s.c.BatchPerWorker)
		for j := range batch {
			batch[j] = perm[(s.batchStart(step)+j)%len(perm)]
		}
		batches[step] = batch
	}
	return batches
}

// shuffledBatches returns batches of consecutive samples, in an order that depends on epoch e and
// is the same on all ranks. A padded batch remains the last one.
func (s *Sampler) shuffledBatches(e int) [][]int {
	fixed := *s
	fixed.c.Shuffle = false
	batches := fixed.permutedBatches(0)
	if !s.c.Shuffle {
		return batches
	}
	n := len(batches)
	if s.padding > 0 {
		n--
	}
	stream.NewRand(s.c.Seed, stream.Shuffle, uint64(e)).Shuffle(n, func(i, j int) { batches[i], batches[j] = batches[j], batches[i] })
	return batches
}

// batchStart returns the index, in the permutation, of the first sample of this rank's batch in the
// given step. Indices beyond the end of the permutation are padding.
func (s *Sampler) batchStart(step int) int {
	if s.c.ShardFirst {
		return step * s.c.BatchPerWorker
	}
	return (step*s.c.World + s.c.Rank) * s.c.BatchPerWorker
}

// stepPadding returns how many samples at the end of this rank's batch are padding.
func (s *Sampler) stepPadding(step int) int {
	beyond := s.batchStart(step) + s.c.BatchPerWorker - s.permutationLength()
	return min(max(beyond, 0), s.c.BatchPerWorker)
}

// permutationLength returns the number of all samples or, if ShardFirst is set, of this rank's samples.
func (s *Sampler) permutationLength() int {
	if s.c.ShardFirst {
		return (s.c.Samples - s.c.Rank + s.c.World - 1) / s.c.World
	}
	return s.c.Samples
}

// permutation returns all sample indices or, if ShardFirst is set, this rank's, in the order of epoch e.
func (s *Sampler) permutation(e int) []int {
	if s.c.ShardFirst {
		own := make([]int, s.permutationLength())
		for i := range own {
			own[i] = s.c.Rank + i*s.c.World
		}
		if s.c.Shuffle {
			stream.NewRand(s.c.Seed, stream.Shuffle, uint64(e), uint64(s.c.Rank)).Shuffle(len(own), func(i, j int) { own[i], own[j] = own[j], own[i] })
		}
		return own
	}
	if s.c.Shuffle {
		return stream.NewRand(s.c.Seed, stream.Shuffle, uint64(e)).Perm(s.c.Samples)
	}
	return integersBelow(s.c.Samples)
}

// EvaluationOptions selects the part of a data set that a rank evaluates, and configures how its
// samples are loaded.
type EvaluationOptions struct {
	World    int `yaml:"world" json:"world"` // workers
	Rank     int `yaml:"rank" json:"rank"`   // this worker, from 0
	Batch    int `yaml:"batch" json:"batch"`
	Workers  int `yaml:"workers" json:"workers"`   // as in LoaderOptions
	Prefetch int `yaml:"prefetch" json:"prefetch"` // as in LoaderOptions
}

// Validate returns an error for the first invalid field.
func (c EvaluationOptions) Validate() error {
	switch {
	case c.World < 1:
		return fmt.Errorf("validate evaluation: world size is %d: use at least 1 worker", c.World)
	case c.Rank < 0 || c.Rank >= c.World:
		return fmt.Errorf("validate evaluation: rank %d is not in 0 to %d", c.Rank, c.World-1)
	case c.Batch < 1:
		return fmt.Errorf("validate evaluation: batch is %d: use at least 1", c.Batch)
	}
	return nil
}

// NewEvaluationLoader returns a loader of the part of ds that rank c.Rank evaluates, in ascending
// order and without augmentation. All ranks together load every sample exactly once. If a rank's
// last batch is incomplete, it is filled by repeating its last sample Batch.Padding times: evaluate
// only the first Batch.ValidCount() samples. If there are fewer samples than ranks, some ranks have
// no batch. All epochs have the same batches.
func NewEvaluationLoader(ds Dataset, c EvaluationOptions) (*Loader, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	n := ds.Len()
	s := &evaluationShard{lo: n * c.Rank / c.World, hi: n * (c.Rank + 1) / c.World, batch: c.Batch}
	return newLoader(ds, s, c.Batch, LoaderOptions{Workers: c.Workers, Prefetch: c.Prefetch})
}

// evaluationShard is the batchSampler of NewEvaluationLoader: samples lo to hi−1 in ascending order.
type evaluationShard struct{ lo, hi, batch int }

func (s *evaluationShard) Steps() int { return (s.hi - s.lo + s.batch - 1) / s.batch }

func (s *evaluationShard) Epoch(int) [][]int {
	batches := make([][]int, s.Steps())
	for step := range batches {
		batch := make([]int, s.batch)
		for j := range batch {
			batch[j] = min(s.lo+step*s.batch+j, s.hi-1)
		}
		batches[step] = batch
	}
	return batches
}

func (s *evaluationShard) stepPadding(step int) int {
	return max(0, s.lo+(step+1)*s.batch-s.hi)
}
