package raster

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"io"
	"math"

	"github.com/klauspost/compress/zlib"
)

// writePNG writes an opaque image as a PNG (W3C, Portable Network Graphics, third edition), with 8 bits
// per sample. It uses a palette if the image has at most 256 colors, else red, green and blue. Rows are
// not filtered: figures consist of flat areas, which filters do not make smaller, and trying all filters
// on each row, as image/png does, takes ten times as long. It returns the number of bytes written.
func writePNG(w io.Writer, img *image.RGBA, dpi float64) (int64, error) {
	width, height := img.Rect.Dx(), img.Rect.Dy()
	palette := newPalette(img)
	p := pngWriter{w: w}
	p.write([]byte("\x89PNG\r\n\x1a\n"))
	head := binary.BigEndian.AppendUint32(nil, uint32(width))
	head = binary.BigEndian.AppendUint32(head, uint32(height))
	const trueColour, indexed = 2, 3
	kind := byte(trueColour)
	if palette != nil {
		kind = indexed
	}
	p.writeChunk("IHDR", append(head, 8, kind, 0, 0, 0))
	const inchesPerMetre = 1 / 0.0254
	perMetre := uint32(math.Round(dpi * inchesPerMetre))
	physical := binary.BigEndian.AppendUint32(nil, perMetre)
	p.writeChunk("pHYs", append(binary.BigEndian.AppendUint32(physical, perMetre), 1))
	if palette != nil {
		p.writeChunk("PLTE", palette.bytes)
	}
	data, err := compressRows(img, palette)
	if err != nil {
		return p.n, err
	}
	p.writeChunk("IDAT", data)
	p.writeChunk("IEND", nil)
	return p.n, p.err
}

func compressRows(img *image.RGBA, palette *pngPalette) ([]byte, error) {
	var b bytes.Buffer
	z, err := zlib.NewWriterLevel(&b, zlib.BestSpeed)
	if err != nil {
		return nil, err
	}
	width := img.Rect.Dx()
	row := make([]byte, 1, 1+3*width+1) // the first byte is 0: no filter
	for y := range img.Rect.Dy() {
		pix := img.Pix[y*img.Stride:][:4*width]
		if palette != nil {
			row = palette.appendRow(row[:1], pix)
		} else {
			row = row[:1+3*width]
			to := row[1 : 1+3*width+1] // one more byte for the last alpha, which is not part of the row
			for ; len(pix) >= 4 && len(to) >= 4; pix, to = pix[4:], to[3:] {
				binary.LittleEndian.PutUint32(to, readPixel(pix)) // the next pixel overwrites alpha
			}
		}
		if _, err := z.Write(row); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

type pngPalette struct {
	bytes []byte          // red, green, blue of each color
	index map[uint32]byte // index of each color, by the bytes of its pixel
}

func readPixel(pix []byte) uint32 { return binary.LittleEndian.Uint32(pix) }

// newPalette returns the palette of an image, or nil for more than 256 colors.
func newPalette(img *image.RGBA) *pngPalette {
	const most = 256
	p := &pngPalette{index: map[uint32]byte{}}
	last, any := uint32(0), false
	for y := range img.Rect.Dy() {
		pix := img.Pix[y*img.Stride:][:4*img.Rect.Dx()]
		for ; len(pix) >= 4; pix = pix[4:] {
			c := readPixel(pix)
			if any && c == last {
				continue
			}
			last, any = c, true
			if _, known := p.index[c]; known {
				continue
			}
			if len(p.index) == most {
				return nil
			}
			p.index[c] = byte(len(p.index))
			p.bytes = append(p.bytes, pix[:3]...)
		}
	}
	return p
}

// appendRow appends the palette indexes of a row of pixels to dst.
func (p *pngPalette) appendRow(dst, pix []byte) []byte {
	last, index := readPixel(pix), p.index[readPixel(pix)]
	for ; len(pix) >= 4; pix = pix[4:] {
		if c := readPixel(pix); c != last {
			last, index = c, p.index[c]
		}
		dst = append(dst, index)
	}
	return dst
}

// pngWriter writes chunks until the first error, and counts the bytes.
type pngWriter struct {
	w   io.Writer
	n   int64
	err error
}

// write writes b, unless an earlier write has failed.
func (p *pngWriter) write(b []byte) {
	if p.err != nil {
		return
	}
	n, err := p.w.Write(b)
	p.n, p.err = p.n+int64(n), err
}

func (p *pngWriter) writeChunk(name string, data []byte) {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(data)))
	b = append(append(b, name...), data...)
	p.write(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[4:])))
}
