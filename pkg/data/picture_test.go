package data_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/image/tiff"

	"lockstep/pkg/data"
)

// ramp fills an image with rows of grey from black to white: pixel (x, y) is
// 16x+y of 255, which 16 columns and 16 rows go through once.
func ramp(m draw.Image) draw.Image {
	for y := range 16 {
		for x := range 16 {
			m.Set(x, y, color.Gray{Y: uint8(16*x + y)})
		}
	}
	return m
}

// disc is a mask: foreground where (x−8)²+(y−8)² < 16.
func disc(m draw.Image, foreground, background color.Color) draw.Image {
	for y := range 16 {
		for x := range 16 {
			m.Set(x, y, background)
			if inDisc(x, y) {
				m.Set(x, y, foreground)
			}
		}
	}
	return m
}

func inDisc(x, y int) bool { return (x-8)*(x-8)+(y-8)*(y-8) < 16 }

func greys() color.Palette {
	var p color.Palette
	for i := range 256 {
		p = append(p, color.Gray{Y: uint8(255 - i)}) // so that an index is not its colour
	}
	return p
}

func asTIFF(c tiff.CompressionType) func(io.Writer, image.Image) error {
	return func(w io.Writer, m image.Image) error {
		return tiff.Encode(w, m, &tiff.Options{Compression: c, Predictor: c != tiff.Uncompressed})
	}
}

func asJPEG(w io.Writer, m image.Image) error { return jpeg.Encode(w, m, &jpeg.Options{Quality: 100}) }

func encode(t *testing.T, path string, write func(io.Writer, image.Image) error, m image.Image) {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b, m); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPictureFormats: the same picture in each format and depth is read as the
// same values, with a mask of another format beside it.
func TestPictureFormats(t *testing.T) {
	r := image.Rect(0, 0, 16, 16)
	black, white := color.Gray{}, color.Gray{Y: 255}
	twoColours := color.Palette{white, black}
	for _, tt := range []struct {
		name      string
		write     func(io.Writer, image.Image) error
		image     draw.Image
		mask      string
		writeMask func(io.Writer, image.Image) error
		maskImage draw.Image
		tolerance float64 // of a pixel, in 1/255
	}{
		{"8.png", png.Encode, image.NewGray(r), "8.tif", asTIFF(tiff.Uncompressed), image.NewGray(r), 0},
		{"16.png", png.Encode, image.NewGray16(r), "16.jpg", asJPEG, image.NewGray(r), 0},
		{"palette.png", png.Encode, image.NewPaletted(r, greys()), "palette.png", png.Encode, image.NewPaletted(r, twoColours), 0},
		{"rgb.png", png.Encode, image.NewNRGBA(r), "rgb.tiff", asTIFF(tiff.Deflate), image.NewGray16(r), 0},
		{"rgb16.PNG", png.Encode, image.NewNRGBA64(r), "rgb16.png", png.Encode, image.NewGray16(r), 0},
		{"8.tif", asTIFF(tiff.Uncompressed), image.NewGray(r), "8.png", png.Encode, image.NewGray(r), 0},
		{"16.tif", asTIFF(tiff.Uncompressed), image.NewGray16(r), "16.png", png.Encode, image.NewPaletted(r, twoColours), 0},
		{"packed.TIFF", asTIFF(tiff.Deflate), image.NewGray16(r), "packed.tif", asTIFF(tiff.Deflate), image.NewPaletted(r, twoColours), 0},
		{"rgba.tif", asTIFF(tiff.Uncompressed), image.NewNRGBA(r), "rgba.jpeg", asJPEG, image.NewRGBA(r), 0},
		{"palette.tif", asTIFF(tiff.Uncompressed), image.NewPaletted(r, greys()), "palette.png", png.Encode, image.NewNRGBA64(r), 0},
		// JPEG at quality 100 rounds twice, in its transform and of its result.
		{"8.jpg", asJPEG, image.NewGray(r), "8.png", png.Encode, image.NewGray(r), 2},
		{"rgb.jpeg", asJPEG, image.NewRGBA(r), "rgb.png", png.Encode, image.NewGray(r), 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			encode(t, filepath.Join(dir, "image", tt.name), tt.write, ramp(tt.image))
			encode(t, filepath.Join(dir, "label", tt.mask), tt.writeMask, disc(tt.maskImage, white, black))
			p, err := data.OpenPairs(t.Context(), dir, data.Config{Reading: data.ReadingGray})
			if err != nil {
				t.Fatal(err)
			}
			pixels, mask := get(t, p, 0)
			for y := range 16 {
				for x := range 16 {
					want, got := float64(16*x+y), 255*float64(pixels[16*y+x])
					if math.Abs(got-want) > tt.tolerance+1e-4 {
						t.Fatalf("pixel %d,%d is %g, want %g ± %g", x, y, got, want, tt.tolerance)
					}
					if (mask[16*y+x] == 1) != inDisc(x, y) {
						t.Fatalf("mask %d,%d is %g", x, y, mask[16*y+x])
					}
				}
			}
			if notes := p.Notes(); len(notes) > 0 {
				t.Errorf("notes: %q", notes)
			}
		})
	}
}

