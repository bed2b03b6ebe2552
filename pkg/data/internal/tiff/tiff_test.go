package tiff

import (
	"errors"
	"image"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestValues reads what testdata/make.py wrote with tifffile 2023.2.3 and Pillow
// 9.4: three pages each.
func TestValues(t *testing.T) {
	files, err := filepath.Glob("testdata/*.tif")
	if err != nil || len(files) != 13 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			f := parse(t, file)
			if len(f.Pages) != 3 {
				t.Fatalf("%d pages", len(f.Pages))
			}
			for page := range f.Pages {
				v, err := f.DecodeValues(t.Context(), page)
				if err != nil {
					t.Fatal(err)
				}
				if len(v) != 35 || f.Pages[page].Height != 5 || f.Pages[page].Width != 7 {
					t.Fatalf("%d values of %d×%d", len(v), f.Pages[page].Height, f.Pages[page].Width)
				}
				for i, got := range v {
					k := float64(page*35 + i)
					want := k / 128
					switch name, _, _ := strings.Cut(filepath.Base(file), "."); name {
					case "u8":
						want = k * 2 / math.MaxUint8
					case "u16":
						want = k * 512 / math.MaxUint16
					case "u32":
						want = k * (1 << 25) / math.MaxUint32
					case "i16":
						want = (k - 50) * 256 / math.MaxInt16
					case "i32-predictor":
						want = k * (1 << 24) / math.MaxInt32
					}
					if math.Abs(float64(got)-want) > 1e-7 {
						t.Fatalf("page %d, value %d is %g, want %g", page, i, got, want)
					}
				}
			}
		})
	}
}

