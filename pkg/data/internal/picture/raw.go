package picture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"

	"lockstep/pkg/data/internal/tiff"
	"lockstep/pkg/internal/safeopen"
)

// A Raw contains the values of a picture as stored in its file.
type Raw struct {
	Height, Width int
	Channels      int      // 1 (gray) or 3 (red, green, blue)
	Bytes         []uint8  // the planes of the channels, row by row; nil if the file has 16 bits per value
	Words         []uint16 // the same with 16 bits per value; nil if it has fewer
	Indices       []uint8  // the index of each pixel's color in the palette; nil if there is no palette
	Colored       bool     // red, green and blue differ at some pixel
	Vivid         bool     // they differ by more than a tenth of white, which is more than compression causes
	Transparent   bool     // some pixel is not opaque
}

// Bits returns the number of bits per value, 8 or 16. Values with fewer than 8 bits have been scaled to 8.
func (r Raw) Bits() int {
	if r.Words != nil {
		return 16
	}
	return 8
}

// ToRaw returns the values of img. Fractions in a TIFF file become 8-bit values.
func ToRaw(ctx context.Context, img image.Image) (Raw, error) {
	fractions := false
	if m, ok := img.(scaledImage); ok {
		if !m.fractions {
			return Raw{}, errors.New("the picture has signed values, or whole numbers of more than 16 bits: save it with 16 unsigned bits per value (for example, in ImageMagick, with convert -depth 16)")
		}
		img, fractions = m.Gray16, true
	}
	b := img.Bounds()
	r := Raw{Height: b.Dy(), Width: b.Dx(), Channels: 3}
	n := r.Height * r.Width
	wide := false
	switch m := img.(type) {
	case *image.Gray:
		r.Channels = 1
	case *image.Gray16:
		r.Channels, wide = 1, true
	case *image.RGBA64, *image.NRGBA64:
		wide = true
	case *image.Paletted:
		r.Indices = make([]uint8, 0, n)
		for y := range r.Height {
			r.Indices = append(r.Indices, m.Pix[y*m.Stride:][:r.Width]...)
		}
	}
	if wide {
		r.Words = make([]uint16, r.Channels*n)
	} else {
		r.Bytes = make([]uint8, r.Channels*n)
	}
	for y := range r.Height {
		if y%grayRowsPerCheck == 0 && ctx.Err() != nil {
			return Raw{}, ctx.Err()
		}
		r.readRow(img, y)
	}
	if fractions {
		r = r.ScaleToBytes(0, 0xffff)
	}
	return r, nil
}

func (r *Raw) readRow(img image.Image, y int) {
	n, at := r.Height*r.Width, y*r.Width
	set := func(x int, red, green, blue, alpha uint8) {
		i := at + x
		r.Bytes[i], r.Bytes[n+i], r.Bytes[2*n+i] = red, green, blue
		if red != green || green != blue {
			r.Colored = true
			r.Vivid = r.Vivid || max(red, green, blue)-min(red, green, blue) > 255/10
		}
		r.Transparent = r.Transparent || alpha != 255
	}
	corner := img.Bounds().Min
	switch m := img.(type) {
	case *image.Gray:
		copy(r.Bytes[at:at+r.Width], m.Pix[y*m.Stride:])
	case *image.Gray16:
		row := m.Pix[y*m.Stride:]
		for x := range r.Width {
			r.Words[at+x] = uint16(row[2*x])<<8 | uint16(row[2*x+1])
		}
	case *image.RGBA:
		row := m.Pix[y*m.Stride:]
		for x := range r.Width {
			set(x, row[4*x], row[4*x+1], row[4*x+2], row[4*x+3])
		}
	case *image.NRGBA:
		row := m.Pix[y*m.Stride:]
		for x := range r.Width {
			set(x, row[4*x], row[4*x+1], row[4*x+2], row[4*x+3])
		}
	default:
		for x := range r.Width {
			c := img.At(corner.X+x, corner.Y+y)
			if r.Words == nil {
				v := color.NRGBAModel.Convert(c).(color.NRGBA)
				set(x, v.R, v.G, v.B, v.A)
				continue
			}
			v, i := color.NRGBA64Model.Convert(c).(color.NRGBA64), at+x
			r.Words[i], r.Words[n+i], r.Words[2*n+i] = v.R, v.G, v.B
			if v.R != v.G || v.G != v.B {
				r.Colored = true
				r.Vivid = r.Vivid || max(v.R, v.G, v.B)-min(v.R, v.G, v.B) > 0xffff/10
			}
			r.Transparent = r.Transparent || v.A != 0xffff
		}
	}
}

