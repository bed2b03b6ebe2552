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
	"math"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/data/internal/tiff"
	"lockstep/pkg/internal/safeopen"
)

// A picture may have at most MaxPixels pixels, and at most maxPixelsPerByte pixels per byte
// of its file: Deflate compresses at most 1032 bytes into one (zlib's technical notes), and
// a byte has at most 8 pixels.
const (
	MaxPixels        = 1 << 28
	maxPixelsPerByte = 8 * 1032
)

// FormatNames lists the supported formats for error messages.
const FormatNames = "PNG, JPEG or TIFF"

// pictureExtensions lists file name extensions in lower case.
var pictureExtensions = []string{".png", ".jpg", ".jpeg", ".tif", ".tiff"}

// HasPictureExtension reports whether a file name has a picture's extension, in any case.
func HasPictureExtension(name string) bool {
	return slices.Contains(pictureExtensions, strings.ToLower(filepath.Ext(name)))
}

// Format is a file format of pictures.
type Format struct {
	name   string
	magic  []string // possible first bytes of a file
	config func(io.Reader) (image.Config, error)
	decode func(io.Reader) (image.Image, error) // nil for TIFF, which has a separate reader
}

// DetectFormat detects the format of a picture file by its first bytes, not its name.
func DetectFormat(text []byte) (Format, error) {
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
	err := errors.New("the first bytes match no supported format")
	if len(text) < 8 {
		err = io.ErrUnexpectedEOF
	}
	return Format{}, NewCorruptError(FormatNames, err)
}

// MaxFileBytes limits files, which are read into memory completely.
const MaxFileBytes = 4 << 30

// ReadFile reads the file at path, which must be below the folder dir. Named pipes, devices, and
// links out of dir are errors.
func ReadFile(ctx context.Context, dir, path string) ([]byte, error) {
	return safeopen.ReadFileContext(ctx, dir, path, MaxFileBytes)
}

// contextReader returns an error once its context is canceled, so that the decoding of a large
// picture can be interrupted.
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

// A Gray is a picture in 8-bit gray values.
type Gray struct {
	Pixels        []uint8 // row by row
	Height, Width int
	Colored       bool // the file has colors, which are lost
}

// ReadGray reads the picture file at path (see ReadFile) and converts it to gray (see DecodeGray).
func ReadGray(ctx context.Context, dir, path string) (Gray, error) {
	text, err := ReadFile(ctx, dir, path)
	if err != nil {
		return Gray{}, err
	}
	return DecodeGray(ctx, text)
}

// grayRowsPerCheck is the number of rows converted between two checks of the context.
const grayRowsPerCheck = 64

// DecodeGray decodes a picture file to 8-bit gray. 16-bit values keep their upper 8 bits, palettes
// are applied, and transparent pixels become black.
func DecodeGray(ctx context.Context, text []byte) (Gray, error) {
	img, err := Decode(ctx, text)
	if err != nil {
		return Gray{}, err
	}
	return ToGray(ctx, img)
}

// ToGray converts a picture to 8-bit gray values.
func ToGray(ctx context.Context, img image.Image) (Gray, error) {
	b := img.Bounds()
	gray, ok := img.(*image.Gray)
	if !ok || gray.Stride != b.Dx() {
		gray = image.NewGray(image.Rect(0, 0, b.Dx(), b.Dy()))
		for y := 0; y < b.Dy(); y += grayRowsPerCheck {
			if err := ctx.Err(); err != nil {
				return Gray{}, err
			}
			draw.Draw(gray, image.Rect(0, y, b.Dx(), min(y+grayRowsPerCheck, b.Dy())), img, b.Min.Add(image.Pt(0, y)), draw.Src)
		}
	}
	return Gray{Pixels: gray.Pix[:b.Dx()*b.Dy()], Height: b.Dy(), Width: b.Dx(), Colored: hasColors(img)}, nil
}

// hasColors reports whether the channels of some pixel differ by more than a tenth of white, which
// is more than compression causes. It checks about 10,000 pixels.
func hasColors(img image.Image) bool {
	const most, limit = 10_000, 0xffff / 10
	switch img.(type) {
	case *image.Gray, *image.Gray16:
		return false
	}
	b := img.Bounds()
	step := int(math.Ceil(math.Sqrt(float64(b.Dx()) * float64(b.Dy()) / most)))
	for y := b.Min.Y; y < b.Max.Y; y += step {
		for x := b.Min.X; x < b.Max.X; x += step {
			if r, g, b, _ := img.At(x, y).RGBA(); max(r, g, b)-min(r, g, b) > limit {
				return true
			}
		}
	}
	return false
}

// Decode decodes the content of a picture file. A picture without pixels is an error.
func Decode(ctx context.Context, text []byte) (image.Image, error) {
	f, err := DetectFormat(text)
	if err != nil {
		return nil, err
	}
	if f.name == "TIFF" {
		return decodeTIFF(ctx, text)
	}
	if _, _, err := f.ReadSize(text); err != nil {
		return nil, err
	}
	img, err := f.decode(contextReader{ctx, bytes.NewReader(text)})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, NewCorruptError(f.name, err)
	}
	if img.Bounds().Empty() {
		return nil, NewCorruptError(f.name, errors.New("the picture has no pixels"))
	}
	return img, nil
}

// ReadSize returns the height and width in pixels in a picture file's header. It returns an error
// if the file is too short for that number of pixels.
func (f Format) ReadSize(text []byte) (height, width int, err error) {
	if f.decode == nil {
		t, err := tiff.Parse(text)
		if err != nil {
			return 0, 0, NewCorruptError(f.name, err)
		}
		return t.Pages[0].Height, t.Pages[0].Width, t.CheckSinglePage()
	}
	c, err := f.config(bytes.NewReader(text))
	if err != nil {
		return 0, 0, NewCorruptError(f.name, err)
	}
	if c.Height < 1 || c.Width < 1 || c.Height > MaxPixels/c.Width {
		return 0, 0, fmt.Errorf("picture size %d×%d is invalid: want 1 to %d pixels", c.Height, c.Width, MaxPixels)
	}
	if c.Height*c.Width > maxPixelsPerByte*len(text) {
		return 0, 0, NewCorruptError(f.name, fmt.Errorf("file of %d bytes is too short for %d×%d pixels", len(text), c.Height, c.Width))
	}
	return c.Height, c.Width, nil
}

// decodeTIFF decodes a TIFF file with one page, of 1 to 64 bits per value.
func decodeTIFF(ctx context.Context, text []byte) (image.Image, error) {
	f, err := tiff.Parse(text)
	if err != nil {
		return nil, NewCorruptError("TIFF", err)
	}
	if err := f.CheckSinglePage(); err != nil {
		return nil, err
	}
	m, err := f.DecodeImage(ctx, 0)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, NewCorruptError("TIFF", err)
	}
	if g, ok := m.(*image.Gray16); ok && (f.Pages[0].Float || f.Pages[0].Signed || f.Pages[0].Bits > 16) {
		return scaledImage{g, f.Pages[0].Float}, nil
	}
	return m, nil
}

// scaledImage contains a picture converted to 16 bits, because its file contains floats from 0 to 1,
// signed integers, or integers of more than 16 bits.
type scaledImage struct {
	*image.Gray16
	fractions bool
}

// NewCorruptError returns the error for a file of the given format that cannot be decoded. If err
// says that the file is valid but not supported, NewCorruptError returns err.
func NewCorruptError(kind string, err error) error {
	if errors.As(err, new(tiff.UnsupportedError)) {
		return err
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("file is not a valid %s: copy or save it again: %w", kind, err)
}
