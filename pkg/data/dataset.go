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

import "fmt"

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

// addOperation begins *err with the operation that failed, if *err is not nil.
func addOperation(err *error, operation string) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", operation, *err)
	}
}

// asDataset returns v as a Dataset, which is nil, not an interface with a nil pointer, after an error.
func asDataset[T Dataset](v T, err error) (Dataset, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// NewBuffers returns buffers for Get and one sample of ds.
func NewBuffers(ds Dataset) (image, target []float32) {
	return make([]float32, elementCount(ds.ImageShape())), make([]float32, elementCount(ds.TargetShape()))
}
