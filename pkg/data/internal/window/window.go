// Package window describes rectangular parts of samples.
package window

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Window is a rectangular part of a sample: its first element and its size along depth, rows and
// columns. A picture has depth 1.
type Window struct{ Start, Size [3]int }

// VoxelCount returns the number of pixels or voxels per channel.
func (w Window) VoxelCount() int { return w.Size[0] * w.Size[1] * w.Size[2] }

// String formats size and position for error messages.
func (w Window) String() string {
	if w.Start[0] == 0 && w.Size[0] == 1 {
		return fmt.Sprintf("%d×%d at row %d, column %d", w.Size[1], w.Size[2], w.Start[1], w.Start[2])
	}
	return fmt.Sprintf("%s at depth %d, row %d, column %d", FormatSize(w.Size[:]), w.Start[0], w.Start[1], w.Start[2])
}

// SpatialSize returns the depth, height and width of a sample of shape [C,D,H,W], or [C,H,W] with
// depth 1. ok is false for other numbers of dimensions.
func SpatialSize(shape []int) (size [3]int, ok bool) {
	switch len(shape) {
	case 3:
		return [3]int{1, shape[1], shape[2]}, true
	case 4:
		return [3]int(shape[1:]), true
	}
	return [3]int{}, false
}

// AreShapesAligned reports whether a target of the given shape has values for each pixel or voxel of the
// image. Such a target must be cropped, mirrored and rotated with the image.
func AreShapesAligned(image, target []int) bool {
	return (len(image) == 3 || len(image) == 4) && len(image) == len(target) && slices.Equal(image[1:], target[1:])
}

// Full returns the window of a complete sample of shape [C,H,W] or [C,D,H,W].
func Full(shape []int) Window {
	size, _ := SpatialSize(shape)
	return Window{Size: size}
}

// Copy copies window w of src to dst. shape is the shape of src, [C,H,W] or [C,D,H,W].
func Copy(dst, src []float32, shape []int, w Window) {
	size, _ := SpatialSize(shape)
	for c := range shape[0] {
		for z := range w.Size[0] {
			for y := range w.Size[1] {
				from := ((c*size[0]+w.Start[0]+z)*size[1]+w.Start[1]+y)*size[2] + w.Start[2]
				dst = dst[copy(dst[:w.Size[2]], src[from:]):]
			}
		}
	}
}

// CheckBuffers returns an error unless image has imageValues and target has targetValues elements.
// sample is the sample's name.
func CheckBuffers(sample string, image, target []float32, imageValues, targetValues int) error {
	if len(image) != imageValues || len(target) != targetValues {
		return fmt.Errorf("get sample %s: buffers for image and target have %d and %d values, want %d and %d", sample, len(image), len(target), imageValues, targetValues)
	}
	return nil
}

// ElementCount returns the number of elements of an array of the given shape.
func ElementCount(shape []int) int {
	n := 1
	for _, v := range shape {
		n *= v
	}
	return n
}

// FormatSize formats a size, as in "768×1024".
func FormatSize(size []int) string {
	words := make([]string, len(size))
	for i, v := range size {
		words[i] = strconv.Itoa(v)
	}
	return strings.Join(words, "×")
}
