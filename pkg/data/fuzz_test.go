package data

import (
	"bytes"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/image/tiff"

	"lockstep/pkg/data/internal/picture"
)

// FuzzDecodeGrey: any bytes give an error, or as many pixels as rows times columns.
func FuzzDecodeGrey(f *testing.F) {
	for _, m := range []image.Image{
		image.NewGray(image.Rect(0, 0, 3, 2)), image.NewNRGBA(image.Rect(0, 0, 2, 3)), image.NewGray16(image.Rect(0, 0, 1, 1)),
	} {
		var b bytes.Buffer
		if err := png.Encode(&b, m); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	for _, write := range []func(io.Writer, image.Image) error{
		func(w io.Writer, m image.Image) error { return jpeg.Encode(w, m, nil) },
		func(w io.Writer, m image.Image) error { return tiff.Encode(w, m, nil) },
	} {
		var b bytes.Buffer
		if err := write(&b, image.NewGray16(image.Rect(0, 0, 3, 2))); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		pixels, h, w, err := picture.DecodeGray(t.Context(), b)
		if err == nil && (len(pixels) != h*w || h < 1 || w < 1) {
			t.Fatalf("%d pixels of %d×%d", len(pixels), h, w)
		}
	})
}

// FuzzCompareNatural: names have one order, and equal ones are the same.
func FuzzCompareNatural(f *testing.F) {
	f.Add("2", "10", "9a")
	f.Add("a07", "a7", "a007")
	f.Add("img_2_b", "img_10_a", "")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		ab, ba := compareNatural(a, b), compareNatural(b, a)
		if (ab == 0) != (a == b) || ab > 0 != (ba < 0) {
			t.Fatalf("%q and %q compare as %d and %d", a, b, ab, ba)
		}
		if ab < 0 && compareNatural(b, c) < 0 && compareNatural(a, c) >= 0 {
			t.Fatalf("%q < %q < %q, but not the first before the last", a, b, c)
		}
	})
}

func TestCompareNatural(t *testing.T) {
	sorted := strings.Fields("0.png 1.png 02.png 2.png 10.png 100.png a.png a1b2.png a1b10.png a2b1.png b.png")
	for i := range sorted {
		for j := range sorted {
			if got := compareNatural(sorted[i], sorted[j]); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%s against %s is %d", sorted[i], sorted[j], got)
			}
		}
	}
}

// FuzzBatches: any bytes give an error, or pictures of CIFAR-10 with classes of
// it, in both versions.
func FuzzBatches(f *testing.F) {
	record := make([]byte, cifarRecord)
	record[0] = 3
	f.Add(record)
	f.Add(append(record, record[:9]...))
	text, err := os.ReadFile("testdata/cifar-10-batches-py/data_batch_1")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("(dp0\nVa.png\np1\nI1\nsVb.png\np2\nI0\ns."))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, read := range []func([]byte) ([][]uint8, []int32, error){readBinaryBatch, readPythonBatch} {
			images, classes, err := read(text)
			if err != nil {
				continue
			}
			if len(images) == 0 || len(images) != len(classes) {
				t.Fatalf("%d pictures of %d classes", len(images), len(classes))
			}
			for i, m := range images {
				if len(m) != cifarPixels || classes[i] < 0 || classes[i] >= cifarClassCount {
					t.Fatalf("picture %d has %d bytes and class %d", i, len(m), classes[i])
				}
			}
		}
		if paths, classes, err := readClassList(text); err == nil {
			names, labels, err := assignClassIndices(paths, classes)
			for _, l := range labels {
				if err == nil && int(l) >= len(names) {
					t.Fatalf("class %d of %d", l, len(names))
				}
			}
		}
	})
}
