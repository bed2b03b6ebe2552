package workspace

import "lockstep/pkg/engine/cpu/internal/kernel"

// Statistics describes how mean and variance of the channels of an activation are
// computed: in parts that depend on the shapes alone, so that the result has the
// same bits for every number of threads and order of computation. For each part
// and channel block, Workspace.Partial holds three blocks of eight floats: the
// part's first pixel, the sums of the differences from it, and the sums of their
// squares. Differences keep their precision if the mean is far from zero.
type Statistics struct {
	Channels int   // in blocks
	Pixels   []int // number of pixels of each part
}

// At returns the index in Workspace.Partial of the sums that a part of the batch has for
// the block of channels that begins at channel.
func (s *Statistics) At(part, channel int) int {
	return (part*s.Channels + channel) * kernel.DeviationFloats
}

// Size returns the number of floats in Workspace.Partial that all parts take.
func (s *Statistics) Size() int { return len(s.Pixels) * s.Channels * kernel.DeviationFloats }

// Begin initializes the statistics of a part's channel block with its first pixel,
// and returns them for kernel.Set.Deviations to add to.
func (s *Statistics) Begin(to []float32, part, channel int, first []float32) []float32 {
	to = to[s.At(part, channel):][:kernel.DeviationFloats]
	copy(to, first[:kernel.Lanes])
	clear(to[kernel.Lanes:])
	return to
}

// Merge combines the parts of a channel block to the means and the sums of squared
// differences from them (Chan, Golub and LeVeque, Updating Formulae and a Pairwise
// Algorithm for Computing Sample Variances, 1979, equation 2.1).
func (s *Statistics) Merge(from []float32, channel int) (mean, m2 [kernel.Lanes]float64) {
	var n float64
	for part, pixels := range s.Pixels {
		k := float64(pixels)
		v := from[s.At(part, channel):][:kernel.DeviationFloats]
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
