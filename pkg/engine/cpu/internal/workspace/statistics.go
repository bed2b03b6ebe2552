package workspace

import "lockstep/pkg/engine/cpu/internal/kernel"

// ChannelStatistics describes how the mean and the variance of an activation's channels are
// computed: in parts that depend only on the shapes, so that the result has the same bits
// for any number of threads and any order of computation. For each part and channel block,
// Workspace.Partial contains three blocks of eight floats: the first pixel of the part, the
// sums of the differences from it, and the sums of the squared differences. Differences
// remain precise if the mean is far from zero.
type ChannelStatistics struct {
	Channels int   // in blocks
	Pixels   []int // number of pixels of each part
}

// PartSumsOffset returns the index in Workspace.Partial of the sums of a part for a channel block.
func (s *ChannelStatistics) PartSumsOffset(part, channel int) int {
	return (part*s.Channels + channel) * kernel.DeviationSumFloats
}

// PartialSumFloats returns the number of floats in Workspace.Partial that all parts need.
func (s *ChannelStatistics) PartialSumFloats() int {
	return len(s.Pixels) * s.Channels * kernel.DeviationSumFloats
}

// BeginPartSums initializes the sums for one part and one channel block and returns them. The
// caller adds to them with kernel.Set.Deviations. pixels contains the pixels of the part, of
// which BeginPartSums reads only the first.
func (s *ChannelStatistics) BeginPartSums(to []float32, part, channel int, pixels []float32) []float32 {
	to = to[s.PartSumsOffset(part, channel):][:kernel.DeviationSumFloats]
	copy(to, pixels[:kernel.Lanes])
	clear(to[kernel.Lanes:])
	return to
}

// MergePartSums combines the sums of all parts for one channel block. It returns the mean of each
// channel and the sum m2 of squared differences from that mean (Chan, Golub and LeVeque,
// Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979, equation
// 2.1).
func (s *ChannelStatistics) MergePartSums(from []float32, channel int) (mean, m2 [kernel.Lanes]float64) {
	var n float64
	for part, pixels := range s.Pixels {
		k := float64(pixels)
		v := from[s.PartSumsOffset(part, channel):][:kernel.DeviationSumFloats]
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
