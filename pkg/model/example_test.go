package model_test

import (
	"fmt"
	"strings"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

func ExampleSummarize() {
	net, err := model.UNet2D(model.UNet2DConfig{Base: 4, Depth: 1, InChannels: 1, OutChannels: 1, Height: 32, Width: 32, Norm: "none"})
	if err != nil {
		fmt.Println(err)
		return
	}
	summary, err := model.Summarize(net, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(summary)
	// Output:
	// layer           kind             output     parameters  MFLOP forward  MiB output
	// down.0.a.conv   Conv2D           2×4×32×32  40          0.15           0.031
	// relu.0          ReLU             2×4×32×32                             0.031
	// down.0.b.conv   Conv2D           2×4×32×32  148         0.59           0.031
	// relu.1          ReLU             2×4×32×32                             0.031
	// pool.0          MaxPool2D        2×4×16×16                             0.008
	// bridge.a.conv   Conv2D           2×8×16×16  296         0.29           0.016
	// relu.2          ReLU             2×8×16×16                             0.016
	// bridge.b.conv   Conv2D           2×8×16×16  584         0.59           0.016
	// relu.3          ReLU             2×8×16×16                             0.016
	// up.0.transpose  ConvTranspose2D  2×4×32×32  132         0.13           0.031
	// concat.0        Concat           2×8×32×32                             0.062
	// up.0.a.conv     Conv2D           2×4×32×32  292         1.18           0.031
	// relu.4          ReLU             2×4×32×32                             0.031
	// up.0.b.conv     Conv2D           2×4×32×32  148         0.59           0.031
	// relu.5          ReLU             2×4×32×32                             0.031
	// head            Conv2D           2×1×32×32  5           0.02           0.008
	// loss.0          BCEWithLogits    scalar
	// unet2d-4x1-norm-none: 1,645 parameters (0.0 MiB in fp32), 0.00354 GFLOP forward at batch 2, outputs of all layers 0.4 MiB
}

func ExampleNamed() {
	net, err := model.Named("unet2d-study")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(net.Name(), net.InputShape(), net.Parameters())
	// Output: unet2d-8x4-bias [1 768 1024] 487145
}

// A network of one's own, and what is changed in its file.
func ExampleSpecOf() {
	net, err := model.Own("mine", model.Segmentation, []int{1, 64, 64}, []int{1, 64, 64}, func(g *nn.Graph, image *gorgonia.Node) *gorgonia.Node {
		x := g.ReLU(g.Conv("first", image, nn.Convolution{Out: 8, Kernel: []int{3}, Pad: []int{1}, Bias: true}))
		return g.Conv("head", x, nn.Convolution{Out: 1, Kernel: []int{1}, Bias: true})
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	spec, err := model.SpecOf(net)
	if err != nil {
		fmt.Println(err)
		return
	}
	spec.Layers[0].Out = 16
	wider, err := spec.Network(nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(net.Parameters(), wider.Parameters())
	// Output: 89 177
}

// A mistake in a file is told with its line.
func ExampleParseSpec() {
	_, err := model.ParseSpec("net.yaml", []byte(strings.TrimSpace(`
name: mine
task: classification
image: [3, 32, 32]
target: [1]
layers:
  - {name: a, kind: Conv, out: 8, kernel: 3, pad: 1}
  - {kind: GlobalAvgPool}
  - {name: b, kind: Linear, in: pool, out: 10}
`)))
	fmt.Println(err)
	// Output: read spec net.yaml: layer "b" (line 8) reads unknown layer "pool": name one of the layers, or image
}
