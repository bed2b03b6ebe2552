// Package pairfiles writes images and masks.
package pairfiles

import (
	"context"
	"fmt"
	"image"
	"os"
	"path/filepath"
	"strconv"

	"lockstep/pkg/data/internal/picture"
	"lockstep/pkg/data/survey"
)

// FileName returns the name of the PNG file of sample i of n. The number is padded with zeros, so that
// sorted names are in the order of the samples.
func FileName(i, n int) string {
	return fmt.Sprintf("%0*d.png", len(strconv.Itoa(max(n-1, 0))), i)
}

// Write saves n pairs of image and mask in dir, as data.Write does. get returns pair i.
func Write(ctx context.Context, dir string, n int, get func(i int) (img, mask image.Image, err error)) error {
	folder := [2]string{filepath.Join(dir, survey.ImageFolder), filepath.Join(dir, survey.MaskFolder)}
	for _, f := range folder {
		if err := os.MkdirAll(f, 0o777); err != nil {
			return fmt.Errorf("write pairs: %w", err)
		}
		if err := checkNoOtherPictures(f, n); err != nil {
			return fmt.Errorf("write pairs: %w", err)
		}
	}
	for i := range n {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("write pair %d of %d: %w", i+1, n, err)
		}
		img, mask, err := get(i)
		if err != nil {
			return fmt.Errorf("write pair %d of %d: %w", i+1, n, err)
		}
		for k, m := range [2]image.Image{img, mask} {
			if err := picture.WritePNG(ctx, filepath.Join(folder[k], FileName(i, n)), m); err != nil {
				return fmt.Errorf("write pair %d of %d: %w", i+1, n, err)
			}
		}
	}
	return nil
}

// checkNoOtherPictures returns an error if dir contains pictures other than the n files named by Name.
func checkNoOtherPictures(dir string, n int) error {
	ours := map[string]bool{}
	for i := range n {
		ours[FileName(i, n)] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if picture.HasPictureExtension(e.Name()) && !ours[e.Name()] {
			return fmt.Errorf("%s already contains other pictures (%s): choose an empty folder", dir, e.Name())
		}
	}
	return nil
}
