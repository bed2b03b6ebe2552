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

// Models returns the names of the networks that the engine's benchmark trains, the default first.
func Models() []string { return []string{modelUNet2D, modelResNet50V2, modelUNet3D, modelUNet3DK3} }

// Shape selects a network and its size. Model is one of four networks: a 2-D U-Net with batch norm
// for images with one channel; Keras' ResNet50V2 with 10 classes for images with three channels; a
// 3-D U-Net of strided convolutions that maps 4 fields to 5; or a 3-D U-Net of 3×3×3 convolutions
// with batch norm (see newCicekUNet).
type Shape struct {
	Model  string // one of Models; empty: the 2-D U-Net
	Base   int    // channels of the first level
	Depth  int    // levels of a U-Net (2-D and 3×3×3: without the bridge)
	Size   int    // height of an image in pixels, or side of a volume in voxels
	Width  int    // width of an image in pixels; 0: the same as the height
	Batch  int    // samples per worker and step
	Biases bool   // whether convolutions of the 2-D U-Net before a batch norm have biases, as in the U-Net study

	// Network is one of model.Names(), in its published size. If it is set, it replaces Model, and
	// of the other fields only Batch applies.
	Network string
}

// DefaultShape returns the shape of the 2-D U-Net with 7,762,465 parameters, for which there are targets.
func DefaultShape() Shape { return Shape{Base: 32, Depth: 4, Size: 128, Batch: 8} }

const resNetClasses = 10

// ShapeOf returns the shape at which a network of Models has targets: DefaultShape for
// the 2-D U-Net; ResNet50V2 with 23,539,850 trained parameters and images of 32×32; the
// 3-D U-Net with five levels and volumes of 32×32×32; the U-Net of 3×3×3 convolutions
// with the paper's channels and 19,073,187 parameters.
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
	return Shape{}, fmt.Errorf("bench: unknown model %q: use %s", name, strings.Join(Models(), ", "))
}

func (s Shape) validate() error {
	if s.Batch < 1 {
		return fmt.Errorf("bench: got a batch of %d images, want at least 1", s.Batch)
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
			Base: s.Base, Depth: s.Depth, InChannels: 1, OutChannels: 1, Height: s.Size, Width: s.imageWidth(), Bias: s.Biases, Norm: "batch",
		})
	case modelResNet50V2:
		return model.ResNetV2(model.ResNetConfig{
			Blocks: []int{3, 4, 6, 3}, Base: s.Base, Classes: resNetClasses, InChannels: 3, Height: s.Size, Width: s.imageWidth(), Stem: model.StemImageNet,
		})
	case modelUNet3D:
		return model.UNet3D(model.UNet3DConfig{
			Base: s.Base, Depth: s.Depth, InChannels: 4, OutChannels: 5, Size: slices.Repeat([]int{s.Size}, 3),
		})
	case modelUNet3DK3:
		return newCicekUNet(s.Base, s.Depth, s.Size)
	}
	_, err := ShapeOf(s.Model)
	return nil, err
}

func (s Shape) imageWidth() int {
	if s.Width == 0 {
		return s.Size
	}
	return s.Width
}

// commonFlags returns the flags that Lockstep's worker and PyTorch's script share.
func (s Shape) commonFlags() []string {
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
		return fmt.Sprintf("ResNet50V2 base %d, %d×%d×3, batch %d", s.Base, s.Size, s.imageWidth(), s.Batch)
	case modelUNet3D:
		return fmt.Sprintf("3-D U-Net base %d, depth %d, %d×%d×%d×4, batch %d", s.Base, s.Depth, s.Size, s.Size, s.Size, s.Batch)
	case modelUNet3DK3:
		return fmt.Sprintf("3-D U-Net of 3×3×3 base %d, depth %d, %d×%d×%d×3, batch %d", s.Base, s.Depth, s.Size, s.Size, s.Size, s.Batch)
	}
	return fmt.Sprintf("U-Net base %d, depth %d, %d×%d×1, batch %d", s.Base, s.Depth, s.Size, s.imageWidth(), s.Batch)
}

// targetRatios returns the required ratios of Lockstep to PyTorch: throughput by setting, and peak
// memory, where 0 means no target. avx512 says whether both sides use AVX-512. Only the shapes of
// ShapeOf have targets.
func (s Shape) targetRatios(avx512 bool) (throughput map[workerSetting]float64, memory float64) {
	if own, err := ShapeOf(s.Model); err != nil || s != own {
		return nil, 0
	}
	ratios := func(oneThread, twoThreads, twoWorkers float64) map[workerSetting]float64 {
		return map[workerSetting]float64{{1, 1}: oneThread, {1, 2}: twoThreads, {2, 1}: twoWorkers}
	}
	switch {
	case s.Model == modelResNet50V2 && avx512:
		return ratios(2.8, 2.8, 2.7), 0
	case s.Model == modelResNet50V2:
		return ratios(1.4, 1.5, 1.5), 0
	case s.Model == modelUNet3DK3 && avx512:
		return ratios(3, 3.5, 3), 0
	case s.Model == modelUNet3D || s.Model == modelUNet3DK3:
		return ratios(1.8, 1.8, 1.8), 0
	case avx512:
		return ratios(2.6, 3, 2.6), memoryTarget
	}
	return ratios(2.2, 2.5, 2.2), memoryTarget
}

// WorkerFlags returns the flags that select the network for a worker of Lockstep.
func (s Shape) WorkerFlags() []string {
	if s.Network != "" {
		return s.commonFlags()
	}
	return append(s.commonFlags(), "--width", strconv.Itoa(s.imageWidth()), "--biases="+strconv.FormatBool(s.Biases))
}

// GPUPeerFlags returns the flags that select the network for PyTorch's side on a GPU.
func (s Shape) GPUPeerFlags() []string {
	if s.Network != "" {
		return s.commonFlags()
	}
	list := []string{
		"--base", strconv.Itoa(s.Base), "--depth", strconv.Itoa(s.Depth),
		"--height", strconv.Itoa(s.Size), "--width", strconv.Itoa(s.imageWidth()), "--batch", strconv.Itoa(s.Batch),
	}
	if s.Biases {
		list = append(list, "--bias")
	}
	return list
}
