package survey

import (
	"math"

	"lockstep/pkg/data/internal/picture"
)

// Facts describes a picture file. If Complete is false, only the header was read, and the fields
// after Complete are not set.
type Facts struct {
	Height   int  `json:"height"`
	Width    int  `json:"width"`
	Channels int  `json:"channels"` // in the file: 1 or 3
	Bits     int  `json:"bits"`     // per value: 8 (also if the file has fewer) or 16
	Complete bool `json:"complete"`

	Colored     bool `json:"colored,omitempty"` // red, green and blue differ at some pixel
	Vivid       bool `json:"vivid,omitempty"`   // they differ by more than compression causes
	Transparent bool `json:"transparent,omitempty"`
	Palette     bool `json:"palette,omitempty"`

	// Minimum, maximum, mean and standard deviation of an image's values. They are not set for masks.
	Min       int     `json:"min,omitempty"`
	Max       int     `json:"max,omitempty"`
	Mean      float64 `json:"mean,omitempty"`
	Deviation float64 `json:"deviation,omitempty"`

	// Levels counts the pixels with each value of a mask or, if the mask has a palette, with each
	// index. It has at most maxMaskValues entries; MorePixels counts the pixels with other values.
	Levels     map[int]int `json:"levels,omitempty"`
	MorePixels int         `json:"more_pixels,omitempty"`
}

// maxMaskValues is the number of mask values that are counted separately. Masks with more values have no
// classes.
const maxMaskValues = 256

// Kind describes channels and bits, as in "8-bit RGB".
func (f Facts) Kind() string { return picture.DescribePixelFormat(f.Channels, f.Bits) }

// OfImage returns the facts of an image.
func OfImage(r picture.Raw) Facts {
	f := newFacts(r)
	counts := make([]int, 1<<f.Bits)
	countPixelValues(counts, r)
	total, sum := 0, 0.0
	f.Min, f.Max = math.MaxInt, 0
	for v, n := range counts {
		if n > 0 {
			f.Min, f.Max = min(f.Min, v), v
			total += n
			sum += float64(v) * float64(n)
		}
	}
	f.Mean = sum / float64(total)
	squares := 0.0
	for v, n := range counts {
		squares += (float64(v) - f.Mean) * (float64(v) - f.Mean) * float64(n)
	}
	f.Deviation = math.Sqrt(squares / float64(total))
	return f
}

// OfMask returns the facts of a mask.
func OfMask(r picture.Raw) Facts {
	f := newFacts(r)
	counts := make([]int, 1<<f.Bits)
	if f.Palette {
		countPixelValues(counts, picture.Raw{Bytes: r.Indices})
	} else {
		countPixelValues(counts, r.Gray())
	}
	f.Levels = map[int]int{}
	for v, n := range counts {
		switch {
		case n > 0 && len(f.Levels) < maxMaskValues:
			f.Levels[v] = n
		case n > 0:
			f.MorePixels += n
		}
	}
	return f
}

func newFacts(r picture.Raw) Facts {
	return Facts{
		Height: r.Height, Width: r.Width, Channels: r.Channels, Bits: r.Bits(), Complete: true,
		Colored: r.Colored, Vivid: r.Vivid, Transparent: r.Transparent, Palette: r.Indices != nil,
	}
}

func countPixelValues(counts []int, r picture.Raw) {
	for _, v := range r.Bytes {
		counts[v]++
	}
	for _, v := range r.Words {
		counts[v]++
	}
}
