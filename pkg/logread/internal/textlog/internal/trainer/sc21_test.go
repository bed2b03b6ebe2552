package trainer

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestComputeSamples: seconds × rate is the number of samples, unless it is not close to an
// integer that a log can contain.
func TestComputeSamples(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		n := math.Trunc(math.Ldexp(rng.Float64(), rng.IntN(40))) + 1
		seconds := 1000 * rng.Float64()
		if got := samplesFromRate(seconds, n/seconds); got != int(n) {
			t.Fatalf("%v s × %v: got %d samples, want %g", seconds, n/seconds, got, n)
		}
		if got := samplesFromRate(seconds, (n+0.5)/seconds); got != 0 && n < 1<<28 { // half a sample is then more than 1e-9
			t.Fatalf("%v s × %v: got %d samples, want 0", seconds, (n+0.5)/seconds, got)
		}
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), -1, 0, 0.3, 1 << 41} {
		if got := samplesFromRate(1, v); got != 0 {
			t.Errorf("1 s × %v: got %d samples, want 0", v, got)
		}
	}
}
