package data

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/image/tiff"

	"lockstep/pkg/data/internal/hdf5"
	"lockstep/pkg/data/internal/npy"
	"lockstep/pkg/data/internal/picture"
	"lockstep/pkg/data/survey"
	"lockstep/pkg/internal/wholefile"
)

const cifarTrainingBatches = 5

// WriteCIFAR10 saves pictures of 32×32 pixels and at most 10 classes in CIFAR-10's binary version,
// in dir/cifar-10-batches-bin: the training pictures in five batches of equal size (up to four at
// the end are omitted), the test pictures in one.
func WriteCIFAR10(ctx context.Context, dir string, train, test *Classes) error {
	dir = filepath.Join(dir, "cifar-10-batches-bin")
	for _, c := range []*Classes{train, test} {
		if c.size != [2]int{cifarEdge, cifarEdge} || len(c.names) > cifarClassCount {
			return fmt.Errorf("write CIFAR-10: got pictures of %d×%d pixels and %d classes, want 32×32 pixels and at most 10 classes", c.size[0], c.size[1], len(c.names))
		}
	}
	each := train.Len() / cifarTrainingBatches
	if each == 0 {
		return fmt.Errorf("write CIFAR-10: got %d training pictures, want at least one for each of the %d batches", train.Len(), cifarTrainingBatches)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("write CIFAR-10: %w", err)
	}
	for b := range cifarTrainingBatches {
		if err := writeCIFARBatch(ctx, filepath.Join(dir, fmt.Sprintf("data_batch_%d.bin", b+1)), train, b*each, (b+1)*each); err != nil {
			return fmt.Errorf("write CIFAR-10: %w", err)
		}
	}
	if err := writeCIFARBatch(ctx, filepath.Join(dir, "test_batch.bin"), test, 0, test.Len()); err != nil {
		return fmt.Errorf("write CIFAR-10: %w", err)
	}
	names := train.names
	for len(names) < cifarClassCount {
		names = append(names, fmt.Sprintf("none%d", len(names)))
	}
	if err := wholefile.WriteBytes(filepath.Join(dir, "batches.meta.txt"), []byte(strings.Join(names, "\n")+"\n"), 0o666); err != nil {
		return fmt.Errorf("write CIFAR-10: %w", err)
	}
	return nil
}

// contextWriter returns an error once its context is canceled, so that the encoding of a large
// picture or volume can be interrupted.
type contextWriter struct {
	*os.File
	ctx context.Context
}

func (w contextWriter) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.File.Write(b)
}

func writeCIFARBatch(ctx context.Context, path string, c *Classes, lo, hi int) error {
	text := make([]byte, 0, (hi-lo)*cifarRecord)
	picture, class := make([]float32, cifarPixels), make([]float32, 1)
	for i := lo; i < hi; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.Get(i, picture, class); err != nil {
			return err
		}
		text = append(text, byte(class[0]))
		for _, v := range picture {
			text = append(text, byte(v*255+0.5))
		}
	}
	return wholefile.WriteBytes(path, text, 0o666)
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
		if m, err = c.resized.resize(ctx, m); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return wholefile.WriteUnsynced(path, 0o666, func(f *os.File) error {
		if strings.HasSuffix(path, ".png") {
			return png.Encode(contextWriter{f, ctx}, m)
		}
		return jpeg.Encode(contextWriter{f, ctx}, m, &jpeg.Options{Quality: 90})
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
			err = errors.Join(writeNPY(ctx, path+"_Nbody.npy", image, is[0], channelsLast(is)), writeNPY(ctx, path+"_Hydro.npy", target, ts[0], channelsLast(ts)))
		} else {
			err = writeHDF5(ctx, path+".h5", f, hdf5.OutputDataset{Name: "Nbody", Shape: is, Values: newBoxCopier(image, is)}, hdf5.OutputDataset{Name: "Hydro", Shape: ts, Values: newBoxCopier(target, ts)})
		}
		if err != nil {
			return fmt.Errorf("write volumes: %w", err)
		}
	}
	return nil
}

// newBoxCopier returns an hdf5.Output.Values for v, an array of the given shape [C,D,H,W].
func newBoxCopier(v []float32, shape []int) func(dst []float32, start, size []int) error {
	plane := elementCount(shape[1:])
	return func(dst []float32, start, size []int) error {
		w := window{[3]int(start[1:]), [3]int(size[1:])}
		copyWindow(dst, v[start[0]*plane:], append([]int{size[0]}, shape[1:]...), w)
		return nil
	}
}

