package picture

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"lockstep/pkg/data/internal/tiff"
)

// ParseTIFFStack parses a TIFF file in dir without decoding its pages, and checks that they have equal
// sizes. size is the number of pages, the height and the width.
func ParseTIFFStack(ctx context.Context, dir, path string) (f *tiff.File, size [3]int, err error) {
	text, err := ReadFile(ctx, dir, path)
	if err != nil {
		return nil, size, err
	}
	if ext := strings.ToLower(filepath.Ext(path)); ext != ".tif" && ext != ".tiff" {
		return nil, size, fmt.Errorf("read stack %s: want a TIFF file (.tif, .tiff) with one page per slice", path)
	}
	f, err = tiff.Parse(text)
	if err != nil {
		return nil, size, fmt.Errorf("read stack %s: %w", path, NewCorruptError("TIFF", err))
	}
	for i, p := range f.Pages {
		if first := f.Pages[0]; p.Height != first.Height || p.Width != first.Width {
			return nil, size, fmt.Errorf("read stack %s: page %d has size %d×%d, but page 0 has %d×%d: make them equal", path, i, p.Height, p.Width, first.Height, first.Width)
		}
		if len(f.Pages)*p.Height > MaxPixels/p.Width {
			return nil, size, fmt.Errorf("read stack %s: %d pages of %d×%d are too large: use at most %d pixels", path, len(f.Pages), p.Height, p.Width, MaxPixels)
		}
	}
	return f, [3]int{len(f.Pages), f.Pages[0].Height, f.Pages[0].Width}, nil
}

// DecodeTIFFStack decodes all pages of f. path is for error messages.
func DecodeTIFFStack(ctx context.Context, f *tiff.File, path string) (v []float32, err error) {
	for i := range f.Pages {
		page, err := f.DecodeValues(ctx, i)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("read stack %s: %w", path, NewCorruptError("TIFF", err))
		}
		v = append(v, page...)
	}
	return v, nil
}