func TestImage(t *testing.T) {
	m, err := parse(t, "testdata/f32-strips.tif").DecodeImage(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	// The last value of the last page is 104/128.
	if v := m.(*image.Gray16).Gray16At(6, 4).Y; v != uint16(math.Round(104.0/128*65535)) {
		t.Errorf("the last pixel is %d", v)
	}
	if _, err := parse(t, "testdata/i16.tif").DecodeImage(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "pixel (0, 0) is -0.39") || !strings.Contains(err.Error(), "divide the values") {
		t.Errorf("values below 0: %v", err)
	}
}

// TestWhiteIsZero: files in which 0 is white give the same values as others, also
// where black runs of a fax mean white.
func TestWhiteIsZero(t *testing.T) {
	for file, want := range map[string]func(k int) float64{
		"u32-miniswhite": func(k int) float64 { return float64(k) / 128 },
		"fax4-0":         func(k int) float64 { return float64(k % 2) },
		"fax4-1":         func(k int) float64 { return float64(k % 2) },
	} {
		v, err := parse(t, "testdata/one/"+file+".tif").DecodeValues(t.Context(), 0)
		if err != nil || len(v) != 35 {
			t.Fatalf("%s: %d values, %v", file, len(v), err)
		}
		for k, got := range v {
			if math.Abs(float64(got)-want(k)) > 1e-7 {
				t.Errorf("%s: value %d is %g, want %g", file, k, got, want(k))
			}
		}
	}
}

func TestErrors(t *testing.T) {
	whole, err := os.ReadFile("testdata/f32-deflate.tif")
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		f, err := Parse(whole[:n])
		if err != nil {
			continue
		}
		for i := range f.Pages {
			_, pageErr := f.DecodeValues(t.Context(), i)
			err = errors.Join(err, pageErr)
		}
		if err == nil {
			t.Fatalf("%d of %d bytes are read", n, len(whole))
		}
	}
	for name, c := range map[string]struct{ text, want string }{
		"another file": {"\x89PNG\r\n\x1a\n", "not a TIFF"},
		"BigTIFF":      {"II+\x00\x08\x00\x00\x00", "BigTIFF files are not supported: save the file as a classic TIFF"},
		"no page":      {"II*\x00\x00\x00\x00\x00", "the file has no pages"},
		"circle":       {circle(), "refers to the directory of an earlier page"},
	} {
		if _, err := Parse([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := parse(t, "testdata/one/fillorder.tif").DecodeValues(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "(fill order 2) is not supported: save the page with 8 bits") {
		t.Errorf("bits in reverse order: %v", err)
	}
	if _, err := Parse([]byte("MM\x00*")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("four bytes: %v", err)
	}
}

// TestPlanes: separate planes give the same image as interleaved colors, whatever their
// compression. See testdata/make.py.
func TestPlanes(t *testing.T) {
	files, err := filepath.Glob("testdata/planar/*-*.tif")
	if err != nil || len(files) != 6 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name, _, _ := strings.Cut(file, "-")
		want, err := parse(t, name+".tif").DecodeImage(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		f := parse(t, file)
		got, err := f.DecodeImage(t.Context(), 0)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if !f.Pages[0].hasSeparatePlanes() || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the image differs from that of %s.tif", file, name)
		}
	}
	// Colors that are multiplied by alpha, and four planes without a meaning.
	f := parse(t, "testdata/planar/rgba8-zip.tif")
	f.Pages[0].fields[tagExtraSamples] = []uint32{extraAssociated}
	if m, err := f.DecodeImage(t.Context(), 0); err != nil || reflect.TypeOf(m) != reflect.TypeFor[*image.RGBA]() {
		t.Errorf("associated alpha: %T, %v", m, err)
	}
	f.Pages[0].fields[tagPhotometric] = []uint32{blackIsZero}
	if _, err := f.DecodeImage(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "page 0: 4 separate planes of 8 bits are not supported, only RGB and RGBA of 8 or 16 bits: save the page as RGB, for example with: convert") {
		t.Errorf("four gray planes: %v", err)
	}
}

// TestUnsupported: the errors for valid files that are not read say how to convert them.
func TestUnsupported(t *testing.T) {
	for name, want := range map[string]string{
		"bigtiff": "BigTIFF files are not supported: save the file as a classic TIFF, for example with: convert in.tif -compress zip out.tif (ImageMagick)",
		"jpeg":    "JPEG compression in TIFF files is not supported: save the file with Deflate compression, for example with: convert in.tif -compress zip out.tif (ImageMagick)",
		"pyramid": "TIFF file is a slide pyramid of 3 pages, from 32×32 to 8×8 pixels: save the page to use, such as page 0, as a separate file: convert 'in.tif[0]' -compress zip out.tif (ImageMagick)",
		"subifds": "TIFF file is a slide pyramid: its page also has smaller versions (SubIFDs: 1): save the page to use, such as page 0",
	} {
		text, err := os.ReadFile("testdata/refused/" + name + ".tif")
		if err != nil {
			t.Fatal(err)
		}
		f, err := Parse(text)
		if err == nil {
			if err = f.CheckSinglePage(); err == nil {
				_, err = f.DecodeImage(t.Context(), 0)
			}
		}
		if !errors.As(err, new(UnsupportedError)) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
	f := parse(t, "testdata/refused/jpeg.tif")
	for compression, want := range map[uint32]string{compressionOldJPEG: "JPEG compression", 50000: "compression 50000 of 8-bit values is not supported, only none, LZW"} {
		f.Pages[0].fields[tagCompression] = []uint32{compression}
		if _, err := f.DecodeImage(t.Context(), 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("compression %d: %v, want %q", compression, err, want)
		}
	}
}

// circle is a file whose only page is followed by itself.
func circle() string {
	entry := func(tag, value byte) string { return string([]byte{tag, 1, 3, 0, 1, 0, 0, 0, value, 0, 0, 0}) }
	return "II*\x00\x08\x00\x00\x00" + "\x02\x00" + entry(0, 1) + entry(1, 1) + "\x08\x00\x00\x00"
}

func parse(t *testing.T, file string) *File {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// FuzzParse: any bytes give an error, or pages of as many values as they say.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.tif")
	if err != nil {
		f.Fatal(err)
	}
	planes, err := filepath.Glob("testdata/planar/*-*.tif")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, planes...) {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(circle()))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse(text)
		if err != nil {
			return
		}
		for i, p := range file.Pages {
			if i > 4 || p.Height*p.Width > 1<<20 {
				break
			}
			if v, err := file.DecodeValues(t.Context(), i); err == nil && len(v) != p.Height*p.Width {
				t.Fatalf("%d values of %d×%d", len(v), p.Height, p.Width)
			}
		}
	})
}
