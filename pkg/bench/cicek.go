package bench

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// newCicekUNet returns the 3-D U-Net of Çiçek et al., 3D U-Net: Learning Dense Volumetric Segmentation from
// Sparse Annotation, 2016, arXiv:1606.06650. Inputs are volumes of size voxels per side with three channels,
// outputs three logits per voxel, as in the paper.
//
// Each of the depth encoder levels has two 3×3×3 convolutions, to base·2^level and twice as many channels,
// each with batch norm and ReLU, followed by a 2×2×2 pooling. The bridge has two such convolutions. Each
// decoder level has a 2×2×2 transposed convolution that keeps the channels, the concatenation [up, skip], and
// two convolutions to the skip's channels. The head is a 1×1×1 convolution. As is usual today, convolutions
// are padded, and have no biases before a batch norm.
func newCicekUNet(base, depth, size int) (model.Network, error) {
	const channels = 3
	if base < 1 || depth < 1 || depth > 8 || size < 1 || size%(1<<depth) != 0 {
		return nil, fmt.Errorf("bench: %s: got base %d, depth %d and size %d, want a base of at least 1, a depth of 1 to 8, and a size that is divisible by 2 to the power of depth",
			modelUNet3DK3, base, depth, size)
	}
	conv := func(g *nn.Graph, name string, x *gorgonia.Node, out int) *gorgonia.Node {
		x = g.Conv(name+".conv", x, nn.Convolution{Out: out, Kernel: []int{3}, Pad: []int{1}})
		return g.ReLU(g.BatchNorm(name+".norm", x))
	}
	build := func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
		var skips []*gorgonia.Node
		for i := range depth {
			name := fmt.Sprintf("down.%d", i)
			x = conv(g, name+".b", conv(g, name+".a", x, base<<i), 2*base<<i)
			skips = append(skips, x)
			x = g.MaxPool(x, nn.Pool{Kernel: []int{2}})
		}
		x = conv(g, "bridge.b", conv(g, "bridge.a", x, base<<depth), 2*base<<depth)
		for i := depth - 1; i >= 0; i-- {
			name := fmt.Sprintf("up.%d", i)
			x = g.ConvTranspose(name+".transpose", x, nn.Convolution{Out: 4 * base << i, Kernel: []int{2}, Stride: []int{2}, Bias: true})
			x = g.Concat(x, skips[i])
			x = conv(g, name+".b", conv(g, name+".a", x, 2*base<<i), 2*base<<i)
		}
		return g.Conv("head", x, nn.Convolution{Out: channels, Kernel: []int{1}, Bias: true})
	}
	shape := append([]int{channels}, slices.Repeat([]int{size}, 3)...)
	return model.Own(fmt.Sprintf("%s-%dx%d", modelUNet3DK3, base, depth), model.Segmentation, shape, shape, build)
}