// Gray returns r with one channel. If the colors of r differ, its values are their luminance, as in
// color.GrayModel.
func (r Raw) Gray() Raw {
	if r.Channels == 1 {
		return r
	}
	n := r.Height * r.Width
	g := Raw{Height: r.Height, Width: r.Width, Channels: 1, Indices: r.Indices, Transparent: r.Transparent}
	switch {
	case r.Words != nil && !r.Colored:
		g.Words = r.Words[:n]
	case r.Words != nil:
		g.Words = make([]uint16, n)
		for i := range g.Words {
			g.Words[i] = uint16(scaledLuminance(uint32(r.Words[i]), uint32(r.Words[n+i]), uint32(r.Words[2*n+i])) >> 16)
		}
	case !r.Colored:
		g.Bytes = r.Bytes[:n]
	default:
		g.Bytes = make([]uint8, n)
		for i := range g.Bytes {
			g.Bytes[i] = uint8(scaledLuminance(uint32(r.Bytes[i])*0x101, uint32(r.Bytes[n+i])*0x101, uint32(r.Bytes[2*n+i])*0x101) >> 24)
		}
	}
	return g
}

// scaledLuminance returns a 16-bit color's luminance times 2¹⁶, rounded as in color.GrayModel.
func scaledLuminance(r, g, b uint32) uint32 { return 19595*r + 38470*g + 7471*b + 1<<15 }

// ScaleToBytes maps 16-bit values linearly to 0 to 255, rounded: lo becomes 0 and hi becomes 255. Values
// outside lo to hi are clamped.
func (r Raw) ScaleToBytes(lo, hi float64) Raw {
	var table [1 << 16]uint8
	for v := range table {
		table[v] = uint8(min(max((float64(v)-lo)/(hi-lo), 0), 1)*255 + 0.5)
	}
	r.Bytes = make([]uint8, len(r.Words))
	for i, v := range r.Words {
		r.Bytes[i] = table[v]
	}
	r.Words = nil
	return r
}

// ReadRaw returns the values of the picture file at path (see ReadFile).
func ReadRaw(ctx context.Context, dir, path string) (Raw, error) {
	text, err := ReadFile(ctx, dir, path)
	if err != nil {
		return Raw{}, err
	}
	m, err := Decode(ctx, text)
	if err != nil {
		return Raw{}, err
	}
	return ToRaw(ctx, m)
}

// A Header describes the values of a picture, as the beginning of its file does.
type Header struct {
	Height, Width int
	Channels      int // 1 or 3; a palette counts as 3
	Bits          int // 8 (also for fewer) or 16
}

// DescribePixelFormat formats a number of channels and a number of bits per value, as in "16-bit RGB".
func DescribePixelFormat(channels, bits int) string {
	colors := "gray"
	if channels > 1 {
		colors = "RGB"
	}
	return fmt.Sprintf("%d-bit %s", bits, colors)
}

// initialHeaderBytes is the number of bytes that ReadHeader reads at first. That suffices for all headers
// except those with the preview that some cameras add.
const initialHeaderBytes = 64 << 10

// ReadHeader reads the header of the picture file at path (see ReadFile). It does not detect damage
// after the header.
func ReadHeader(ctx context.Context, dir, path string) (Header, error) {
	in, err := safeopen.Open(dir, path)
	if err != nil {
		return Header{}, err
	}
	text := make([]byte, initialHeaderBytes)
	n, err := io.ReadFull(in, text)
	if err = errors.Join(ignoreTruncation(err), in.Close()); err != nil {
		return Header{}, err
	}
	if f, err := DetectFormat(text[:n]); err == nil && f.decode != nil && n == initialHeaderBytes {
		if h, err := f.parseHeader(text); err == nil {
			return h, nil
		}
	}
	all, err := ReadFile(ctx, dir, path)
	if err != nil {
		return Header{}, err
	}
	f, err := DetectFormat(all)
	if err != nil {
		return Header{}, err
	}
	if _, _, err := f.ReadSize(all); err != nil {
		return Header{}, err
	}
	return f.parseHeader(all)
}

// ignoreTruncation returns nil if err says that a file ended early, else err.
func ignoreTruncation(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

func (f Format) parseHeader(text []byte) (Header, error) {
	if f.decode == nil {
		t, err := tiff.Parse(text)
		if err != nil {
			return Header{}, NewCorruptError(f.name, err)
		}
		if err := t.CheckSinglePage(); err != nil {
			return Header{}, err
		}
		p := t.Pages[0]
		h := Header{p.Height, p.Width, 3, 8}
		if p.IsGray() {
			h.Channels = 1
		}
		if p.Bits > 8 && !p.Float {
			h.Bits = 16
		}
		return h, nil
	}
	c, err := f.config(bytes.NewReader(text))
	if err != nil {
		return Header{}, NewCorruptError(f.name, err)
	}
	h := Header{c.Height, c.Width, 3, 8}
	switch c.ColorModel {
	case color.GrayModel:
		h.Channels = 1
	case color.Gray16Model:
		h.Channels, h.Bits = 1, 16
	case color.RGBA64Model, color.NRGBA64Model:
		h.Bits = 16
	}
	return h, nil
}
