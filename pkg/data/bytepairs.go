package data

import "context"

// bytePairs are images and masks in memory at one byte per value. Get divides the bytes of an image by 255.
type bytePairs struct {
	names    []string
	images   [][]uint8 // [sample][(channel·height+y)·width+x]
	masks    [][]uint8 // [sample][y·width+x]: class indices, or Ignored
	channels int       // of the images
	height   int       // of all samples, or of the first one if sizes is not nil
	width    int
	sizes    [][2]int // height and width of each sample; nil if they are equal
}

func (s *bytePairs) Len() int                { return len(s.images) }
func (s *bytePairs) ImageShape() []int       { return []int{s.channels, s.height, s.width} }
func (s *bytePairs) TargetShape() []int      { return []int{1, s.height, s.width} }
func (s *bytePairs) SampleName(i int) string { return s.names[i] }

func (s *bytePairs) sampleSize(i int) (height, width int) {
	if s.sizes == nil {
		return s.height, s.width
	}
	return s.sizes[i][0], s.sizes[i][1]
}

func (s *bytePairs) Get(i int, image, target []float32) error {
	w := window{size: [3]int{1, s.height, s.width}}
	if i >= 0 && i < s.Len() {
		w.size[1], w.size[2] = s.sampleSize(i)
	}
	return s.getWindow(context.Background(), i, w, image, target)
}

func (s *bytePairs) getWindow(_ context.Context, i int, w window, image, target []float32) error {
	if err := checkGetArguments(s, i, w, image, target); err != nil {
		return err
	}
	height, width := s.sampleSize(i)
	convert := func(dst []float32, src []uint8, table *[256]float32) {
		for y := range w.size[1] {
			from, to := (w.start[1]+y)*width+w.start[2], y*w.size[2]
			convertBytes(dst[to:to+w.size[2]], src[from:from+w.size[2]], table)
		}
	}
	for c := range s.channels {
		convert(image[c*w.voxelCount():], s.images[i][c*height*width:], &byteToUnit)
	}
	convert(target, s.masks[i], &byteToFloat)
	return nil
}

// byteToUnit[b] is b/255 and byteToFloat[b] is b. A lookup takes a third of the time of a division,
// and the loader's goroutines take time from training.
var byteToUnit, byteToFloat = func() (s, c [256]float32) {
	for v := range s {
		s[v], c[v] = float32(v)/255, float32(v)
	}
	return s, c
}()

// convertBytes looks up each byte of src in the table.
func convertBytes(dst []float32, src []uint8, table *[256]float32) {
	for x, v := range src[:len(dst)] {
		dst[x] = table[v]
	}
}

// sizedDataset is a data set whose samples may have different sizes. ImageShape and TargetShape are
// the first sample's, and Tiles makes samples of one size.
type sizedDataset interface {
	Dataset
	sampleSize(i int) (height, width int)
}

// sizeOfSample returns sample i's depth, height and width.
func sizeOfSample(ds Dataset, i int) [3]int {
	if s, ok := ds.(sizedDataset); ok {
		h, w := s.sampleSize(i)
		return [3]int{1, h, w}
	}
	size, _ := spatialSize(ds.ImageShape())
	return size
}
