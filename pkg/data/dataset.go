// Package data feeds training: data sets, their files and generators, the
// distributed sampler, augmentation, and a loader that prefetches batches.
//
// A Dataset returns samples by index: pictures [C,H,W] with masks or a class,
// volumes [C,D,H,W] with masks or fields, or arrays of any other rank. Open opens
// the data set that a Config describes:
//
//   - images with masks: a folder of PNG, JPEG or TIFF pairs (OpenPairs; CheckPairs
//     says what is in it), of TIFF stacks (OpenStacks), or generated cells (Cells);
//   - pictures with classes: CIFAR-10 (OpenCIFAR10), folders (OpenFolders,
//     OpenImageNet), or generated shapes (Shapes);
//   - volumes: HDF5 and .npy files, of which only crops are read (OpenVolumes), or
//     generated fields (Fields).
//
// Open splits the images into training and test images (Split, Subset), and then
// cuts them into tiles or crops (Tiles, Repeat, Crops), so that no tile of a
// held-out image is used for training. InMemory keeps the samples of a data set
// in memory after they were read.
//
// For training, a Sampler distributes the samples of each epoch to the ranks, and a
// Loader reads this rank's samples, augments them and puts them into batches. For
// evaluation, NewEvaluationLoader distributes a data set so that each sample is evaluated
// by exactly one rank.
//
// A loaded sample depends only on the seed, the epoch and the sample's index: not
// on the rank, the number of goroutines, or timing. The batches of N workers in one
// step, concatenated by rank, equal the batch of one worker with an N times larger
// batch. So data-parallel training reproduces training on one worker. (The comment
// of LoaderOptions.Order lists the orders of stages for which this does not hold.)
//
// The file readers, the generators of images and the random streams are in internal
// packages. This package has more than twenty files because each kind of data set
// has a separate file, and all of them declare types that notebooks use.
package data

import (
	"context"
	"fmt"

	"lockstep/pkg/data/internal/window"
)

// Dataset is a set of samples of equal shape, addressed by index. Get may be called from several
// goroutines.
type Dataset interface {
	Len() int
	// ImageShape returns the shape of one sample's image: [C,H,W] for a picture, [C,D,H,W] for a
	// volume, or any other shape. TargetShape returns the shape of its target: [C',H,W] or [C',D,H,W]
	// for a mask or field, [1] for a class index. The caller must not modify the results.
	ImageShape() []int
	TargetShape() []int
	// Get copies sample i to image and target. The values of a picture are in [0,1], those of a
	// mask are class indices or Ignored, and a class is an index.
	Get(i int, image, target []float32) error
	// SampleName returns the name of sample i, for error messages and listings.
	SampleName(i int) string
}

// prefixError prefixes *err with the operation that failed, unless *err is nil.
func prefixError(err *error, operation string) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", operation, *err)
	}
}

// asDataset converts v to a Dataset. After an error it returns a nil interface, not one with a nil pointer.
func asDataset[T Dataset](v T, err error) (Dataset, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// NewBuffers allocates the two buffers that ds.Get fills with one sample.
func NewBuffers(ds Dataset) (image, target []float32) {
	return make([]float32, window.ElementCount(ds.ImageShape())), make([]float32, window.ElementCount(ds.TargetShape()))
}

// windowReader is a data set that can read window w of a sample without the rest. A target that is
// not aligned with the image (see window.AreShapesAligned) is copied completely.
type windowReader interface {
	getWindow(ctx context.Context, i int, w window.Window, image, target []float32) error
}

// sampleReader is a data set whose samples may take long to read, such as large pictures. getSample
// is like Get, but ends with ctx's error if ctx is canceled.
type sampleReader interface {
	getSample(ctx context.Context, i int, image, target []float32) error
}

// readSample copies sample i of ds to image and target. Only a sampleReader can be canceled.
func readSample(ctx context.Context, ds Dataset, i int, image, target []float32) error {
	if d, ok := ds.(sampleReader); ok {
		return d.getSample(ctx, i, image, target)
	}
	return ds.Get(i, image, target)
}

// readWindow copies window w of sample i to image and target. If ds is not a windowReader, it reads
// the complete sample.
func readWindow(ctx context.Context, ds Dataset, i int, w window.Window, image, target []float32) error {
	if d, ok := ds.(windowReader); ok {
		return d.getWindow(ctx, i, w, image, target)
	}
	if err := checkGetArguments(ds, i, w, image, target); err != nil {
		return err
	}
	is, ts := ds.ImageShape(), ds.TargetShape()
	if (w == window.Window{Size: sampleSpatialSize(ds, i)}) {
		return readSample(ctx, ds, i, image, target)
	}
	fullImage, fullTarget := make([]float32, window.ElementCount(is)), target
	if window.AreShapesAligned(is, ts) {
		fullTarget = make([]float32, window.ElementCount(ts))
	}
	if err := readSample(ctx, ds, i, fullImage, fullTarget); err != nil {
		return err
	}
	window.Copy(image, fullImage, is, w)
	if window.AreShapesAligned(is, ts) {
		window.Copy(target, fullTarget, ts, w)
	}
	return nil
}

// checkGetArguments returns an error if ds has no sample i, if the window exceeds the sample, or if
// a buffer has the wrong length.
func checkGetArguments(ds Dataset, i int, w window.Window, image, target []float32) error {
	if i < 0 || i >= ds.Len() {
		return fmt.Errorf("get sample %d: the data set has samples 0 to %d", i, ds.Len()-1)
	}
	is, ts := ds.ImageShape(), ds.TargetShape()
	size := sampleSpatialSize(ds, i)
	for k := range size {
		if w.Start[k] < 0 || w.Start[k]+w.Size[k] > size[k] {
			return fmt.Errorf("get sample %s: window %v exceeds the sample size %s", ds.SampleName(i), w, window.FormatSize(size[4-len(is):]))
		}
	}
	ni, nt := is[0]*w.VoxelCount(), window.ElementCount(ts)
	if window.AreShapesAligned(is, ts) {
		nt = ts[0] * w.VoxelCount()
	}
	return window.CheckBuffers(ds.SampleName(i), image, target, ni, nt)
}
