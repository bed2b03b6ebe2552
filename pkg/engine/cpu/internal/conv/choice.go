package conv

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
)

// ShouldUseWinograd reports whether to use Winograd's algorithm for a convolution, its
// transpose, or one of their gradients. large and small are the convolution's input and output
// maps. method is engine.Options.Convolution.
func ShouldUseWinograd(method string, large, small, weights tensor.Operand, stride, pad [3]int) bool {
	if method == "direct" || stride != [3]int{1, 1, 1} ||
		(weights.Space != [3]int{1, 3, 3} || pad != [3]int{0, 1, 1}) && (weights.Space != [3]int{3, 3, 3} || pad != [3]int{1, 1, 1}) {
		return false
	}
	return method == "winograd" || isWinogradFaster(large, small, weights)
}

// ShouldUseBF16 reports whether DirectBF16 or DirectBF16Gradient should compute a convolution,
// its transpose, or one of their gradients. large and small are the convolution's input and
// output maps. set is nil if the precision is fp32. method is engine.Options.Convolution.
// winograd reports whether Winograd's algorithm is the alternative.
func ShouldUseBF16(set *kernel.BF16Kernels, method string, large, small tensor.Operand, s geometry, winograd bool) bool {
	if set == nil || !SupportsBF16(s) || min(large.Shape[1], small.Shape[1]) < minBF16Channels {
		return false
	}
	return !winograd || set.Direct && method != "winograd"
}

// minBF16Channels is the least number of channels for which rounding to bfloat16 saves time,
// because channels are padded to a multiple of 32.
const minBF16Channels = 16

// Costs of Winograd's transforms, in units of one multiplication and addition of the matrix
// kernel. They were measured on one core with the 8×8 maps of BenchmarkConvolution.
const (
	inputCost          = 500      // to transform the inputs of a tile, per channel
	outputCost         = 250      // to transform the outputs of a tile, per channel
	weightCost         = 300      // to transform a weight whose points stay in the cache
	uncachedWeightCost = 1600     // to transform a weight whose points are written to memory
	cachedWeightBytes  = 16 << 20 // greatest size of transformed weights that stay in the cache
)

// isWinogradFaster estimates whether Winograd's algorithm takes less time than Direct. Its
// transforms only pay off with enough tiles and enough channels.
func isWinogradFaster(large, small, weights tensor.Operand) bool {
	c, k := large.Shape[1], small.Shape[1]
	if min(c, k) <= maxUnpaddedChannels {
		return false // the direct algorithm leaves the padding out
	}
	c, k = tensor.RoundUp(c, lanes), tensor.RoundUp(k, lanes)
	images, depth := large.Shape[0], weights.Space[0]
	t := newWinogradTiling(images, large.Space, depth)
	tiles, inside := t.count*t.depth, 0
	for z := range t.depth {
		first, end := t.tapsInsideVolume(z)
		inside += t.count * (end - first)
	}
	direct := depth * kernel.Taps * c * k * images * tensor.ElementCount(large.Space[:])
	weight := weightCost
	if kernel.Points*depth*c*k*4 > cachedWeightBytes {
		weight = uncachedWeightCost
	}
	return c*k*(kernel.Points*inside+depth*weight)+tiles*(inputCost*c+outputCost*k) < direct
}
