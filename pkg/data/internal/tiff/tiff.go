// Package tiff reads the pages of TIFF files as gray values. Pages with unsigned integers
// of 1, 8 or 16 bits are decoded by golang.org/x/image/tiff, which reads only one page per
// file. This package decodes pages with signed integers, floats, 32-bit or 64-bit values, and
// separate planes of colors, in strips or tiles, uncompressed or compressed by LZW, Deflate or
// PackBits.
//
// Sources: TIFF, revision 6.0, and Adobe's technical note 3 for the predictor of floats.
package tiff

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"
	"math"

	xtiff "golang.org/x/image/tiff"
	"golang.org/x/image/tiff/lzw"

	"lockstep/pkg/data/internal/values"
)

// Limits of the sizes that a TIFF file states in its fields.
const (
	maxPixels       = 1 << 28 // per page
	maxPages        = 1 << 16
	maxBytesPerByte = 1032    // Deflate expands one byte to at most 1032 bytes
	alwaysPixels    = 1 << 26 // pages of this size are accepted in files of any length, because fax compression has no limit
)

// Tags of the fields that this package reads (TIFF 6.0, section 8 and Appendix A).
const (
	tagWidth        = 256
	tagHeight       = 257
	tagBits         = 258
	tagCompression  = 259
	tagPhotometric  = 262
	tagFillOrder    = 266
	tagStripOffsets = 273
	tagSamples      = 277
	tagRowsPerStrip = 278
	tagStripBytes   = 279
	tagPlanar       = 284
	tagPredictor    = 317
	tagTileWidth    = 322
	tagTileHeight   = 323
	tagTileOffsets  = 324
	tagTileBytes    = 325
	tagSubIFDs      = 330
	tagExtraSamples = 338
	tagFormat       = 339
)

// Values of tagPhotometric: the color of gray value 0.
const (
	whiteIsZero = 0
	blackIsZero = 1
)

// Values of tagCompression.
const (
	compressionNone         = 1
	compressionFax          = 2 // 2 to 4 are fax compressions of pages with one bit per pixel
	compressionFax4         = 4
	compressionLZW          = 5
	compressionOldJPEG      = 6
	compressionJPEG         = 7
	compressionDeflate      = 8
	compressionPackBits     = 32773
	compressionAdobeDeflate = 32946 // older value for Deflate
)

// File contains the pages of a TIFF file.
type File struct {
	text  []byte
	order binary.ByteOrder
	left  int64 // number of field values that may still be read; initially the size of the file in bytes
	Pages []Page
}

// Page is one page of a TIFF file.
type Page struct {
	Height, Width int
	Bits          int  // bits per value
	Float, Signed bool // type of the values; unsigned integers if both are false

	at     int64 // position of the page's directory in the file
	fields map[uint16][]uint32
}

// Parse parses the directories of all pages of the TIFF file text, without decoding pixels.
func Parse(text []byte) (*File, error) {
	f := &File{text: text, left: int64(len(text))}
	switch {
	case bytes.HasPrefix(text, []byte("II*\x00")):
		f.order = binary.LittleEndian
	case bytes.HasPrefix(text, []byte("MM\x00*")):
		f.order = binary.BigEndian
	case bytes.HasPrefix(text, []byte("II+\x00")), bytes.HasPrefix(text, []byte("MM\x00+")):
		return nil, UnsupportedError("BigTIFF files are not supported: save the file as a classic TIFF, " + ExampleCommand)
	default:
		return nil, errors.New("not a TIFF file: it does not begin with TIFF's signature")
	}
	if len(text) < 8 {
		return nil, io.ErrUnexpectedEOF
	}
	seen := map[uint32]bool{}
	for at := f.order.Uint32(text[4:]); at != 0; {
		if seen[at] || len(f.Pages) == maxPages {
			return nil, fmt.Errorf("page %d refers to the directory of an earlier page: the file is damaged", len(f.Pages))
		}
		seen[at] = true
		p, next, err := f.readPage(int64(at))
		if err != nil {
			return nil, fmt.Errorf("page %d: %w", len(f.Pages), err)
		}
		f.Pages = append(f.Pages, p)
		at = next
	}
	if len(f.Pages) == 0 {
		return nil, errors.New("the file has no pages")
	}
	return f, nil
}

