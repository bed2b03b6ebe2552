package engine

import (
	"io"
	"time"

	"lockstep/pkg/monitor"
)

// Accelerated is an Engine on a GPU.
type Accelerated interface {
	Engine
	// Accelerator returns the model of the device, such as "NVIDIA H200".
	Accelerator() string
	// UUID returns the globally unique identifier of the device.
	UUID() [16]byte
	// Watch starts to sample the device at the given interval, and writes one line per
	// sample to w, if w is not nil. It omits quantities that it cannot measure. It
	// returns an error if it cannot measure any.
	Watch(every time.Duration, w io.Writer) (*monitor.Sampler, error)
}

// LossScale is the state of loss scaling in fp16: gradients are multiplied by Scale, so
// that small ones do not underflow.
type LossScale struct {
	Scale     float64 `json:"scale"`      // scale of the next step
	GoodSteps int     `json:"good_steps"` // steps since the scale last changed
	Skipped   int     `json:"skipped"`    // updates skipped so far
}

// LossScaler is an Executable that may scale its loss. To resume a training exactly, its
// LossScale must be restored in addition to the persistent tensors.
type LossScaler interface {
	// LossScale returns the state, or false if the precision needs no loss scaling.
	LossScale() (LossScale, bool)
	// SetLossScale restores the state.
	SetLossScale(LossScale) error
}

// DeviceDataset is a training set with samples of 8-bit numbers that is stored completely
// in device memory. The device also augments the samples, exactly as data.Augment does on
// the host, with the same random numbers.
type DeviceDataset struct {
	// Image and Target contain the samples one after another, each in row-major order of
	// the shapes below. The program's shapes may be smaller: it then reads a crop.
	Image, Target           []byte
	ImageShape, TargetShape []int // [c,h,w] or [c,d,h,w]; equal except for the channels
	// A value is its byte divided by these: 255 for images, 1 or 255 for masks.
	ImageDivisor, TargetDivisor float64
	// Values replaces Target if targets are class indexes, one per sample, which are not
	// augmented with the image.
	Values []float32
	// Stored contains, for each sample, the index of the stored sample that it reads.
	// Several samples may be augmented variants of one. nil: sample i is stored sample i.
	Stored []int

	Flip, Rotate         bool
	Brightness, Contrast float64 // for the image only
	Seed                 int64
}

// DatasetHolder is an Executable that can store a DeviceDataset. The host then only
// passes the indexes of a step's samples.
type DatasetHolder interface {
	// Hold copies set to the device for the inputs with the names image and target. It
	// replaces an earlier set.
	Hold(image, target string, set DeviceDataset) error
	// Samples selects the samples that the next Step reads, one per batch element, and
	// the epoch (from 0) of their augmentation. SetInput of one of the two inputs cancels
	// the selection.
	Samples(epoch int, indexes []int) error
}
