package data

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lockstep/pkg/data/internal/cifar"
	"lockstep/pkg/data/internal/output"
	"lockstep/pkg/data/internal/pairfiles"
	"lockstep/pkg/data/internal/picture"
	"lockstep/pkg/data/internal/volume"
	"lockstep/pkg/data/internal/window"
	"lockstep/pkg/data/survey"
	"lockstep/pkg/internal/wholefile"
)

// WriteCIFAR10 saves pictures of 32×32 pixels and at most 10 classes in CIFAR-10's binary version,
// in dir/cifar-10-batches-bin: the training pictures in five batches of equal size (up to four at
// the end are omitted), the test pictures in one.
func WriteCIFAR10(ctx context.Context, dir string, train, test *Classes) error {
	dir = filepath.Join(dir, "cifar-10-batches-bin")
	for _, c := range []*Classes{train, test} {
		if c.size != [2]int{cifar.Edge, cifar.Edge} || len(c.names) > cifar.ClassCount {
			return fmt.Errorf("write CIFAR-10: got pictures of %d×%d pixels and %d classes, want 32×32 pixels and at most 10 classes", c.size[0], c.size[1], len(c.names))
		}
	}
	if err := cifar.Write(ctx, dir, train.names, train, test); err != nil {
		return fmt.Errorf("write CIFAR-10: %w", err)
	}
	return nil
}

// WriteFolders saves pictures for OpenFolders in one subfolder of dir per class, in the format
// "png" or "jpeg" (with quality 90).
func WriteFolders(ctx context.Context, dir string, c *Classes, format string) error {
	if format != "png" && format != "jpeg" {
		return fmt.Errorf("write folders: unknown format %q: use png or jpeg", format)
	}
	counts := make([]int, len(c.names))
	for i := range c.Len() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("write folders: %w", err)
		}
		class := c.Class(i)
		path := filepath.Join(dir, c.names[class], fmt.Sprintf("%06d.%s", counts[class], format))
		counts[class]++
		if err := writeClassPicture(ctx, path, c, i); err != nil {
			return fmt.Errorf("write folders: %w", err)
		}
	}
	return nil
}

// writeClassPicture saves picture i of c unscaled. The extension of path selects PNG or JPEG.
func writeClassPicture(ctx context.Context, path string, c *Classes, i int) error {
	m, err := c.source.picture(ctx, i)
	if err != nil {
		return err
	}
	if c.resized != nil {
		if m, err = c.resized.Resize(ctx, m); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return wholefile.WriteUnsynced(path, 0o666, func(f *os.File) error {
		if strings.HasSuffix(path, ".png") {
			return png.Encode(output.CancelableFile{File: f, Context: ctx}, m)
		}
		return jpeg.Encode(output.CancelableFile{File: f, Context: ctx}, m, &jpeg.Options{Quality: 90})
	})
}

// VolumeFormat selects the file format in which WriteVolumes saves volumes.
type VolumeFormat struct {
	NPY   bool // pairs of .npy files of shape [D,H,W,C]; false: HDF5 files of shape [C,D,H,W]
	Chunk int  // for HDF5: edge of a chunk, which contains all channels; 0: not chunked
	Gzip  bool // for HDF5: compress the chunks
}

// WriteVolumes saves the samples of ds, images [C,D,H,W] and targets [C',D,H,W], as files for
// OpenVolumes: dir/box-0.h5 with the data sets Nbody and Hydro, or dir/box-0_Nbody.npy and
// dir/box-0_Hydro.npy. It keeps one sample in memory at a time.
func WriteVolumes(ctx context.Context, dir string, ds Dataset, f VolumeFormat) error {
	is, ts := ds.ImageShape(), ds.TargetShape()
	if len(is) != 4 || len(ts) != 4 {
		return fmt.Errorf("write volumes: images and targets have shapes %v and %v, want [C,D,H,W]", is, ts)
	}
	if f.Gzip && f.Chunk < 1 || f.Chunk < 0 {
		return fmt.Errorf("write volumes: invalid chunk edge %d: use at least 1 with gzip, at least 0 without", f.Chunk)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("write volumes: %w", err)
	}
	image, target := NewBuffers(ds)
	for i := range ds.Len() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("write volumes: %w", err)
		}
		if err := ds.Get(i, image, target); err != nil {
			return fmt.Errorf("write volumes: %w", err)
		}
		path := filepath.Join(dir, fmt.Sprintf("box-%d", i))
		var err error
		if f.NPY {
			err = errors.Join(volume.WriteNPY(ctx, path+"_Nbody.npy", image, is), volume.WriteNPY(ctx, path+"_Hydro.npy", target, ts))
		} else {
			err = volume.WriteHDF5(ctx, path+".h5", f.Chunk, f.Gzip, volume.NamedArray{Name: "Nbody", Shape: is, Values: image}, volume.NamedArray{Name: "Hydro", Shape: ts, Values: target})
		}
		if err != nil {
			return fmt.Errorf("write volumes: %w", err)
		}
	}
	return nil
}

