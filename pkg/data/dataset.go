// Package data feeds training: data sets, their files and generators, the
// distributed sampler, augmentation, and a loader that prepares batches ahead.
//
// A Dataset is read by index. Samples have shapes of any rank: pictures [C,H,W]
// with masks or a class, volumes [C,D,H,W] with fields. Open opens what a Config
// names:
//
//   - images with masks: a folder of PNG, JPEG or TIFF pairs (OpenPairs), of TIFF
//     stacks (OpenStacks), or generated cells (Cells);
//   - pictures to be told apart: CIFAR-10 (OpenCIFAR10), folders (OpenFolders,
//     OpenImageNet), or generated shapes (Shapes);
//   - volumes: HDF5 and .npy files, of which only crops are read (OpenVolumes), or
//     generated fields (Fields).
//
// It divides them into training and test samples (Split, Subset), and cuts tiles
// or crops (Tiles, Repeat, Crops): whole images are split, then cut, so that no
// tile of a held-out image is trained on. InMemory keeps what was read.
//
// For training, a Sampler deals each epoch's samples to the ranks, and a Loader
// turns this rank's share into batches, augmented. For evaluation,
// NewEvaluation gives each rank its part of a data set, every sample once over
// all ranks.
//
// What a batch holds depends on seed, epoch and sample alone: not on rank, on
// the number of goroutines, or on timing. The batches of N workers in one step
// are together the batch that one worker with an N-fold batch has, in content
// and order, which is what makes data-parallel training reproduce training on
// one worker. (LoaderOptions.Order names the orders of stages that give this up.)
//
// The readers of files, the generators' drawing and the random streams are in
// internal packages. What is left has more than twenty files because each kind
// of data set has its own, and all of them are types that a notebook names.
package data

// Dataset is a set of samples of one shape, addressed by index. Get may be
// called from several goroutines.
type Dataset interface {
	Len() int
	// ImageShape is the shape of a sample's image, without the batch: [C,H,W] of
	// a picture, [C,D,H,W] of a volume, or of any other rank. TargetShape is that
	// of what is to be learned from it: [C',H,W] or [C',D,H,W] where it has values
	// for each place of the image (a mask, a field), [1] where it is a class.
	// The caller does not change what they return.
	ImageShape() []int
	TargetShape() []int
	// Get copies sample i: a picture's values in [0,1], a mask's 0 or 1, a class's
	// index.
	Get(i int, image, target []float32) error
	// Name of sample i, for error messages and listings.
	SampleName(i int) string
}