// TestPictureErrors reads the message of each kind of file that cannot be used.
func TestPictureErrors(t *testing.T) {
	r := image.Rect(0, 0, 16, 16)
	var b bytes.Buffer
	bytesOf := func(write func(io.Writer, image.Image) error, m image.Image) []byte {
		b.Reset()
		if err := write(&b, m); err != nil {
			t.Fatal(err)
		}
		return bytes.Clone(b.Bytes())
	}
	tif, jpg := bytesOf(asTIFF(tiff.Uncompressed), ramp(image.NewGray16(r))), bytesOf(asJPEG, ramp(image.NewGray(r)))
	// TIFF 6.0, section 2: the offset of the first page stands at 4; behind a
	// page's n entries of 12 bytes stands the offset of the next.
	two := bytes.Clone(tif)
	page := binary.LittleEndian.Uint32(two[4:])
	next := page + 2 + 12*uint32(binary.LittleEndian.Uint16(two[page:]))
	binary.LittleEndian.PutUint32(two[next:], uint32(len(two)))
	two = append(two, tif[page:next+4]...) // the same pixels again, as a second page
	for _, tt := range []struct {
		name, file string
		text       []byte
		want       []string
	}{
		{"half a TIFF", "1.tif", tif[:len(tif)/2], []string{"not a valid TIFF: copy or save it again"}},
		{"half a JPEG", "1.jpg", jpg[:len(jpg)/2], []string{"not a valid JPEG: copy or save it again"}},
		{"two pages", "1.tif", two, []string{"TIFF file has 2 pages, want 1: save each page as a separate file"}},
		{"BigTIFF", "1.tif", []byte("II+\x00\x08\x00\x00\x00\x10\x00\x00\x00"), []string{".tif: BigTIFF files are not supported: save the file as a classic TIFF, for example with: convert"}},
		{"a text", "1.jpg", []byte("GIF89a, or so"), []string{"not a valid PNG, JPEG or TIFF", "the first bytes match no supported format"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "image", tt.file)
			encode(t, path, func(w io.Writer, _ image.Image) error { _, err := w.Write(tt.text); return err }, nil)
			encode(t, filepath.Join(dir, "label", tt.file), png.Encode, image.NewGray(r)) // what it is called does not matter
			_, err := data.OpenPairs(t.Context(), dir, data.Config{})
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range append(tt.want, "open pairs: read image "+path) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want it to contain %q", err, want)
				}
			}
		})
	}
}