// writeHDF5 writes data sets to an HDF5 file, chunked and compressed as format selects.
func writeHDF5(ctx context.Context, path string, format VolumeFormat, sets ...hdf5.OutputDataset) error {
	for i, s := range sets {
		if format.Chunk > 0 {
			sets[i].Chunk = []int{s.Shape[0], min(format.Chunk, s.Shape[1]), min(format.Chunk, s.Shape[2]), min(format.Chunk, s.Shape[3])}
			sets[i].Gzip = format.Gzip
		}
	}
	return wholefile.Write(path, 0o666, func(f *os.File) error { return hdf5.Write(contextWriter{f, ctx}, sets...) })
}

// WriteArray writes v, an array of the given shape in row-major order, as a .npy file. It creates
// the folder of path. The file is written completely or not at all.
func WriteArray(ctx context.Context, path string, v []float32, shape ...int) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return writeNPY(ctx, path, v, 1, shape)
}

func channelsLast(shape []int) []int { return []int{shape[1], shape[2], shape[3], shape[0]} }

// writeNPY writes v to a .npy file of the given shape. v has a plane per channel; channels are the
// last dimension of the shape if there is more than one.
func writeNPY(ctx context.Context, path string, v []float32, channels int, shape []int) error {
	return wholefile.Write(path, 0o666, func(f *os.File) error {
		w := bufio.NewWriterSize(contextWriter{f, ctx}, 1<<20)
		if err := npy.WriteHeader(w, shape); err != nil {
			return err
		}
		n := len(v) / channels
		line := make([]byte, 0, 4*channels)
		for k := range n {
			line = line[:0]
			for c := range channels {
				line = binary.LittleEndian.AppendUint32(line, math.Float32bits(v[c*n+k]))
			}
			if _, err := w.Write(line); err != nil {
				return err
			}
		}
		return w.Flush()
	})
}

// WriteTIFF saves the images and masks of ds, which must have one channel, as TIFF files in
// dir/image and dir/label, for OpenPairs.
func WriteTIFF(ctx context.Context, dir string, ds Dataset) error {
	is, ts := ds.ImageShape(), ds.TargetShape()
	if len(is) != 3 || is[0] != 1 || !isAligned(is, ts) || ts[0] != 1 {
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
		name := strings.TrimSuffix(sampleFileName(i, ds.Len()), ".png") + ".tif"
		for k, v := range [][]float32{img, mask} {
			if err := WritePicture(ctx, filepath.Join(dir, [2]string{survey.ImageFolder, survey.MaskFolder}[k], name), toGray(v, is[1], is[2])); err != nil {
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
		return writeTIFF(ctx, path, m)
	}
	return writePNG(ctx, path, m)
}

func writeTIFF(ctx context.Context, path string, m image.Image) error {
	return wholefile.WriteUnsynced(path, 0o666, func(f *os.File) error {
		return tiff.Encode(contextWriter{f, ctx}, m, &tiff.Options{Compression: tiff.Deflate, Predictor: true})
	})
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
	return writePairs(ctx, dir, ds.Len(), func(i int) (image.Image, image.Image, error) {
		if err := ds.Get(i, img, mask); err != nil {
			return nil, nil, err
		}
		return toGray(img, is[1], is[2]), toGray(mask, is[1], is[2]), nil
	})
}

func writePairs(ctx context.Context, dir string, n int, get func(i int) (img, mask image.Image, err error)) error {
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
			if err := writePNG(ctx, filepath.Join(folder[k], sampleFileName(i, n)), m); err != nil {
				return fmt.Errorf("write pair %d of %d: %w", i+1, n, err)
			}
		}
	}
	return nil
}

// checkNoOtherPictures returns an error if dir contains pictures other than the files of n samples
// (see sampleFileName).
func checkNoOtherPictures(dir string, n int) error {
	ours := map[string]bool{}
	for i := range n {
		ours[sampleFileName(i, n)] = true
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

func writePNG(ctx context.Context, path string, m image.Image) error {
	return wholefile.WriteUnsynced(path, 0o666, func(f *os.File) error { return png.Encode(contextWriter{f, ctx}, m) })
}

func toGray(values []float32, height, width int) *image.Gray {
	m := image.NewGray(image.Rect(0, 0, width, height))
	for i, v := range values {
		m.Pix[i] = uint8(min(max(v, 0), 1)*255 + 0.5)
	}
	return m
}