// readPage parses the directory (section 2) at position pos. next is the position of the next one,
// or 0 after the last page.
func (f *File) readPage(pos int64) (p Page, next uint32, err error) {
	size := int64(len(f.text))
	if pos+2 > size {
		return p, 0, io.ErrUnexpectedEOF
	}
	n := int64(f.order.Uint16(f.text[pos:]))
	end := pos + 2 + 12*n
	if end+4 > size {
		return p, 0, io.ErrUnexpectedEOF
	}
	p = Page{at: pos, fields: map[uint16][]uint32{}}
	for e := f.text[pos+2 : end]; len(e) > 0; e = e[12:] {
		tag, kind, count := f.order.Uint16(e), f.order.Uint16(e[2:]), int64(f.order.Uint32(e[4:]))
		width := map[uint16]int64{1: 1, 3: 2, 4: 4, 13: 4}[kind]
		switch tag {
		case tagWidth, tagHeight, tagBits, tagCompression, tagPhotometric, tagFillOrder, tagStripOffsets, tagSamples, tagRowsPerStrip, tagStripBytes,
			tagPlanar, tagPredictor, tagTileWidth, tagTileHeight, tagTileOffsets, tagTileBytes, tagSubIFDs, tagExtraSamples, tagFormat:
		default:
			continue
		}
		if width == 0 {
			return p, 0, fmt.Errorf("TIFF field %d has invalid type %d: the file is damaged", tag, kind)
		}
		b := e[8:12]
		if count*width > 4 {
			from := int64(f.order.Uint32(b))
			if from+count*width > size {
				return p, 0, io.ErrUnexpectedEOF
			}
			b = f.text[from:]
		}
		if f.left -= count; f.left < 0 {
			return p, 0, errors.New("the pages have more field values than the file has bytes: the file is damaged")
		}
		v := make([]uint32, count)
		for i := range v {
			switch width {
			case 1:
				v[i] = uint32(b[i])
			case 2:
				v[i] = uint32(f.order.Uint16(b[2*i:]))
			default:
				v[i] = f.order.Uint32(b[4*i:])
			}
		}
		p.fields[tag] = v
	}
	h, w := p.fieldValue(tagHeight, 0), p.fieldValue(tagWidth, 0)
	if h < 1 || w < 1 || int64(h) > maxPixels/int64(w) {
		return p, 0, fmt.Errorf("page size %d×%d is invalid: want 1 to %d pixels", h, w, maxPixels)
	}
	p.Height, p.Width, p.Bits = int(h), int(w), int(p.fieldValue(tagBits, 1))
	switch p.fieldValue(tagFormat, 1) {
	case 2:
		p.Signed = true
	case 3:
		p.Float = true
	}
	return p, f.order.Uint32(f.text[end:]), nil
}

// fieldValue returns the first value of a field, or defaultValue if the page does not have the field.
func (p Page) fieldValue(tag uint16, defaultValue uint32) uint32 {
	if v := p.fields[tag]; len(v) > 0 {
		return v[0]
	}
	return defaultValue
}

// needsOwnDecoder reports whether this package, not x/image/tiff, decodes the page's values.
func (p Page) needsOwnDecoder() bool { return p.Bits > 16 || p.Float || p.Signed }

// isFaxInverted reports whether x/image/tiff would exchange black and white on a page with fax
// compression. Fax data contain runs of the values 0 and 1. x/image/tiff always decodes 1 to black,
// but on a page that defines 0 as black, 1 is white (section 11, and libtiff).
func (p Page) isFaxInverted() bool {
	return p.isFaxCompressed() && p.fieldValue(tagPhotometric, whiteIsZero) == blackIsZero
}