// WriteArray writes v, an array of the given shape in row-major order, as a .npy file. It creates
// the folder of path. The file is written completely or not at all.
func WriteArray(ctx context.Context, path string, v []float32, shape ...int) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return volume.WriteArray(ctx, path, v, 1, shape)
}

// WriteTIFF saves the images and masks of ds, which must have one channel, as TIFF files in
// dir/image and dir/label, for OpenPairs.
func WriteTIFF(ctx context.Context, dir string, ds Dataset) error {
	is, ts := ds.ImageShape(), ds.TargetShape()
	if len(is) != 3 || is[0] != 1 || !window.AreShapesAligned(is, ts) || ts[0] != 1 {
		return fmt.Errorf("write TIFF pairs %s: images and masks have shapes %v and %v, want [1,H,W]", dir, is, ts)
	}
	img, mask := NewBuffers(ds)
	for i := range ds.Len() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("write TIFF pairs: %w", err)
		}
		if err := ds.Get(i, img, mask); err != nil {
			return fmt.Errorf("write TIFF pairs: %w", err)
		}
		name := strings.TrimSuffix(pairfiles.FileName(i, ds.Len()), ".png") + ".tif"
		for k, v := range [][]float32{img, mask} {
			if err := WritePicture(ctx, filepath.Join(dir, [2]string{survey.ImageFolder, survey.MaskFolder}[k], name), unitsToGray(v, is[1], is[2])); err != nil {
				return fmt.Errorf("write TIFF pairs: %w", err)
			}
		}
	}
	return nil
}

// WritePicture writes m as a TIFF file if path ends with .tif, else as a PNG file. It creates the
// folder of path. The file is written completely or not at all.
func WritePicture(ctx context.Context, path string, m image.Image) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	if filepath.Ext(path) == ".tif" {
		return picture.WriteTIFF(ctx, path, m)
	}
	return picture.WritePNG(ctx, path, m)
}

// Write saves the images and masks of ds, which must have one channel, as PNG files in dir/image
// and dir/label (foreground white), for OpenPairs. It replaces files of the same names. If the
// folders contain other pictures, it returns an error, because OpenPairs would mix the data sets.
func Write(ctx context.Context, dir string, ds Dataset) error {
	is, ts := ds.ImageShape(), ds.TargetShape()
	if !slices.Equal(is, ts) || len(is) != 3 || is[0] != 1 {
		return fmt.Errorf("write pairs %s: images and masks have shapes %v and %v, want [1,H,W]", dir, is, ts)
	}
	if ds.Len() == 0 {
		return fmt.Errorf("write pairs %s: the data set is empty", dir)
	}
	img, mask := NewBuffers(ds)
	return pairfiles.Write(ctx, dir, ds.Len(), func(i int) (image.Image, image.Image, error) {
		if err := ds.Get(i, img, mask); err != nil {
			return nil, nil, err
		}
		return unitsToGray(img, is[1], is[2]), unitsToGray(mask, is[1], is[2]), nil
	})
}

func unitsToGray(values []float32, height, width int) *image.Gray {
	m := image.NewGray(image.Rect(0, 0, width, height))
	for i, v := range values {
		m.Pix[i] = uint8(min(max(v, 0), 1)*255 + 0.5)
	}
	return m
}
