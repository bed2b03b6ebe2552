// Package picture reads PNG, JPEG and TIFF files into memory, and limits the memory that a
// damaged file can request.
package picture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/draw"
	"image/jpeg"
	"image/png"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/data/internal/tiff"
	"lockstep/pkg/internal/safeopen"
)

// The size stated in a header is limited by maxPixels and by the size of the
// file. Deflate compresses at most 1032 bytes into one (zlib's technical
// notes), and a byte has at most 8 pixels.
const (
	MaxPixels        = 1 << 28
	maxPixelsPerByte = 8 * 1032
)

// Kinds lists the supported formats, for messages.
const Kinds = "PNG, JPEG or TIFF"

// extensions contains the file name extensions of pictures.
var extensions = []string{".png", ".jpg", ".jpeg", ".tif", ".tiff"}

// IsPicture reports whether a file name has the extension of a picture.
func IsPicture(name string) bool {
	return slices.Contains(extensions, strings.ToLower(filepath.Ext(name)))
}

// Format is a file format of pictures.
type Format struct {
	name   string
	magic  []string // possible first bytes of a file
	config func(io.Reader) (image.Config, error)
	decode func(io.Reader) (image.Image, error) // nil for TIFF, which has a separate reader
}

// FormatOf returns the format of a file by its first bytes, whatever its name is.
func FormatOf(text []byte) (Format, error) {
	for _, f := range []Format{
		{"PNG", []string{"\x89PNG\r\n\x1a\n"}, png.DecodeConfig, png.Decode},
		{"JPEG", []string{"\xff\xd8\xff"}, jpeg.DecodeConfig, jpeg.Decode},
		{"TIFF", []string{"II*\x00", "MM\x00*", "II+\x00", "MM\x00+"}, nil, nil},
	} {
		for _, m := range f.magic {
			if strings.HasPrefix(string(text[:min(len(text), len(m))]), m) {
				return f, nil
			}
		}
	}
	err := errors.New("it begins like none of them")
	if len(text) < 8 {
		err = io.ErrUnexpectedEOF
	}
	return Format{}, CorruptError(Kinds, err)
}

// maxFile limits the size of a file that is read into memory at once.
const maxFile = 4 << 30

// ReadFile reads the file at path, which is in the folder dir or below it. A named
// pipe, a device, and a link out of dir are refused.
func ReadFile(ctx context.Context, dir, path string) ([]byte, error) {
	return safeopen.ReadFileContext(ctx, dir, path, maxFile)
}

// contextReader reads until its context is canceled, so that decoding of a large picture
// can be interrupted.
type contextReader struct {
	context.Context
	io.Reader
}

func (r contextReader) Read(b []byte) (int, error) {
	if err := r.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

// ReadGray decodes a picture file of dir to 8-bit grey values, row by row.
func ReadGray(ctx context.Context, dir, path string) (pixels []uint8, height, width int, err error) {
	text, err := ReadFile(ctx, dir, path)
	if err != nil {
		return nil, 0, 0, err
	}
	return DecodeGray(ctx, text)
}

// grayRows is the number of rows that are converted to gray between two checks of the
// context.
const grayRows = 64

// DecodeGray decodes the bytes of a picture file. 16-bit values keep their upper 8 bits,
// palette indices become colors, and transparent pixels become black.
func DecodeGray(ctx context.Context, text []byte) (pixels []uint8, height, width int, err error) {
	img, err := Decode(ctx, text)
	if err != nil {
		return nil, 0, 0, err
	}
	b := img.Bounds()
	gray, ok := img.(*image.Gray)
	if !ok || gray.Stride != b.Dx() {
		gray = image.NewGray(image.Rect(0, 0, b.Dx(), b.Dy()))
		for y := 0; y < b.Dy(); y += grayRows {
			if err := ctx.Err(); err != nil {
				return nil, 0, 0, err
			}
			draw.Draw(gray, image.Rect(0, y, b.Dx(), min(y+grayRows, b.Dy())), img, b.Min.Add(image.Pt(0, y)), draw.Src)
		}
	}
	return gray.Pix[:b.Dx()*b.Dy()], b.Dy(), b.Dx(), nil
}

// Decode decodes the bytes of a picture file. A picture without pixels is an error.
func Decode(ctx context.Context, text []byte) (image.Image, error) {
	f, err := FormatOf(text)
	if err != nil {
		return nil, err
	}
	if f.name == "TIFF" {
		return decodeTIFF(ctx, text)
	}
	if _, _, err := f.Size(text); err != nil {
		return nil, err
	}
	img, err := f.decode(contextReader{ctx, bytes.NewReader(text)})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, CorruptError(f.name, err)
	}
	if img.Bounds().Empty() {
		return nil, CorruptError(f.name, errors.New("it has no pixels"))
	}
	return img, nil
}

// Size returns the height and width in pixels that the header of a file states. It
// is an error if the file is too short to hold them.
func (f Format) Size(text []byte) (height, width int, err error) {
	if f.decode == nil {
		t, err := tiff.Parse(text)
		if err != nil {
			return 0, 0, CorruptError(f.name, err)
		}
		return t.Pages[0].Height, t.Pages[0].Width, nil
	}
	c, err := f.config(bytes.NewReader(text))
	if err != nil {
		return 0, 0, CorruptError(f.name, err)
	}
	if c.Height < 1 || c.Width < 1 || c.Height > MaxPixels/c.Width {
		return 0, 0, fmt.Errorf("size %d×%d is out of range: at most %d pixels", c.Height, c.Width, MaxPixels)
	}
	if c.Height*c.Width > maxPixelsPerByte*len(text) {
		return 0, 0, CorruptError(f.name, fmt.Errorf("%d bytes cannot hold %d×%d pixels", len(text), c.Height, c.Width))
	}
	return c.Height, c.Width, nil
}

// decodeTIFF decodes the only page of a TIFF file, of 1 to 64 bits.
func decodeTIFF(ctx context.Context, text []byte) (image.Image, error) {
	f, err := tiff.Parse(text)
	if err != nil {
		return nil, CorruptError("TIFF", err)
	}
	if len(f.Pages) > 1 {
		return nil, fmt.Errorf("it is a TIFF of several pages: save each page as a file of its own, or read its %d pages as a volume (data kind stacks)", len(f.Pages))
	}
	m, err := f.Image(ctx, 0)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, CorruptError("TIFF", err)
	}
	return m, nil
}

// CorruptError returns the error for an incomplete picture file: the advice and the
// cause.
func CorruptError(kind string, err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("not a readable %s: copy or save it again: %w", kind, err)
}
