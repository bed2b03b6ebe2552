// Package reading contains the rules by which pairs of images and masks are read.
package reading

import (
	"fmt"
	"slices"

	"lockstep/pkg/data/internal/picture"
	"lockstep/pkg/data/survey"
)

// Rules are the fields of data.Config that say how files are read.
type Rules struct {
	InputChannels int
	ToGray        bool
	Range         []float64
	MaskValues    map[int]string
	Foreground    string
}

// InspectPairs returns the number of channels of the pairs' images, and notes about how they are read. s
// contains the facts of the files. It returns an error if a file cannot be read by the rules of c.
// If s was read from headers only, Check skips what depends on pixels.
func (c Rules) InspectPairs(dir string, pairs []survey.Pair, s survey.Survey) (channels int, notes []string, err error) {
	for i, f := range s.Images {
		if f.Transparent {
			return 0, nil, fmt.Errorf("image %s has transparent pixels: save it without an alpha channel (for example, in ImageMagick, with convert -background white -alpha remove)", pairs[i].Image)
		}
		if err := c.CheckMask(pairs[i].Mask, s.Masks[i]); err != nil {
			return 0, nil, err
		}
	}
	if err := c.checkBits(dir, pairs, s.Images); err != nil {
		return 0, nil, err
	}
	find := func(is func(survey.Facts) bool) int { return slices.IndexFunc(s.Images, is) }
	gray := find(func(f survey.Facts) bool { return f.Channels == 1 })
	stored := find(func(f survey.Facts) bool { return f.Channels == 3 })
	// Without its pixels, an RGB file may be gray.
	colored := find(func(f survey.Facts) bool { return f.Colored || f.Channels == 3 && !f.Complete })
	complete := s.Images[0].Complete
	switch {
	case c.ToGray:
		if complete && colored >= 0 {
			n := 0
			for _, f := range s.Images {
				if f.Colored {
					n++
				}
			}
			notes = append(notes, fmt.Sprintf("%d of the %d images of %s have colors, which are converted to gray, as data.to_gray says", n, len(pairs), dir))
		}
		return 1, notes, nil
	case c.InputChannels == 3 && gray >= 0:
		return 0, nil, fmt.Errorf("data.input_channels is 3, but image %s is gray: set it to 1, or save all images as RGB", pairs[gray].Image)
	case !complete && c.InputChannels > 0:
		return c.InputChannels, nil, nil
	case complete && colored >= 0 && gray >= 0:
		return 0, nil, fmt.Errorf("image %s has colors, but %s is gray: save all images as RGB, or set data.to_gray to true, which converts them to gray", pairs[colored].Image, pairs[gray].Image)
	case complete && colored >= 0 && c.InputChannels == 1:
		return 0, nil, fmt.Errorf("data.input_channels is 1, but image %s has colors: set it to 3, or set data.to_gray to true, which converts the images to gray", pairs[colored].Image)
	case c.InputChannels == 3 || colored >= 0:
		return 3, nil, nil
	case stored >= 0:
		notes = append(notes, fmt.Sprintf("red, green and blue are equal at every pixel of the images of %s, although files have colors or a palette: they are read as gray images", dir))
	}
	return 1, notes, nil
}

// checkBits returns an error if the images have different numbers of bits per value, if Range is
// missing for 16 bits, or if it is set for 8 bits.
func (c Rules) checkBits(dir string, pairs []survey.Pair, images []survey.Facts) error {
	bits, lo, hi := images[0].Bits, images[0].Min, images[0].Max
	for i, f := range images {
		if f.Bits != bits {
			return fmt.Errorf("image %s has %d bits per value, but %s has %d: save all with the same number", pairs[i].Image, f.Bits, pairs[0].Image, bits)
		}
		lo, hi = min(lo, f.Min), max(hi, f.Max)
	}
	switch {
	case bits == 16 && len(c.Range) == 0 && images[0].Complete:
		return fmt.Errorf("images of %s have 16 bits per value, from %d to %d: set data.range to the values that shall become black and white, such as [%d, %d]", dir, lo, hi, lo, max(hi, lo+1))
	case bits == 16 && len(c.Range) == 0:
		return fmt.Errorf("images of %s have 16 bits per value: set data.range to the values that shall become black and white; lockstep data check %s shows which values the images have", dir, dir)
	case bits == 8 && len(c.Range) > 0:
		return fmt.Errorf("data.range is %v, but images of %s have 8 bits per value: leave data.range out, which is for 16 bits", c.Range, dir)
	}
	return nil
}

// ImageBytes returns the values of an image, converted to 8 bits. The image must have passed Check.
// If it has 16 bits and Range is not set, all values are 0.
func (c Rules) ImageBytes(r picture.Raw) []uint8 {
	if c.ToGray {
		r = r.Gray()
	}
	if r.Words == nil {
		return r.Bytes
	}
	if len(c.Range) != 2 {
		return make([]uint8, len(r.Words))
	}
	return r.ScaleToBytes(c.Range[0], c.Range[1]).Bytes
}
