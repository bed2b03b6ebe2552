package data

import (
	"context"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"slices"

	"lockstep/pkg/internal/wholefile"
)

// Write saves ds, of one channel, as PNG pairs in dir/image and dir/label
// (foreground white), which OpenPairs reads. Files of the same names are
// replaced; a folder that holds other pairs is refused, as they would mix.
func Write(ctx context.Context, dir string, ds Dataset) error {
	is, ts := ds.ImageShape(), ds.TargetShape()
	if !slices.Equal(is, ts) || len(is) != 3 || is[0] != 1 {
		return fmt.Errorf("write pairs %s: images are %v and masks %v: both must be 1×height×width", dir, is, ts)
	}
	if ds.Len() == 0 {
		return fmt.Errorf("write pairs %s: the data set is empty", dir)
	}
	img, mask := make([]float32, volume(is)), make([]float32, volume(ts))
	return writePairs(ctx, dir, ds.Len(), func(i int) (*image.Gray, *image.Gray, error) {
		if err := ds.Get(i, img, mask); err != nil {
			return nil, nil, err
		}
		return gray(img, is[1], is[2]), gray(mask, is[1], is[2]), nil
	})
}

// writePairs saves n pairs that get returns.
func writePairs(ctx context.Context, dir string, n int, get func(i int) (img, mask *image.Gray, err error)) error {
	folder := [2]string{filepath.Join(dir, folders[0][0]), filepath.Join(dir, folders[0][1])}
	for _, f := range folder {
		if err := os.MkdirAll(f, 0o777); err != nil {
			return fmt.Errorf("write pairs: %w", err)
		}
		if err := refuseOthers(f, n); err != nil {
			return fmt.Errorf("write pairs: %w", err)
		}
	}
	for i := range n {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("write pair %d of %d: %w", i+1, n, err)
		}
		img, mask, err := get(i)
		if err != nil {
			return fmt.Errorf("write pairs: %w", err)
		}
		for k, m := range [2]*image.Gray{img, mask} {
			if err := writePNG(filepath.Join(folder[k], sampleFile(i, n)), m); err != nil {
				return fmt.Errorf("write pairs: %w", err)
			}
		}
	}
	return nil
}

// refuseOthers reports pictures in dir that n samples do not replace.
func refuseOthers(dir string, n int) error {
	ours := map[string]bool{}
	for i := range n {
		ours[sampleFile(i, n)] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if isPicture(e.Name()) && !ours[e.Name()] {
			return fmt.Errorf("%s already holds other images (%s): choose an empty folder", dir, e.Name())
		}
	}
	return nil
}

func writePNG(path string, m *image.Gray) error {
	return wholefile.WriteUnsynced(path, 0o666, func(f *os.File) error { return png.Encode(f, m) })
}

// gray is values of 0 to 1 as 8-bit grey.
func gray(values []float32, height, width int) *image.Gray {
	m := image.NewGray(image.Rect(0, 0, width, height))
	for i, v := range values {
		m.Pix[i] = uint8(min(max(v, 0), 1)*255 + 0.5)
	}
	return m
}
