package conv

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
)

// UseWinograd reports whether a convolution is computed by Winograd's method:
// method is engine.Options.Convolution.
func UseWinograd(method string, large, small, weights tensor.Operand, stride, pad [3]int) bool {
	if method == "direct" || stride != [3]int{1, 1, 1} ||
		(weights.Space != [3]int{1, 3, 3} || pad != [3]int{0, 1, 1}) && (weights.Space != [3]int{3, 3, 3} || pad != [3]int{1, 1, 1}) {
		return false
	}
	return method == "winograd" || winogradPays(large, small, weights)
}

// Costs of the transforms in multiplications and additions of the matrix
// kernel, from the times of each on one core (BenchmarkConvolution's maps of
// 8×8): those of a tile's input and output by channel, and that of a weight,
// which is greater where its points must go to memory and back.
const (
	inputCost     = 500
	outputCost    = 250
	weightCost    = 300
	farWeightCost = 1600
	nearBytes     = 16 << 20
)

// winogradPays says whether a convolution is expected to take less time by
// tiles than product by product: that is, whether there are enough tiles to pay
// for the weights' transform, and enough channels to pay for the tiles'.
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
		first, end := t.within(z)
		inside += t.count * (end - first)
	}
	direct := depth * kernel.Taps * c * k * images * tensor.Elements(large.Space[:])
	weight := weightCost
	if kernel.Points*depth*c*k*4 > nearBytes {
		weight = farWeightCost
	}
	return c*k*(kernel.Points*inside+depth*weight)+tiles*(inputCost*c+outputCost*k) < direct
}
