// Package data feeds training: data sets of image and mask pairs, the
// distributed sampler, augmentation, and a loader that prepares batches ahead.
//
// A Dataset is read by index. It comes from a folder of PNG, JPEG or TIFF pairs (OpenPairs)
// or from the generator of cell images (Cells), is divided into training and
// test samples (Split, Subset), and may be cut into tiles (Tiles). Split whole
// images, then cut: no tile of a held-out image is then trained on.
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
// one worker.
package data

// Dataset is a set of samples of one shape, addressed by index. Get may be
// called from several goroutines.
type Dataset interface {
	Len() int
	// ImageShape is C, H, W of a sample's image; TargetShape of its mask.
	ImageShape() [3]int
	TargetShape() [3]int
	// Get copies sample i: image values in [0,1], mask values 0 or 1.
	Get(i int, image, target []float32) error
	// Name of sample i, for error messages and listings.
	SampleName(i int) string
}
