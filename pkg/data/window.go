package data

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// window is a rectangular part of a sample: its first element and its size along depth, rows and
// columns. A picture has depth 1.
type window struct{ start, size [3]int }

func (w window) voxelCount() int { return w.size[0] * w.size[1] * w.size[2] }

// String formats size and position for error messages.
func (w window) String() string {
	if w.start[0] == 0 && w.size[0] == 1 {
		return fmt.Sprintf("%d×%d at row %d, column %d", w.size[1], w.size[2], w.start[1], w.start[2])
	}
	return fmt.Sprintf("%s at depth %d, row %d, column %d", formatSize(w.size[:]), w.start[0], w.start[1], w.start[2])
}

// spatialSize returns the depth, height and width of a sample of shape [C,D,H,W], or [C,H,W] with
// depth 1. ok is false for other numbers of dimensions.
func spatialSize(shape []int) (size [3]int, ok bool) {
	switch len(shape) {
	case 3:
		return [3]int{1, shape[1], shape[2]}, true
	case 4:
		return [3]int(shape[1:]), true
	}
	return [3]int{}, false
}

// isAligned reports whether a target has values for each pixel or voxel of the image, so that it
// must be cropped, mirrored and rotated with the image.
func isAligned(image, target []int) bool {
	return (len(image) == 3 || len(image) == 4) && len(image) == len(target) && slices.Equal(image[1:], target[1:])
}

// fullWindow returns the window of a complete sample of shape [C,H,W] or [C,D,H,W].
func fullWindow(shape []int) window {
	size, _ := spatialSize(shape)
	return window{size: size}
}

// windowReader is a data set that can read window w of a sample without the rest. A target that is
// not aligned with the image (see isAligned) is copied completely.
type windowReader interface {
	getWindow(ctx context.Context, i int, w window, image, target []float32) error
}

// sampleReader is a data set whose samples may take long to read, such as large pictures. getSample
// is like Get, but ends with ctx's error if ctx is canceled.
type sampleReader interface {
	getSample(ctx context.Context, i int, image, target []float32) error
}

// readSample copies sample i of ds. It can be canceled only if ds is a sampleReader.
func readSample(ctx context.Context, ds Dataset, i int, image, target []float32) error {
	if d, ok := ds.(sampleReader); ok {
		return d.getSample(ctx, i, image, target)
	}
	return ds.Get(i, image, target)
}

// readWindow copies window w of sample i. It reads the complete sample if ds is no windowReader.
func readWindow(ctx context.Context, ds Dataset, i int, w window, image, target []float32) error {
	if d, ok := ds.(windowReader); ok {
		return d.getWindow(ctx, i, w, image, target)
	}
	if err := checkGetArguments(ds, i, w, image, target); err != nil {
		return err
	}
	is, ts := ds.ImageShape(), ds.TargetShape()
	if (w == window{size: sizeOfSample(ds, i)}) {
		return readSample(ctx, ds, i, image, target)
	}
	fullImage, fullTarget := make([]float32, elementCount(is)), target
	if isAligned(is, ts) {
		fullTarget = make([]float32, elementCount(ts))
	}
	if err := readSample(ctx, ds, i, fullImage, fullTarget); err != nil {
		return err
	}
	copyWindow(image, fullImage, is, w)
	if isAligned(is, ts) {
		copyWindow(target, fullTarget, ts, w)
	}
	return nil
}

// copyWindow copies window w of src, of the given shape [C,H,W] or [C,D,H,W], to dst.
func copyWindow(dst, src []float32, shape []int, w window) {
	size, _ := spatialSize(shape)
	for c := range shape[0] {
		for z := range w.size[0] {
			for y := range w.size[1] {
				from := ((c*size[0]+w.start[0]+z)*size[1]+w.start[1]+y)*size[2] + w.start[2]
				dst = dst[copy(dst[:w.size[2]], src[from:]):]
			}
		}
	}
}

// checkGetArguments returns an error if ds has no sample i, if the window exceeds the sample, or if
// a buffer has the wrong length.
func checkGetArguments(ds Dataset, i int, w window, image, target []float32) error {
	if i < 0 || i >= ds.Len() {
		return fmt.Errorf("get sample %d: the data set has samples 0 to %d", i, ds.Len()-1)
	}
	is, ts := ds.ImageShape(), ds.TargetShape()
	size := sizeOfSample(ds, i)
	for k := range size {
		if w.start[k] < 0 || w.start[k]+w.size[k] > size[k] {
			return fmt.Errorf("get sample %s: window %v exceeds the sample size %s", ds.SampleName(i), w, formatSize(size[4-len(is):]))
		}
	}
	ni, nt := is[0]*w.voxelCount(), elementCount(ts)
	if isAligned(is, ts) {
		nt = ts[0] * w.voxelCount()
	}
	return checkBuffers(ds.SampleName(i), image, target, ni, nt)
}

// checkBuffers returns an error unless image has imageValues and target has targetValues elements.
// sample is the sample's name.
func checkBuffers(sample string, image, target []float32, imageValues, targetValues int) error {
	if len(image) != imageValues || len(target) != targetValues {
		return fmt.Errorf("get sample %s: buffers for image and target have %d and %d values, want %d and %d", sample, len(image), len(target), imageValues, targetValues)
	}
	return nil
}

func elementCount(shape []int) int {
	n := 1
	for _, v := range shape {
		n *= v
	}
	return n
}

// formatSize formats a size as in 768×1024.
func formatSize(size []int) string {
	words := make([]string, len(size))
	for i, v := range size {
		words[i] = strconv.Itoa(v)
	}
	return strings.Join(words, "×")
}
