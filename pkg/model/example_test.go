package model_test

import (
	"fmt"

	"lockstep/pkg/model"
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
	// layer           kind             output     parameters  MFLOP forward
	// down.0.a.conv   Conv2D           2×4×32×32  40          0.15
	// relu.0          ReLU             2×4×32×32
	// down.0.b.conv   Conv2D           2×4×32×32  148         0.59
	// relu.1          ReLU             2×4×32×32
	// pool.0          MaxPool2D        2×4×16×16
	// bridge.a.conv   Conv2D           2×8×16×16  296         0.29
	// relu.2          ReLU             2×8×16×16
	// bridge.b.conv   Conv2D           2×8×16×16  584         0.59
	// relu.3          ReLU             2×8×16×16
	// up.0.transpose  ConvTranspose2D  2×4×32×32  132         0.13
	// concat.0        Concat           2×8×32×32
	// up.0.a.conv     Conv2D           2×4×32×32  292         1.18
	// relu.4          ReLU             2×4×32×32
	// up.0.b.conv     Conv2D           2×4×32×32  148         0.59
	// relu.5          ReLU             2×4×32×32
	// head            Conv2D           2×1×32×32  5           0.02
	// loss.0          BCEWithLogits    scalar
	// unet2d-4x1-norm-none: 1,645 parameters (0.0 MiB in fp32), 0 running statistics, 0.00354 GFLOP forward at batch 2
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
