package data

import "fmt"

// EvaluationOptions configures a rank's part of a data set, and how its samples are loaded.
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

// NewEvaluationLoader returns a loader of rank c.Rank's part of ds, in ascending order and without
// augmentation. All ranks together load every sample exactly once. The last sample of a rank is repeated
// Batch.Padding times to fill its last batch: evaluate only the first Batch.ValidCount() samples. If
// there are fewer samples than ranks, some ranks have no batch. All epochs have the same batches.
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
