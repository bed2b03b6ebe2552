package data

import (
	"fmt"

	"lockstep/pkg/data/internal/stream"
	"lockstep/pkg/internal/english"
)

// SamplerOptions says how an epoch's samples are dealt to workers.
type SamplerOptions struct {
	Samples        int   `yaml:"samples" json:"samples"` // in the data set
	World          int   `yaml:"world" json:"world"`     // workers
	Rank           int   `yaml:"rank" json:"rank"`       // this worker, from 0
	BatchPerWorker int   `yaml:"batch_per_worker" json:"batch_per_worker"`
	Seed           int64 `yaml:"seed" json:"seed"`
	Shuffle        bool  `yaml:"shuffle" json:"shuffle"`     // by seed and epoch; false: ascending order
	DropLast       bool  `yaml:"drop_last" json:"drop_last"` // leave a last, smaller global batch out instead of padding it
	// ShardFirst gives each rank every World-th sample for all epochs, which it
	// shuffles for itself, instead of dealing out one permutation of all: the
	// batches of N workers are then not those of one worker with an N-fold batch.
	ShardFirst bool `yaml:"shard_first,omitempty" json:"shard_first,omitempty"`
	// ShuffleBatches keeps the batches of epoch 0 together and shuffles their order.
	ShuffleBatches bool `yaml:"shuffle_batches,omitempty" json:"shuffle_batches,omitempty"`
}

// Validate reports the first value that cannot be.
func (c SamplerOptions) Validate() error {
	switch {
	case c.Samples < 1:
		return fmt.Errorf("validate sampler: the data set has %s: it needs at least 1", english.Count(c.Samples, "sample"))
	case c.World < 1:
		return fmt.Errorf("validate sampler: world size is %d: use at least 1 worker", c.World)
	case c.Rank < 0 || c.Rank >= c.World:
		return fmt.Errorf("validate sampler: rank %d is not in 0 to %d", c.Rank, c.World-1)
	case c.BatchPerWorker < 1:
		return fmt.Errorf("validate sampler: batch per worker is %d: use at least 1", c.BatchPerWorker)
	case c.ShardFirst && c.Samples < c.World:
		return fmt.Errorf("validate sampler: %d samples are fewer than %d workers, and each keeps its share: use fewer workers", c.Samples, c.World)
	case c.DropLast && c.Samples < c.World*c.BatchPerWorker:
		return fmt.Errorf("validate sampler: %d samples do not fill one global batch of %d (%d workers × %d), and drop_last leaves the rest out: use a smaller batch, fewer workers, or drop_last: false",
			c.Samples, c.World*c.BatchPerWorker, c.World, c.BatchPerWorker)
	}
	return nil
}

// Sampler deals the samples of each epoch to the workers. An epoch is a
// permutation of all samples that depends on seed and epoch alone. Global
// batch s of N workers with batch b is its elements s·N·b to (s+1)·N·b, of
// which rank r takes the r-th b: N workers with batch b see in each step the
// samples that 1 worker sees with batch N·b, in the same order.
//
// No sample is lost or doubled, with the exception of padding: the last global
// batch is filled up from the start of the permutation, or left out with
// DropLast.
type Sampler struct {
	c       SamplerOptions
	steps   int
	padding int
}

// NewSampler is the sampler of one rank.
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

// Config is what the sampler was made with.
func (s *Sampler) Config() SamplerOptions { return s.c }

// Steps is the number of batches of each rank in an epoch.
func (s *Sampler) Steps() int { return s.steps }

// Padding is the number of samples an epoch, over all ranks, that repeat
// others to fill the last global batch.
func (s *Sampler) Padding() int { return s.padding }

// Dropped is the number of samples that an epoch leaves out, over all ranks.
func (s *Sampler) Dropped() int {
	return max(0, s.c.Samples-s.steps*s.c.World*s.c.BatchPerWorker)
}

// Epoch is the batches of this rank in epoch e (from 0): Steps() lists of
// BatchPerWorker sample indices.
func (s *Sampler) Epoch(e int) [][]int {
	if s.c.ShuffleBatches {
		return s.shuffled(e)
	}
	return s.batches(e)
}

func (s *Sampler) batches(e int) [][]int {
	perm := s.permutation(e)
	batches := make([][]int, s.steps)
	for step := range batches {
		batch := make([]int, s.c.BatchPerWorker)
		for j := range batch {
			batch[j] = perm[(s.position(step)+j)%len(perm)]
		}
		batches[step] = batch
	}
	return batches
}

// shuffled is the batches of ascending samples in the order of epoch e, equal on
// all ranks. A last batch with padding stays the last.
func (s *Sampler) shuffled(e int) [][]int {
	fixed := *s
	fixed.c.Shuffle = false
	batches := fixed.batches(0)
	if !s.c.Shuffle {
		return batches
	}
	n := len(batches)
	if s.padding > 0 {
		n--
	}
	stream.New(s.c.Seed, stream.Shuffle, uint64(e)).Shuffle(n, func(i, j int) { batches[i], batches[j] = batches[j], batches[i] })
	return batches
}

// position is where this rank's batch of a step starts in the permutation
// (padding goes on beyond its end).
func (s *Sampler) position(step int) int {
	if s.c.ShardFirst {
		return step * s.c.BatchPerWorker
	}
	return (step*s.c.World + s.c.Rank) * s.c.BatchPerWorker
}

// paddingOf is how many of this rank's samples of a step are padding; they are
// the last ones of the batch.
func (s *Sampler) paddingOf(step int) int {
	beyond := s.position(step) + s.c.BatchPerWorker - s.share()
	return min(max(beyond, 0), s.c.BatchPerWorker)
}

// share is how many samples the permutation has.
func (s *Sampler) share() int {
	if s.c.ShardFirst {
		return (s.c.Samples - s.c.Rank + s.c.World - 1) / s.c.World
	}
	return s.c.Samples
}

// permutation is the samples in the order of epoch e: all, or with ShardFirst
// this rank's.
func (s *Sampler) permutation(e int) []int {
	if s.c.ShardFirst {
		own := make([]int, s.share())
		for i := range own {
			own[i] = s.c.Rank + i*s.c.World
		}
		if s.c.Shuffle {
			stream.New(s.c.Seed, stream.Shuffle, uint64(e), uint64(s.c.Rank)).Shuffle(len(own), func(i, j int) { own[i], own[j] = own[j], own[i] })
		}
		return own
	}
	if s.c.Shuffle {
		return stream.New(s.c.Seed, stream.Shuffle, uint64(e)).Perm(s.c.Samples)
	}
	perm := make([]int, s.c.Samples)
	for i := range perm {
		perm[i] = i
	}
	return perm
}
