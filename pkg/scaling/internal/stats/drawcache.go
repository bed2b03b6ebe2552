package stats

import (
	"math/rand/v2"
	"sync"
)

// ResampleCache generates and caches the random draws of a study's bootstraps. This saves time in
// studies with many runs. The draws are always the same, so the same logs give the same intervals
// to the last digit.
type ResampleCache struct {
	mu   sync.Mutex
	sets map[resampleKey]*resampleDraws
}

// resampleKey identifies a set of draws. Independent draws have different keys.
type resampleKey struct {
	side int // 0 for the numerator, 1 for the denominator; see also Estimator.ResampleCenters
	n    int // number of runs
}

type resampleDraws struct {
	pick  []int32   // indices of runs
	noise []float64 // standard normal deviates
}

// NewResampleCache returns an empty cache.
func NewResampleCache() *ResampleCache { return &ResampleCache{sets: map[resampleKey]*resampleDraws{}} }

// draws returns the random draws for one side (see resampleKey) with n runs. For each resample, they
// contain n indices of runs and n standard normal deviates. The caller must not modify them.
func (c *ResampleCache) draws(side, n int) *resampleDraws {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := resampleKey{side, n}
	if r := c.sets[key]; r != nil {
		return r
	}
	rng := rand.New(rand.NewPCG(uint64(side), uint64(n)))
	r := &resampleDraws{pick: make([]int32, BootstrapResamples*n), noise: make([]float64, BootstrapResamples*n)}
	for i := range r.pick {
		r.pick[i], r.noise[i] = int32(rng.IntN(n)), rng.NormFloat64()
	}
	c.sets[key] = r
	return r
}