func (p Page) isFaxCompressed() bool {
	c := p.fieldValue(tagCompression, compressionNone)
	return c >= compressionFax && c <= compressionFax4
}

// DecodeValues decodes a page's gray values row by row. Integers are divided by the largest value of
// their type; floats are not changed.
func (f *File) DecodeValues(ctx context.Context, page int) ([]float32, error) {
	p := f.Pages[page]
	if p.needsOwnDecoder() {
		v, err := f.decodePage(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("page %d: %w", page, err)
		}
		return v, nil
	}
	m, err := f.DecodeImage(ctx, page)
	if err != nil {
		return nil, err
	}
	b := m.Bounds()
	v := make([]float32, b.Dy()*b.Dx())
	switch m := m.(type) {
	case *image.Gray:
		for i := range v {
			v[i] = float32(m.Pix[i/b.Dx()*m.Stride+i%b.Dx()]) / 255
		}
	default:
		for i := range v {
			v[i] = float32(color.Gray16Model.Convert(m.At(b.Min.X+i%b.Dx(), b.Min.Y+i/b.Dx())).(color.Gray16).Y) / math.MaxUint16
		}
	}
	return v, nil
}

// DecodeImage decodes a page. Values of more than 16 bits are rounded to 16 bits. Floats must be between
// 0 (black) and 1 (white).
func (f *File) DecodeImage(ctx context.Context, page int) (image.Image, error) {
	p := f.Pages[page]
	if !p.needsOwnDecoder() {
		if p.Height*p.Width > max(alwaysPixels, 8*maxBytesPerByte*len(f.text)) {
			return nil, fmt.Errorf("page %d: file of %d bytes is too short for %d×%d pixels", page, len(f.text), p.Height, p.Width)
		}
		if p.hasSeparatePlanes() {
			m, err := f.decodePlanes(ctx, p)
			if err != nil {
				return nil, fmt.Errorf("page %d: %w", page, err)
			}
			return m, nil
		}
		if err := p.checkCompression(); err != nil {
			return nil, fmt.Errorf("page %d: %w", page, err)
		}
		if p.fieldValue(tagFillOrder, 1) == 2 && p.Bits < 8 && !p.isFaxCompressed() { // x/image/tiff applies this field only to fax compression
			return nil, fmt.Errorf("page %d: reversed bit order (fill order 2) is not supported: save the page with 8 bits per value", page)
		}
		// x/image/tiff reads the first page of a file: make this page the first.
		text := bytes.Clone(f.text[:8])
		f.order.PutUint32(text[4:], uint32(p.at))
		m, err := xtiff.Decode(&patchedReader{ctx: ctx, head: text, text: f.text})
		if err != nil {
			return nil, fmt.Errorf("page %d: %w", page, err)
		}
		if b := m.Bounds(); b.Dy() != p.Height || b.Dx() != p.Width {
			return nil, fmt.Errorf("page %d: decoded size is %d×%d, want %d×%d: the file is damaged", page, b.Dy(), b.Dx(), p.Height, p.Width)
		}
		if g, ok := m.(*image.Gray); ok && p.isFaxInverted() {
			for i := range g.Pix {
				g.Pix[i] = ^g.Pix[i]
			}
		}
		return m, nil
	}
	v, err := f.DecodeValues(ctx, page)
	if err != nil {
		return nil, err
	}
	m := image.NewGray16(image.Rect(0, 0, p.Width, p.Height))
	for i, x := range v {
		if !(x >= 0 && x <= 1) {
			return nil, fmt.Errorf("page %d: pixel (%d, %d) is %g, want 0 (black) to 1 (white): divide the values by the largest one", page, i/p.Width, i%p.Width, x)
		}
		m.SetGray16(i%p.Width, i/p.Width, color.Gray16{Y: uint16(x*math.MaxUint16 + 0.5)})
	}
	return m, nil
}

