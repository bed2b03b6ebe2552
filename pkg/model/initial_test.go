package model_test

import (
	"math"
	"testing"

	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// TestInitialValues: parameters begin as the frameworks' networks do. Deviations
// are by hand: torchvision's convolutions √(2/(out·k²)) (He et al., fan-out), Keras'
// uniform to √(6/((in+out)·k²)) (Glorot), the SC21 tutorial's 0.02, PyTorch's own
// uniform to 1/√(in·k²).
func TestInitialValues(t *testing.T) {
	type want struct {
		name      string
		deviation float64 // 0: all values are 0
		uniform   bool    // to √3 times the deviation
	}
	uniform := func(limit float64) float64 { return limit / math.Sqrt(3) }
	for _, c := range []struct {
		config        model.Config
		image, target []int
		params        []want
	}{
		{model.Config{Kind: "resnet", Base: 32, Blocks: []int{1, 1}}, []int{3, 32, 32}, []int{1}, []want{
			{"conv1.weight", math.Sqrt(2. / (32 * 49)), false},
			{"layer1.0.conv2.weight", math.Sqrt(2. / (32 * 9)), false},
			{"layer2.0.downsample.0.weight", math.Sqrt(2. / 256), false},
			{"fc.weight", uniform(1 / math.Sqrt(256)), true},
		}},
		{model.Config{Kind: "resnetv2", Base: 32, Blocks: []int{2, 2}}, []int{3, 32, 32}, []int{1}, []want{
			{"conv1_conv.weight", uniform(math.Sqrt(6. / (35 * 49))), true},
			{"conv2_block1_2_conv.weight", uniform(math.Sqrt(6. / (64 * 9))), true},
			{"conv3_block1_0_conv.weight", uniform(math.Sqrt(6. / (128 + 256))), true},
			{"predictions.weight", uniform(math.Sqrt(6. / (256 + 10))), true},
			{"conv1_conv.bias", 0, false},
			{"predictions.bias", 0, false},
		}},
		{model.Config{Kind: "unet3d", Base: 8, Depth: 2}, []int{4, 8, 8, 8}, []int{5, 8, 8, 8}, []want{
			{"down.1.weight", 0.02, false}, {"up.1.weight", 0.02, false}, {"up.0.weight", 0.02, false}, {"down.0.bias", 0, false}, {"up.0.bias", 0, false},
		}},
		{model.Config{Kind: "unet2d", Base: 16, Depth: 2, Norm: "batch", Bias: true}, []int{1, 8, 8}, []int{1, 8, 8}, []want{
			{"down.1.a.conv.weight", uniform(1 / math.Sqrt(16*9)), true}, {"bridge.b.conv.weight", uniform(1 / math.Sqrt(64*9)), true},
		}},
	} {
		net, err := c.config.Network(c.image, c.target)
		if err != nil {
			t.Fatal(err)
		}
		values := graph(t, net, 1, nn.Eval).InitialValues(1)
		for _, p := range c.params {
			v := values[p.name]
			sum, squares, largest := 0.0, 0.0, 0.0
			for _, x := range v {
				sum, squares, largest = sum+x, squares+x*x, max(largest, math.Abs(x))
			}
			n := float64(len(v))
			deviation := math.Sqrt(squares / n)
			// The estimate of a deviation is off by less than 4/√(2n) of it, of a mean by 4/√n.
			if n == 0 || math.Abs(deviation-p.deviation) > p.deviation*4/math.Sqrt(2*n) || math.Abs(sum/n) > p.deviation*4/math.Sqrt(n) {
				t.Errorf("%s: %s begins with %g values of mean %g and deviation %g, want 0 and %g", net.Name(), p.name, n, sum/n, deviation, p.deviation)
			}
			if limit := p.deviation * math.Sqrt(3); (largest <= limit) != (p.uniform || p.deviation == 0) {
				t.Errorf("%s: %s begins with values up to %g, the limit of a uniform one is %g", net.Name(), p.name, largest, limit)
			}
		}
	}
}
