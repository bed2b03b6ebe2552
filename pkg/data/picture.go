package data

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/draw"
	"image/jpeg"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/image/tiff"
)

// What a damaged header may ask for is bounded: by maxPixels, and by what the
// file can hold. Deflate packs at most 1032 bytes into one (zlib's technical
// notes), and a byte has at most 8 pixels. Fax compression of TIFF has no such
// bound; up to alwaysPixels are believed.
const (
	maxPixels        = 1 << 28
	maxPixelsPerByte = 8 * 1032
	alwaysPixels     = 1 << 26
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
	decode func(io.Reader) (image.Image, error)
}

// formatOf is the format that the bytes of a file have, whatever its name says.
func formatOf(text []byte) (format, error) {
	for _, f := range []format{
		{"PNG", []string{"\x89PNG\r\n\x1a\n"}, png.DecodeConfig, png.Decode},
		{"JPEG", []string{"\xff\xd8\xff"}, jpeg.DecodeConfig, jpeg.Decode},
		{"TIFF", []string{"II*\x00", "MM\x00*"}, tiff.DecodeConfig, tiff.Decode},
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

// readGrey decodes a picture file to 8-bit grey values, row by row.
func readGrey(path string) (pixels []uint8, height, width int, err error) {
	text, err := os.ReadFile(path)
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
	c, err := f.config(bytes.NewReader(text))
	if err != nil {
		return nil, corrupt(f.name, err)
	}
	if c.Height < 1 || c.Width < 1 || c.Height > maxPixels/c.Width {
		return nil, fmt.Errorf("size %d×%d is out of range: at most %d pixels", c.Height, c.Width, maxPixels)
	}
	believed := maxPixelsPerByte * len(text)
	if f.name == "TIFF" {
		believed = max(believed, alwaysPixels)
		if pages(text) > 1 {
			return nil, errors.New("it is a TIFF of several pages: save each page as a file of its own")
		}
	}
	if c.Height*c.Width > believed {
		return nil, corrupt(f.name, fmt.Errorf("%d bytes cannot hold %d×%d pixels", len(text), c.Height, c.Width))
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

// pages counts the pages of a TIFF file, up to 2: each begins with the number
// of its entries of 12 bytes, behind which stands where the next page begins
// (TIFF 6.0, section 2).
func pages(text []byte) int {
	var order binary.ByteOrder = binary.LittleEndian
	if text[0] == 'M' {
		order = binary.BigEndian
	}
	at, n := int64(4), 0
	for ; n < 2; n++ {
		if at+4 > int64(len(text)) {
			return n
		}
		page := int64(order.Uint32(text[at:]))
		if page == 0 || page+2 > int64(len(text)) {
			return n
		}
		at = page + 2 + 12*int64(order.Uint16(text[page:]))
	}
	return n
}

// corrupt says what to do about a file that is not a whole picture.
func corrupt(kind string, err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("not a readable %s: copy or save it again: %w", kind, err)
}
