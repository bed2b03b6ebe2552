package picture

import (
	"context"
	"image"
	"image/png"
	"os"

	"golang.org/x/image/tiff"

	"lockstep/pkg/data/internal/output"
	"lockstep/pkg/internal/wholefile"
)

// WriteTIFF writes m, compressed, as a TIFF file.
func WriteTIFF(ctx context.Context, path string, m image.Image) error {
	return wholefile.WriteUnsynced(path, 0o666, func(f *os.File) error {
		return tiff.Encode(output.CancelableFile{File: f, Context: ctx}, m, &tiff.Options{Compression: tiff.Deflate, Predictor: true})
	})
}

// WritePNG writes m as a PNG file.
func WritePNG(ctx context.Context, path string, m image.Image) error {
	return wholefile.WriteUnsynced(path, 0o666, func(f *os.File) error { return png.Encode(output.CancelableFile{File: f, Context: ctx}, m) })
}