// TestDoubtfulPairs: what can be read, but was hardly meant so.
func TestDoubtfulPairs(t *testing.T) {
	r := image.Rect(0, 0, 16, 16)
	black, white := color.Gray{}, color.Gray{Y: 255}
	for _, tt := range []struct {
		name        string
		image       draw.Image
		mask        draw.Image
		inverted    bool
		note, error string
	}{
		// 45 of 256 pixels are in the disc: 211 are 82.4 %.
		{
			"wrong polarity", ramp(image.NewGray(r)), disc(image.NewGray(r), white, black), true,
			"82.4 % of the mask pixels of DIR are foreground: if that is the background, set data.foreground to the other", "",
		},
		{"right polarity", ramp(image.NewGray(r)), disc(image.NewGray(r), black, white), true, "", ""},
		// (128, 0, 0) is the first class's colour of Pascal VOC; its grey is 38.
		{
			"a palette of classes", ramp(image.NewGray(r)), disc(image.NewPaletted(r, color.Palette{black, color.NRGBA{R: 128, A: 255}}), color.NRGBA{R: 128, A: 255}, black), false,
			"", "masks of DIR have no foreground pixel",
		},
		{
			"numbered classes", ramp(image.NewGray(r)), disc(image.NewGray(r), color.Gray{Y: 1}, black), false,
			"", "if the masks have class numbers (0, 1, …), name them in data.mask_values",
		},
		{
			"all foreground", ramp(image.NewGray(r)), disc(image.NewGray(r), white, white), false,
			"", "masks of DIR have no background pixel",
		},
		{
			"soft masks", ramp(image.NewGray(r)), disc(image.NewGray(r), color.Gray{Y: 150}, black), false,
			"17.6 % of the mask pixels of DIR are neither black nor white", "",
		}, // 45 of 256
		{
			"colors", disc(image.NewNRGBA(r), color.NRGBA{R: 255, G: 100, A: 255}, black), disc(image.NewGray(r), white, black), false,
			"1 of the 1 images of DIR have colors, which were turned into gray", "",
		},
		{
			"a slight tint, as by compression", disc(image.NewNRGBA(r), color.NRGBA{R: 250, G: 240, B: 245, A: 255}, black), disc(image.NewGray(r), white, black), false,
			"", "",
		},
		// 4095 of 65535 is 15 of 255.
		{
			"12 bits in 16", disc(image.NewGray16(r), color.Gray16{Y: 4095}, black), disc(image.NewGray(r), white, black), false,
			"the brightest image pixel of DIR is 15 of 255: values of 12 bits in a file of 16 must be multiplied by 16", "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			encode(t, filepath.Join(dir, "image", "1.png"), png.Encode, tt.image)
			encode(t, filepath.Join(dir, "label", "1.png"), png.Encode, tt.mask)
			p, err := data.OpenPairs(t.Context(), dir, data.Config{Reading: data.ReadingGray, Foreground: map[bool]string{true: "black"}[tt.inverted]})
			if err != nil {
				t.Fatal(err)
			}
			says := func(got, want string) {
				if want = strings.ReplaceAll(want, "DIR", dir); want == "" && got != "" || !strings.Contains(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			}
			text := ""
			if err := p.CheckMasks(); err != nil {
				text = err.Error()
			}
			says(text, tt.error)
			if tt.error == "" {
				says(strings.Join(p.Notes(), "\n"), tt.note)
			}
		})
	}
}

func TestTilesLargerThanImages(t *testing.T) {
	_, err := data.Tiles(cells(t, data.CellsOptions{Count: 1, Height: 16, Width: 24, Seed: 1}), 20, 20)
	if want := "image cells-1-0 of 16×24 is smaller than tiles of 20×20: set data.tile to at most 16, or to 0 for complete images"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestFewImagesAreNoted opens folders with 19 and 20 training images.
func TestFewImagesAreNoted(t *testing.T) {
	r := image.Rect(0, 0, 16, 16)
	dir := t.TempDir()
	for i := range 21 {
		encode(t, filepath.Join(dir, "image", fmt.Sprint(i, ".png")), png.Encode, ramp(image.NewGray(r)))
		encode(t, filepath.Join(dir, "label", fmt.Sprint(i, ".png")), png.Encode, disc(image.NewGray(r), color.White, color.Black))
	}
	for _, c := range []struct {
		config data.Config
		want   string
	}{
		{data.Config{Kind: data.KindPairs, Path: dir, TestImages: 1}, ""},
		{data.Config{Kind: data.KindPairs, Path: dir, TestImages: 2}, "there are few training images (19), so the IoU differs much between seeds: compare several seeds"},
	} {
		o, err := data.Open(t.Context(), c.config)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(o.Notes, "\n"); got != c.want {
			t.Errorf("notes are %q, want %q", got, c.want)
		}
	}
}
