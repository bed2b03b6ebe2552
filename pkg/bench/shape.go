package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/model"
)

// The networks that the engine's benchmark trains.
const (
	modelUNet2D     = "unet2d"
	modelResNet50V2 = "resnet50v2"
	modelUNet3D     = "unet3d"
	modelUNet3DK3   = "unet3d-k3"
)

// Models returns the names of the networks that the engine's benchmark trains, the
// default first.
func Models() []string { return []string{modelUNet2D, modelResNet50V2, modelUNet3D, modelUNet3DK3} }

// Shape is a network and its size: a 2-D U-Net with batch norm for images of one
// channel, Keras' ResNet50V2 with 10 classes for images of three channels, the 3-D U-Net
// of strided convolutions that maps 4 fields to 5, or the 3-D U-Net of 3×3×3
// convolutions with batch norm (see cicek).
type Shape struct {
	Model  string // one of Models; empty: the 2-D U-Net
	Base   int    // channels of the first level
	Depth  int    // U-Nets: levels (2-D and 3×3×3: above the bridge)
	Size   int    // height of an image, side of a volume
	Width  int    // of an image, pixels; 0: as its height
	Batch  int    // samples per worker and step
	Biases bool   // 2-D U-Net: convolutions before a batch norm have biases, as in the U-Net study

	// Network is one of model.Names() and replaces Model. The network has its published
	// size, and all other fields except Batch are ignored.
	Network string
}

// DefaultShape returns the 2-D U-Net for which targets are set: 7,762,465 parameters.
func DefaultShape() Shape { return Shape{Base: 32, Depth: 4, Size: 128, Batch: 8} }

// classes is the number of classes of ResNet50V2.
const classes = 10

// ShapeOf returns the size for which targets are set, for one of Models: DefaultShape
// for the 2-D U-Net; ResNet50V2 with 23,539,850 trained parameters and images of 32×32;
// the 3-D U-Net with five levels and volumes of 32×32×32; the U-Net of 3×3×3
// convolutions with the paper's channels and 19,073,187 parameters.
func ShapeOf(name string) (Shape, error) {
	switch name {
	case "", modelUNet2D:
		return DefaultShape(), nil
	case modelResNet50V2:
		return Shape{Model: modelResNet50V2, Base: 64, Size: 32, Batch: 32}, nil
	case modelUNet3D:
		return Shape{Model: modelUNet3D, Base: 64, Depth: 5, Size: 32, Batch: 2}, nil
	case modelUNet3DK3:
		return Shape{Model: modelUNet3DK3, Base: 32, Depth: 3, Size: 32, Batch: 1}, nil
	}
	return Shape{}, fmt.Errorf("bench: model %q is not known: use %s", name, strings.Join(Models(), ", "))
}

func (s Shape) validate() error {
	if s.Batch < 1 {
		return fmt.Errorf("bench: batch is %d: use at least 1 image", s.Batch)
	}
	_, err := s.Build()
	return err
}

// Build builds the network.
func (s Shape) Build() (model.Network, error) {
	if s.Network != "" {
		return model.Named(s.Network)
	}
	switch s.Model {
	case "", modelUNet2D:
		return model.UNet2D(model.UNet2DConfig{
			Base: s.Base, Depth: s.Depth, InChannels: 1, OutChannels: 1, Height: s.Size, Width: s.width(), Bias: s.Biases, Norm: "batch",
		})
	case modelResNet50V2:
		return model.ResNetV2(model.ResNetConfig{
			Blocks: []int{3, 4, 6, 3}, Base: s.Base, Classes: classes, InChannels: 3, Height: s.Size, Width: s.width(), Stem: model.StemImageNet,
		})
	case modelUNet3D:
		return model.UNet3D(model.UNet3DConfig{
			Base: s.Base, Depth: s.Depth, InChannels: 4, OutChannels: 5, Size: slices.Repeat([]int{s.Size}, 3),
		})
	case modelUNet3DK3:
		return cicek(s.Base, s.Depth, s.Size)
	}
	_, err := ShapeOf(s.Model)
	return nil, err
}

func (s Shape) width() int {
	if s.Width == 0 {
		return s.Size
	}
	return s.Width
}

// arguments returns the flags that both sides accept.
func (s Shape) arguments() []string {
	if s.Network != "" {
		return []string{"--network", s.Network, "--batch", strconv.Itoa(s.Batch)}
	}
	var list []string
	if s.Model != "" {
		list = []string{"--model", s.Model}
	}
	return append(list,
		"--base", strconv.Itoa(s.Base), "--depth", strconv.Itoa(s.Depth),
		"--size", strconv.Itoa(s.Size), "--batch", strconv.Itoa(s.Batch))
}

// String describes the shape, such as "U-Net base 32, depth 4, 128×128×1, batch 8".
func (s Shape) String() string {
	if s.Network != "" {
		return fmt.Sprintf("%s, batch %d", s.Network, s.Batch)
	}
	switch s.Model {
	case modelResNet50V2:
		return fmt.Sprintf("ResNet50V2 base %d, %d×%d×3, batch %d", s.Base, s.Size, s.width(), s.Batch)
	case modelUNet3D:
		return fmt.Sprintf("3-D U-Net base %d, depth %d, %d×%d×%d×4, batch %d", s.Base, s.Depth, s.Size, s.Size, s.Size, s.Batch)
	case modelUNet3DK3:
		return fmt.Sprintf("3-D U-Net of 3×3×3 base %d, depth %d, %d×%d×%d×3, batch %d", s.Base, s.Depth, s.Size, s.Size, s.Size, s.Batch)
	}
	return fmt.Sprintf("U-Net base %d, depth %d, %d×%d×1, batch %d", s.Base, s.Depth, s.Size, s.width(), s.Batch)
}

// targets returns the required ratios of Lockstep to PyTorch at the model's own shape:
// the throughput of each setting, and the peak memory. 0: no target.
func (s Shape) targets() (throughput map[setting]float64, memory float64) {
	if own, err := ShapeOf(s.Model); err != nil || s != own {
		return nil, 0
	}
	switch s.Model {
	case modelResNet50V2:
		return map[setting]float64{{1, 1}: 1.4, {1, 2}: 1.5, {2, 1}: 1.5}, 0
	case modelUNet3D, modelUNet3DK3:
		return map[setting]float64{{1, 1}: 1.8, {1, 2}: 1.8, {2, 1}: 1.8}, 0
	}
	return map[setting]float64{{1, 1}: oneThreadTarget, {1, 2}: twoThreadsTarget, {2, 1}: twoWorkersTarget}, memoryTarget
}

// OwnArguments returns the flags of a worker of Lockstep.
func (s Shape) OwnArguments() []string {
	if s.Network != "" {
		return s.arguments()
	}
	return append(s.arguments(), "--width", strconv.Itoa(s.width()), "--biases="+strconv.FormatBool(s.Biases))
}

// GPUArguments returns the flags of PyTorch's side on a GPU.
func (s Shape) GPUArguments() []string {
	if s.Network != "" {
		return s.arguments()
	}
	list := []string{
		"--base", strconv.Itoa(s.Base), "--depth", strconv.Itoa(s.Depth),
		"--height", strconv.Itoa(s.Size), "--width", strconv.Itoa(s.width()), "--batch", strconv.Itoa(s.Batch),
	}
	if s.Biases {
		list = append(list, "--bias")
	}
	return list
}
