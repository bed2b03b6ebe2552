package data

import (
	"context"

	"lockstep/pkg/data/internal/scale"
	"lockstep/pkg/data/internal/window"
)

// byteImageDataset contains images and masks in memory at one byte per value. Get divides the bytes
// of an image by 255.
type byteImageDataset struct {
	names    []string
	images   [][]uint8 // [sample][(channel·height+y)·width+x]
	masks    [][]uint8 // [sample][y·width+x]: class indices, or Ignored
	channels int       // of the images
	height   int       // of all samples, or of the first one if sizes is not nil
	width    int
	sizes    [][2]int // height and width of each sample; nil if they are equal
}

func (s *byteImageDataset) Len() int                { return len(s.images) }
func (s *byteImageDataset) ImageShape() []int       { return []int{s.channels, s.height, s.width} }
func (s *byteImageDataset) TargetShape() []int      { return []int{1, s.height, s.width} }
func (s *byteImageDataset) SampleName(i int) string { return s.names[i] }

func (s *byteImageDataset) sampleSize(i int) (height, width int) {
	if s.sizes == nil {
		return s.height, s.width
	}
	return s.sizes[i][0], s.sizes[i][1]
}

func (s *byteImageDataset) Get(i int, image, target []float32) error {
	w := window.Window{Size: [3]int{1, s.height, s.width}}
	if i >= 0 && i < s.Len() {
		w.Size[1], w.Size[2] = s.sampleSize(i)
	}
	return s.getWindow(context.Background(), i, w, image, target)
}

func (s *byteImageDataset) getWindow(_ context.Context, i int, w window.Window, image, target []float32) error {
	if err := checkGetArguments(s, i, w, image, target); err != nil {
		return err
	}
	height, width := s.sampleSize(i)
	convert := func(dst []float32, src []uint8, table *[256]float32) {
		for y := range w.Size[1] {
			from, to := (w.Start[1]+y)*width+w.Start[2], y*w.Size[2]
			scale.LookUp(dst[to:to+w.Size[2]], src[from:from+w.Size[2]], table)
		}
	}
	for c := range s.channels {
		convert(image[c*w.VoxelCount():], s.images[i][c*height*width:], &scale.ByteToUnit)
	}
	convert(target, s.masks[i], &scale.ByteToFloat)
	return nil
}

// variableSizeDataset is a data set whose samples may have different sizes. ImageShape and TargetShape
// return the shapes of the first sample. Tiles cuts the samples to one size.
type variableSizeDataset interface {
	Dataset
	sampleSize(i int) (height, width int)
}

// sampleSpatialSize returns sample i's depth, height and width.
func sampleSpatialSize(ds Dataset, i int) [3]int {
	if s, ok := ds.(variableSizeDataset); ok {
		h, w := s.sampleSize(i)
		return [3]int{1, h, w}
	}
	size, _ := window.SpatialSize(ds.ImageShape())
	return size
}