// patchedReader reads a TIFF file with its first 8 bytes replaced by head.
type patchedReader struct {
	ctx        context.Context // cancels the decoder, which accepts no context
	head, text []byte
	at         int64
}

func (r *patchedReader) ReadAt(b []byte, at int64) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	if at < 0 || at >= int64(len(r.text)) {
		return 0, io.EOF
	}
	n := copy(b, r.text[at:])
	if at < int64(len(r.head)) {
		copy(b[:n], r.head[at:])
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (r *patchedReader) Read(b []byte) (int, error) {
	n, err := r.ReadAt(b, r.at)
	r.at += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// decodePage decodes the values of a page without x/image/tiff.
func (f *File) decodePage(ctx context.Context, p Page) ([]float32, error) {
	if err := p.checkCompression(); err != nil {
		return nil, err
	}
	of := values.NumberType{Size: p.Bits / 8, Big: f.order == binary.BigEndian, Float: p.Float, Signed: p.Signed}
	switch {
	case p.fieldValue(tagSamples, 1) != 1:
		return nil, fmt.Errorf("page has %d values of %d bits per pixel: only gray pictures are supported", p.fieldValue(tagSamples, 1), p.Bits)
	case p.Bits%8 != 0 || !of.IsSupported():
		return nil, fmt.Errorf("unsupported values of %d bits: integers of 8, 16, 32 or 64 bits and floats of 16, 32 or 64 bits are supported", p.Bits)
	}
	width, height := p.Width, int(min(p.fieldValue(tagRowsPerStrip, uint32(p.Height)), uint32(p.Height)))
	offsets, sizes := p.fields[tagStripOffsets], p.fields[tagStripBytes]
	tiled := p.fieldValue(tagTileWidth, 0) > 0
	if tiled {
		w, h := p.fieldValue(tagTileWidth, 0), p.fieldValue(tagTileHeight, 0)
		if h == 0 || w > 1<<16 || h > 1<<16 {
			return nil, fmt.Errorf("invalid tile size %d×%d: the file is damaged", h, w)
		}
		width, height, offsets, sizes = int(w), int(h), p.fields[tagTileOffsets], p.fields[tagTileBytes]
	}
	if height == 0 {
		return nil, errors.New("strips have 0 rows: the file is damaged")
	}
	across, down := (p.Width+width-1)/width, (p.Height+height-1)/height
	if len(offsets) != across*down || len(sizes) != across*down {
		return nil, fmt.Errorf("got %d strips or tiles, want %d: the file is damaged", len(offsets), across*down)
	}
	if int64(p.Height)*int64(p.Width)*int64(of.Size) > maxBytesPerByte*int64(len(f.text)) {
		return nil, fmt.Errorf("file of %d bytes is too short for %d×%d pixels", len(f.text), p.Height, p.Width)
	}
	v := make([]float32, p.Height*p.Width)
	for k := range offsets {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		top, left := k/across*height, k%across*width
		rows := height
		if !tiled {
			rows = min(height, p.Height-top)
		}
		b, err := f.decompressStripOrTile(p, int64(offsets[k]), int64(sizes[k]), rows*width*of.Size)
		if err != nil {
			return nil, err
		}
		for y := range min(rows, p.Height-top) {
			row, big := b[y*width*of.Size:][:width*of.Size], of
			if err := undoPredictor(p, row, of, f.order); err != nil {
				return nil, err
			}
			big.Big = of.Big || p.fieldValue(tagPredictor, 1) == 3
			n := min(width, p.Width-left)
			big.DecodeFloat32(v[(top+y)*p.Width+left:][:n], row)
		}
	}
	if !p.Float {
		largest := float32(math.Pow(2, float64(p.Bits)) - 1)
		if p.Signed {
			largest = float32(math.Pow(2, float64(p.Bits-1)) - 1)
		}
		inverted := !p.Signed && p.fieldValue(tagPhotometric, blackIsZero) == whiteIsZero
		for i := range v {
			if v[i] /= largest; inverted {
				v[i] = 1 - v[i]
			}
		}
	}
	return v, nil
}

// decompressStripOrTile reads the strip or tile at position pos, which has size bytes, and decompresses it
// to n bytes.
func (f *File) decompressStripOrTile(p Page, pos, size int64, n int) ([]byte, error) {
	if pos+size > int64(len(f.text)) {
		return nil, fmt.Errorf("strip or tile at byte %d has %d bytes, which exceeds the file of %d bytes: the file is truncated; copy it again", pos, size, len(f.text))
	}
	b := f.text[pos : pos+size]
	if int64(n) > maxBytesPerByte*8*(size+1) {
		return nil, fmt.Errorf("strip or tile of %d bytes cannot be decompressed to %d bytes: the file is damaged", size, n)
	}
	var r io.Reader
	switch p.fieldValue(tagCompression, compressionNone) {
	case compressionLZW:
		l := lzw.NewReader(bytes.NewReader(b), lzw.MSB, 8)
		defer func() { _ = l.Close() }()
		r = l
	case compressionDeflate, compressionAdobeDeflate:
		z, err := zlib.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("decompress Deflate: %w", err)
		}
		r = z
	case compressionPackBits:
		return decodePackBits(b, n)
	default: // none, see checkCompression
		r = bytes.NewReader(b)
	}
	out := make([]byte, n)
	if _, err := io.ReadFull(r, out); err != nil {
		return nil, fmt.Errorf("strip or tile at byte %d is shorter than %d bytes after decompression: %w", pos, n, err)
	}
	return out, nil
}

// decodePackBits decompresses PackBits data (section 9) to n bytes.
func decodePackBits(b []byte, n int) ([]byte, error) {
	out := make([]byte, 0, n)
	for len(out) < n {
		if len(b) < 2 {
			return nil, fmt.Errorf("decompress PackBits: %w", io.ErrUnexpectedEOF)
		}
		switch c := int(int8(b[0])); {
		case c >= 0:
			if len(b) < 2+c {
				return nil, fmt.Errorf("decompress PackBits: %w", io.ErrUnexpectedEOF)
			}
			out, b = append(out, b[1:2+c]...), b[2+c:]
		case c == -128:
			b = b[1:]
		default:
			for range 1 - c {
				out = append(out, b[1])
			}
			b = b[2:]
		}
	}
	return out[:n], nil
}

// undoPredictor reverses a row's predictor in place. Predictor 2 stores differences of integers
// (section 14). Predictor 3 stores differences of the bytes of floats, most significant bytes first
// (technical note 3); the resulting floats are big-endian.
func undoPredictor(p Page, row []byte, kind values.NumberType, order binary.ByteOrder) error {
	switch c := p.fieldValue(tagPredictor, 1); {
	case c == 1:
	case c == 2 && kind.Size == 1:
		for i := 1; i < len(row); i++ {
			row[i] += row[i-1]
		}
	case c == 2 && kind.Size == 2:
		for i := 2; i < len(row); i += 2 {
			order.PutUint16(row[i:], order.Uint16(row[i:])+order.Uint16(row[i-2:]))
		}
	case c == 2 && kind.Size == 4:
		for i := 4; i < len(row); i += 4 {
			order.PutUint32(row[i:], order.Uint32(row[i:])+order.Uint32(row[i-4:]))
		}
	case c == 2 && kind.Size == 8:
		for i := 8; i < len(row); i += 8 {
			order.PutUint64(row[i:], order.Uint64(row[i:])+order.Uint64(row[i-8:]))
		}
	case c == 3 && kind.Float:
		for i := 1; i < len(row); i++ {
			row[i] += row[i-1]
		}
		planes, n := bytes.Clone(row), len(row)/kind.Size
		for i := range n {
			for k := range kind.Size {
				row[i*kind.Size+k] = planes[k*n+i]
			}
		}
	default:
		return fmt.Errorf("unknown predictor %d for this type of values: the file is damaged", c)
	}
	return nil
}
