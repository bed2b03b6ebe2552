package data_test

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"path/filepath"
	"testing"

	"golang.org/x/image/tiff"

	"lockstep/pkg/data"
)

// TestCanceledWithinAPicture: the decoding of one picture, or of one page of a stack,
// looks at its context many times, so that a cancellation need not wait for the end of
// a large one.
func TestCanceledWithinAPicture(t *testing.T) {
	const edge = 2048
	gray, colored := image.NewGray(image.Rect(0, 0, edge, edge)), image.NewRGBA(image.Rect(0, 0, edge, edge))
	for i := range gray.Pix {
		gray.Pix[i] = byte(i * i >> 3) // which does not compress to a few bytes
	}
	for y := range edge {
		for x := range edge {
			colored.Set(x, y, color.RGBA{uint8(x * y), uint8(x + y), uint8(x), 255})
		}
	}
	encoded := func(encode func(b *bytes.Buffer) error) []byte {
		t.Helper()
		var b bytes.Buffer
		if err := encode(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	pairs := func(ctx context.Context, dir string) error {
		_, err := data.OpenPairs(ctx, dir, data.Config{})
		return err
	}
	stacks := func(ctx context.Context, dir string) error {
		_, err := data.OpenStacks(ctx, dir, data.Config{})
		return err
	}
	for _, c := range []struct {
		name, file string
		text       []byte
		open       func(ctx context.Context, dir string) error
	}{
		{"PNG", "1.png", encoded(func(b *bytes.Buffer) error { return png.Encode(b, gray) }), pairs},
		{"PNG in color", "1.png", encoded(func(b *bytes.Buffer) error { return png.Encode(b, colored) }), pairs},
		{"JPEG", "1.jpg", encoded(func(b *bytes.Buffer) error { return jpeg.Encode(b, colored, nil) }), pairs},
		{"TIFF", "1.tif", encoded(func(b *bytes.Buffer) error {
			return tiff.Encode(b, gray, &tiff.Options{Compression: tiff.Deflate})
		}), pairs},
		{"a page of a stack", "1.tif", encoded(func(b *bytes.Buffer) error {
			return tiff.Encode(b, gray, &tiff.Options{Compression: tiff.Deflate})
		}), stacks},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "image", c.file), c.text)
			mask := c.text
			if c.name != "a page of a stack" {
				mask = encoded(func(b *bytes.Buffer) error { return png.Encode(b, gray) })
			}
			write(t, filepath.Join(dir, "label", c.file), mask)
			ctx := &countedContext{Context: t.Context(), allowed: math.MaxInt64}
			if err := c.open(ctx, dir); err != nil {
				t.Fatal(err)
			}
			checks := ctx.checks.Load()
			if checks < 20 {
				t.Errorf("the context was looked at %d times while two pictures were read", checks)
			}
			for _, allowed := range []int64{checks / 4, checks / 3, 3 * checks / 4} { // of the image, and of the mask
				ctx := &countedContext{Context: t.Context(), allowed: allowed}
				if err := c.open(ctx, dir); !errors.Is(err, context.Canceled) {
					t.Errorf("canceled after %d of %d checks: got error %v", allowed, checks, err)
				}
				if more := ctx.checks.Load() - allowed; more > 5 {
					t.Errorf("canceled after %d of %d checks, it went on for %d", allowed, checks, more)
				}
			}
		})
	}
}
