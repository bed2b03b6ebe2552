// Package data feeds training: data sets, their files and generators, the
// distributed sampler, augmentation, and a loader that prefetches batches.
//
// A Dataset is read by index. Samples have shapes of any rank: pictures [C,H,W]
// with masks or a class, volumes [C,D,H,W] with fields. Open opens what a Config
// names:
//
//   - images with masks: a folder of PNG, JPEG or TIFF pairs (OpenPairs), of TIFF
//     stacks (OpenStacks), or generated cells (Cells);
//   - pictures with classes: CIFAR-10 (OpenCIFAR10), folders (OpenFolders,
//     OpenImageNet), or generated shapes (Shapes);
//   - volumes: HDF5 and .npy files, of which only crops are read (OpenVolumes), or
//     generated fields (Fields).
//
// It divides them into training and test samples (Split, Subset), and cuts tiles
// or crops (Tiles, Repeat, Crops): complete images are split, then cut, so that no
// tile of a held-out image is trained on. InMemory keeps samples that were read.
//
// For training, a Sampler deals each epoch's samples to the ranks, and a Loader
// turns this rank's share into batches, augmented. For evaluation,
// NewEvaluation gives each rank its part of a data set, every sample once over
// all ranks.
//
// The contents of a batch depend only on seed, epoch and sample: not on rank, on
// the number of goroutines, or on timing. The batches of N workers in one step
// are together the batch that one worker with an N-fold batch has, in content
// and order, which is what makes data-parallel training reproduce training on
// one worker. (LoaderOptions.Order names the orders of stages that give this up.)
//
// The readers of files, the generators' drawing and the random streams are in
// internal packages. This package has more than twenty files because each kind
// of data set has its own, and all of them declare types that a notebook names.
package data

// Dataset is a set of samples of one shape, addressed by index. Get may be
// called from several goroutines.
type Dataset interface {
	Len() int
	// ImageShape returns the shape of one sample's image, without the batch: [C,H,W] for
	// a picture, [C,D,H,W] for a volume, or any other rank. TargetShape returns the
	// shape of one sample's target: [C',H,W] or [C',D,H,W] if it has values for each
	// place of the image (a mask, a field), [1] if it is a class. The caller must not
	// modify the results.
	ImageShape() []int
	TargetShape() []int
	// Get copies sample i to image and target. A picture's values are in [0,1], a mask's
	// are 0 or 1, and a class is its index.
	Get(i int, image, target []float32) error
	// SampleName returns the name of sample i, for error messages and listings.
	SampleName(i int) string
}
