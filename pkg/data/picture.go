package data

import (
	"bytes"
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

// What a damaged header may ask for is bounded: by maxPixels, and by what the
// file can hold. Deflate packs at most 1032 bytes into one (zlib's technical
// notes), and a byte has at most 8 pixels.
const (
	maxPixels        = 1 << 28
	maxPixelsPerByte = 8 * 1032
)

// kinds is what a picture's file may be, for messages.
const kinds = "PNG, JPEG or TIFF"

// extensions are those of pictures.
var extensions = []string{".png", ".jpg", ".jpeg", ".tif", ".tiff"}

// isPicture says whether a file's name is a picture's.
func isPicture(name string) bool {
	return slices.Contains(extensions, strings.ToLower(filepath.Ext(name)))
}

// format is a kind of picture file.
type format struct {
	name   string
	magic  []string // what a file begins with
	config func(io.Reader) (image.Config, error)
	decode func(io.Reader) (image.Image, error) // nil of TIFF, which has a reader of its own
}

// formatOf is the format that the bytes of a file have, whatever its name says.
func formatOf(text []byte) (format, error) {
	for _, f := range []format{
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
	return format{}, corrupt(kinds, err)
}

// maxFile bounds a file that is held in memory as a whole.
const maxFile = 4 << 30

// readFile reads the file at path, which is in the folder dir or below it. A named
// pipe, a device, and a link out of dir are refused.
func readFile(dir, path string) ([]byte, error) { return safeopen.ReadFile(dir, path, maxFile) }

// readGrey decodes a picture file of dir to 8-bit grey values, row by row.
func readGrey(dir, path string) (pixels []uint8, height, width int, err error) {
	text, err := readFile(dir, path)
	if err != nil {
		return nil, 0, 0, err
	}
	return decodeGrey(text)
}

// decodeGrey decodes the bytes of a picture file. Of 16 bits the upper 8 count,
// a palette's colours are looked up, and what is transparent is black.
func decodeGrey(text []byte) (pixels []uint8, height, width int, err error) {
	img, err := decodePicture(text)
	if err != nil {
		return nil, 0, 0, err
	}
	b := img.Bounds()
	gray, ok := img.(*image.Gray)
	if !ok || gray.Stride != b.Dx() {
		gray = image.NewGray(image.Rect(0, 0, b.Dx(), b.Dy()))
		draw.Draw(gray, gray.Bounds(), img, b.Min, draw.Src)
	}
	return gray.Pix[:b.Dx()*b.Dy()], b.Dy(), b.Dx(), nil
}

// decodePicture decodes the bytes of a picture file, which has at least a pixel.
func decodePicture(text []byte) (image.Image, error) {
	f, err := formatOf(text)
	if err != nil {
		return nil, err
	}
	if f.name == "TIFF" {
		return decodeTIFF(text)
	}
	if _, _, err := f.size(text); err != nil {
		return nil, err
	}
	img, err := f.decode(bytes.NewReader(text))
	if err != nil {
		return nil, corrupt(f.name, err)
	}
	if img.Bounds().Empty() {
		return nil, corrupt(f.name, errors.New("it has no pixels"))
	}
	return img, nil
}

// size is the height and width that a file says it has, and can hold.
func (f format) size(text []byte) (height, width int, err error) {
	if f.decode == nil {
		t, err := tiff.Parse(text)
		if err != nil {
			return 0, 0, corrupt(f.name, err)
		}
		return t.Pages[0].Height, t.Pages[0].Width, nil
	}
	c, err := f.config(bytes.NewReader(text))
	if err != nil {
		return 0, 0, corrupt(f.name, err)
	}
	if c.Height < 1 || c.Width < 1 || c.Height > maxPixels/c.Width {
		return 0, 0, fmt.Errorf("size %d×%d is out of range: at most %d pixels", c.Height, c.Width, maxPixels)
	}
	if c.Height*c.Width > maxPixelsPerByte*len(text) {
		return 0, 0, corrupt(f.name, fmt.Errorf("%d bytes cannot hold %d×%d pixels", len(text), c.Height, c.Width))
	}
	return c.Height, c.Width, nil
}

// decodeTIFF decodes the only page of a TIFF file, of 1 to 64 bits.
func decodeTIFF(text []byte) (image.Image, error) {
	f, err := tiff.Parse(text)
	if err != nil {
		return nil, corrupt("TIFF", err)
	}
	if len(f.Pages) > 1 {
		return nil, fmt.Errorf("it is a TIFF of several pages: save each page as a file of its own, or read its %d pages as a volume (data kind stacks)", len(f.Pages))
	}
	m, err := f.Image(0)
	if err != nil {
		return nil, corrupt("TIFF", err)
	}
	return m, nil
}

// corrupt says what to do about a file that is not a whole picture.
func corrupt(kind string, err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("not a readable %s: copy or save it again: %w", kind, err)
}
