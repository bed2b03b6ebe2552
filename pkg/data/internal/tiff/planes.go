package tiff

import (
	"context"
	"encoding/binary"
	"fmt"
	"image"
	"maps"
	"math"
	"slices"
)

// Values of the TIFF fields that decodePlanes reads.
const (
	photometricRGB   = 2
	planarSeparate   = 2 // of tagPlanar: the values of each color are stored together
	extraAssociated  = 1 // of tagExtraSamples: alpha, by which the colors were multiplied
	extraIndependent = 2 // of tagExtraSamples: alpha
)

func (p Page) hasSeparatePlanes() bool {
	return p.fieldValue(tagPlanar, 1) == planarSeparate && p.fieldValue(tagSamples, 1) > 1
}

// decodePlanes decodes separate planes of 8-bit or 16-bit colors to the type of image that
// x/image/tiff returns for interleaved colors.
func (f *File) decodePlanes(ctx context.Context, p Page) (image.Image, error) {
	samples := int(p.fieldValue(tagSamples, 1))
	hasAlpha := samples == 4 && slices.Contains([]uint32{extraAssociated, extraIndependent}, p.fieldValue(tagExtraSamples, 0))
	if p.fieldValue(tagPhotometric, 0) != photometricRGB || (samples != 3 && !hasAlpha) || (p.Bits != 8 && p.Bits != 16) {
		return nil, UnsupportedError(fmt.Sprintf("%d separate planes of %d bits are not supported, only RGB and RGBA of 8 or 16 bits: save the page as RGB, %s", samples, p.Bits, ExampleCommand))
	}
	var planes [4][]float32
	for k := range samples {
		var err error
		if planes[k], err = f.decodePage(ctx, p.planePage(k, samples)); err != nil {
			return nil, fmt.Errorf("plane %d: %w", k, err)
		}
	}
	size := p.Bits / 8 // bytes per value
	largest := float32(math.Pow(2, float64(p.Bits)) - 1)
	pix := make([]uint8, 4*size*p.Height*p.Width)
	for i := range p.Height * p.Width {
		for k := range planes {
			v := uint16(largest) // opaque
			if k < samples {
				v = uint16(planes[k][i]*largest + 0.5)
			}
			if at := pix[(4*i+k)*size:]; size == 1 {
				at[0] = uint8(v)
			} else {
				binary.BigEndian.PutUint16(at, v)
			}
		}
	}
	stride, r := 4*size*p.Width, image.Rect(0, 0, p.Width, p.Height)
	independent := hasAlpha && p.fieldValue(tagExtraSamples, 0) == extraIndependent
	switch {
	case size == 1 && independent:
		return &image.NRGBA{Pix: pix, Stride: stride, Rect: r}, nil
	case size == 1:
		return &image.RGBA{Pix: pix, Stride: stride, Rect: r}, nil
	case independent:
		return &image.NRGBA64{Pix: pix, Stride: stride, Rect: r}, nil
	}
	return &image.RGBA64{Pix: pix, Stride: stride, Rect: r}, nil
}

// planePage returns plane k (of n planes) of a page, as a page of gray values. Its strips or tiles
// follow those of plane k−1.
func (p Page) planePage(k, n int) Page {
	p.fields = maps.Clone(p.fields)
	p.fields[tagSamples], p.fields[tagPhotometric] = []uint32{1}, []uint32{blackIsZero}
	for _, tag := range []uint16{tagStripOffsets, tagStripBytes, tagTileOffsets, tagTileBytes} {
		parts := p.fields[tag]
		p.fields[tag] = parts[k*len(parts)/n : (k+1)*len(parts)/n]
	}
	return p
}
