package data

import (
	"bytes"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"os"
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
		g, err := picture.DecodeGray(t.Context(), b)
		if err == nil && (len(g.Pixels) != g.Height*g.Width || g.Height < 1 || g.Width < 1) {
			t.Fatalf("%d pixels of %d×%d", len(g.Pixels), g.Height, g.Width)
		}
	})
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
