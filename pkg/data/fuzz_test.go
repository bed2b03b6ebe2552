package data

import (
	"bytes"
	"image"
	"image/jpeg"
	"image/png"
	"io"
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
