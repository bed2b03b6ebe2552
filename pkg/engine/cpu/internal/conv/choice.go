package conv

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
)

// UseWinograd reports whether a convolution is computed with Winograd's algorithm.
// method is engine.Options.Convolution.
func UseWinograd(method string, large, small, weights tensor.Operand, stride, pad [3]int) bool {
	if method == "direct" || stride != [3]int{1, 1, 1} ||
		(weights.Space != [3]int{1, 3, 3} || pad != [3]int{0, 1, 1}) && (weights.Space != [3]int{3, 3, 3} || pad != [3]int{1, 1, 1}) {
		return false
	}
	return method == "winograd" || winogradPays(large, small, weights)
}

// Costs of the transforms, in multiplications and additions of the matrix kernel. They
// were measured on one core with BenchmarkConvolution's maps of 8×8.
const (
	inputCost     = 500      // of a tile's inputs, per channel
	outputCost    = 250      // of a tile's outputs, per channel
	weightCost    = 300      // of a weight whose points stay in the cache
	farWeightCost = 1600     // of a weight whose points are written to memory
	nearBytes     = 16 << 20 // greatest size of transformed weights that stay in the cache
)

// winogradPays reports whether Winograd's algorithm is expected to take less time than
// the direct one: whether there are enough tiles to pay for the transform of the
// weights, and enough channels to pay for the transforms of the tiles.
func winogradPays(large, small, weights tensor.Operand) bool {
	c, k := large.Shape[1], small.Shape[1]
	if min(c, k) <= flatChannels {
		return false // the direct algorithm leaves the padding out
	}
	c, k = tensor.RoundUp(c, lanes), tensor.RoundUp(k, lanes)
	images, depth := large.Shape[0], weights.Space[0]
	t := newTiling(images, large.Space, depth)
	tiles, inside := t.count*t.depth, 0
	for z := range t.depth {
		first, end := t.tapsInside(z)
		inside += t.count * (end - first)
	}
	direct := depth * kernel.Taps * c * k * images * tensor.Elements(large.Space[:])
	weight := weightCost
	if kernel.Points*depth*c*k*4 > nearBytes {
		weight = farWeightCost
	}
	return c*k*(kernel.Points*inside+depth*weight)+tiles*(inputCost*c+outputCost*k) < direct
}
