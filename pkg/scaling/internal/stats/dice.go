package stats

import (
	"math/rand/v2"
	"sync"
)

// Dice generates and caches the random draws of a study's bootstraps, one set for each
// number of runs. The draws are the same in every program, so the same logs give the
// same intervals to the last digit. Caching avoids new draws for each number of a study
// with a thousand runs.
type Dice struct {
	mu    sync.Mutex
	rolls map[drawKey]*drawSet
}

// drawKey identifies a set of draws. Draws that must be independent have different
// keys.
type drawKey struct {
	side int // 0 for the numerator, 1 for the denominator
	n    int // runs
}

// drawSet contains the draws for one side with n runs: for each resample, n indices of
// runs and n standard normal deviates.
type drawSet struct {
	pick  []int32
	noise []float64
}

// NewDice returns a Dice with an empty cache.
func NewDice() *Dice { return &Dice{rolls: map[drawKey]*drawSet{}} }

// draws returns the draws for a side with n runs. The caller must not modify them.
func (d *Dice) draws(side, n int) *drawSet {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := drawKey{side, n}
	if r := d.rolls[key]; r != nil {
		return r
	}
	rng := rand.New(rand.NewPCG(uint64(side), uint64(n)))
	r := &drawSet{pick: make([]int32, Resamples*n), noise: make([]float64, Resamples*n)}
	for i := range r.pick {
		r.pick[i], r.noise[i] = int32(rng.IntN(n)), rng.NormFloat64()
	}
	d.rolls[key] = r
	return r
}
