package stats

import (
	"math/rand/v2"
	"sync"
)

// Dice are the random draws of a study's bootstraps: they are drawn once for
// each number of runs, and are the same in every program, so that the same
// logs give the same intervals to the last digit, and a study of a thousand
// runs does not draw them again for each of its numbers.
type Dice struct {
	mu    sync.Mutex
	rolls map[rollKey]*rolls
}

// rollKey tells draws that must be independent apart.
type rollKey struct {
	side int // 0 for the numerator, 1 for the denominator
	n    int // runs
}

// rolls are the draws of a side with n runs: for each resample n runs, and
// with each a normal deviate.
type rolls struct {
	pick  []int32
	noise []float64
}

// NewDice returns dice that have not been rolled.
func NewDice() *Dice { return &Dice{rolls: map[rollKey]*rolls{}} }

// of returns the draws of a side with n runs. They must not be changed.
func (d *Dice) of(side, n int) *rolls {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := rollKey{side, n}
	if r := d.rolls[key]; r != nil {
		return r
	}
	rng := rand.New(rand.NewPCG(uint64(side), uint64(n)))
	r := &rolls{pick: make([]int32, Resamples*n), noise: make([]float64, Resamples*n)}
	for i := range r.pick {
		r.pick[i], r.noise[i] = int32(rng.IntN(n)), rng.NormFloat64()
	}
	d.rolls[key] = r
	return r
}
