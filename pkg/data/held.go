package data

import "fmt"

// held is a set of grey images and masks of one size in memory, two bytes a
// pixel. Images keep their 8 bits and become value/255 when they are read.
type held struct {
	names         []string
	images, masks [][]uint8 // [sample][y·width+x]; masks hold 0 or 1
	height, width int
}

func (s *held) Len() int                { return len(s.images) }
func (s *held) ImageShape() [3]int      { return [3]int{1, s.height, s.width} }
func (s *held) TargetShape() [3]int     { return [3]int{1, s.height, s.width} }
func (s *held) SampleName(i int) string { return s.names[i] }

func (s *held) Get(i int, image, target []float32) error {
	return s.region(i, window{0, 0, s.height, s.width}, image, target)
}

func (s *held) region(i int, w window, image, target []float32) error {
	if err := checkGet(s, i, w, image, target); err != nil {
		return err
	}
	pixels, mask := s.images[i], s.masks[i]
	for y := range w.height {
		from := (w.y+y)*s.width + w.x
		to := y * w.width
		for x, v := range pixels[from : from+w.width] {
			image[to+x] = float32(v) / 255
		}
		for x, v := range mask[from : from+w.width] {
			target[to+x] = float32(v)
		}
	}
	return nil
}

// window is a part of an image, in pixels.
type window struct{ y, x, height, width int }

// windowed is a data set that reads a part of a sample without the rest.
type windowed interface {
	region(i int, w window, image, target []float32) error
}

// readWindow copies a part of sample i of any data set.
func readWindow(ds Dataset, i int, w window, image, target []float32) error {
	if d, ok := ds.(windowed); ok {
		return d.region(i, w, image, target)
	}
	if err := checkGet(ds, i, w, image, target); err != nil {
		return err
	}
	is, ts := ds.ImageShape(), ds.TargetShape()
	if (w == window{0, 0, is[1], is[2]}) {
		return ds.Get(i, image, target)
	}
	fullImage, fullTarget := make([]float32, volume(is)), make([]float32, volume(ts))
	if err := ds.Get(i, fullImage, fullTarget); err != nil {
		return err
	}
	cut(image, fullImage, is, w)
	cut(target, fullTarget, ts, w)
	return nil
}

// cut copies the window w of src, shaped C×H×W, to dst.
func cut(dst, src []float32, shape [3]int, w window) {
	for c := range shape[0] {
		for y := range w.height {
			from := (c*shape[1]+w.y+y)*shape[2] + w.x
			copy(dst[(c*w.height+y)*w.width:][:w.width], src[from:])
		}
	}
}

// checkGet reports an index, a window or buffers that do not fit ds.
func checkGet(ds Dataset, i int, w window, image, target []float32) error {
	is, ts := ds.ImageShape(), ds.TargetShape()
	switch {
	case i < 0 || i >= ds.Len():
		return fmt.Errorf("get sample %d: the set has samples 0 to %d", i, ds.Len()-1)
	case w.y < 0 || w.x < 0 || w.y+w.height > is[1] || w.x+w.width > is[2]:
		return fmt.Errorf("get sample %s: window %d×%d at row %d, column %d is outside of %d×%d", ds.SampleName(i), w.height, w.width, w.y, w.x, is[1], is[2])
	case len(image) != is[0]*w.height*w.width || len(target) != ts[0]*w.height*w.width:
		return fmt.Errorf("get sample %s: buffers have %d and %d values, want %d and %d", ds.SampleName(i), len(image), len(target), is[0]*w.height*w.width, ts[0]*w.height*w.width)
	}
	return nil
}

// volume is the number of values of a shape.
func volume(s [3]int) int { return s[0] * s[1] * s[2] }
