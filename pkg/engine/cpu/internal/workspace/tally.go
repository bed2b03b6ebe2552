package workspace

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
)

// Tally says how the statistics of an activation are taken: in parts that
// depend on the shapes alone, so that whoever computes them, and in whatever
// order, gives the same bits. Of each part and channel block there are three
// blocks of eight floats in executable.tallies: a value of the part's, and the
// sums of the distances from it and of their squares, which lose nothing where
// the mean is far from zero.
type Tally struct {
	Channels int   // blocks
	Pixels   []int // of each part
}

// At is where the statistics of a part's channel block lie.
func (t *Tally) At(part, channel int) int {
	return (part*t.Channels + channel) * kernel.DeviationFloats
}

// floats is the number of floats of all.
func (t *Tally) Size() int { return len(t.Pixels) * t.Channels * kernel.DeviationFloats }

// Begin starts a part's channel block whose first pixel is given.
func (t *Tally) Begin(to []float32, part, channel int, first []float32) []float32 {
	to = to[t.At(part, channel):][:kernel.DeviationFloats]
	copy(to, first[:kernel.Lanes])
	clear(to[kernel.Lanes:])
	return to
}

// Merge joins the parts of a channel block to means and sums of squared
// distances from them (Chan, Golub and LeVeque, Updating Formulae and a Pairwise
// Algorithm for Computing Sample Variances, 1979, equation 2.1).
func (t *Tally) Merge(from []float32, channel int) (mean, m2 [kernel.Lanes]float64) {
	var n float64
	for part, pixels := range t.Pixels {
		k := float64(pixels)
		v := from[t.At(part, channel):][:kernel.DeviationFloats]
		for l := range kernel.Lanes {
			sum, squares := float64(v[kernel.Lanes+l]), float64(v[2*kernel.Lanes+l])
			d := float64(v[l]) + sum/k - mean[l]
			mean[l] += d * k / (n + k)
			m2[l] += max(0, squares-sum*sum/k) + d*d*n*k/(n+k)
		}
		n += k
	}
	return mean, m2
}
