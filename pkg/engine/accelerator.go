package engine

import (
	"io"
	"time"

	"lockstep/pkg/monitor"
)

// GPUEngine is an Engine on a GPU.
type GPUEngine interface {
	Engine
	// Accelerator returns the model of the device, such as "NVIDIA H200".
	Accelerator() string
	// UUID returns the globally unique identifier of the device.
	UUID() [16]byte
	// Watch starts to sample the device at the given interval, and writes one line per
	// sample to w, unless w is nil. It omits quantities that it cannot measure, and returns
	// an error if it can measure none.
	Watch(every time.Duration, w io.Writer) (*monitor.Sampler, error)
}

// LossScale is the state of loss scaling in fp16. Gradients are multiplied by Scale, so
// that small gradients do not underflow.
type LossScale struct {
	Scale     float64 `json:"scale"`      // scale of the next step
	GoodSteps int     `json:"good_steps"` // steps since the scale last changed
	Skipped   int     `json:"skipped"`    // updates skipped so far
}

// LossScaler is an Executable that may scale its loss. To resume a training run exactly,
// restore its LossScale in addition to the persistent tensors.
type LossScaler interface {
	// LossScale returns the state, or false if the precision needs no loss scaling.
	LossScale() (LossScale, bool)
	SetLossScale(LossScale) error
}

// DeviceDataset is a training set of 8-bit samples that is stored entirely in device
// memory. The device also augments the samples, with the same random numbers and the same
// results as data.Augment on the host.
type DeviceDataset struct {
	// Image and Target contain the samples one after another, each in row-major order of
	// ImageShape and TargetShape. If the program's input shapes are smaller, a step reads a
	// crop of each sample.
	Image, Target           []byte
	ImageShape, TargetShape []int // [c,h,w] or [c,d,h,w]; equal except for the channels
	// A byte of Image is divided by ImageDivisor (255), a byte of Target by TargetDivisor
	// (1 or 255), to get the value that the program reads.
	ImageDivisor, TargetDivisor float64
	// Values replaces Target if the targets are class indexes, one per sample. Class
	// indexes are not augmented with the image.
	Values []float32
	// Stored contains each sample's index among the stored images and targets, so that several
	// augmented samples can share one. If Stored is nil, sample i uses stored sample i.
	Stored []int

	Flip, Rotate         bool
	Brightness, Contrast float64 // for the image only
	Seed                 int64
}

// DatasetHolder is an Executable that can store a DeviceDataset in device memory. Before
// each step the host then passes only the indexes of the samples, not their values.
type DatasetHolder interface {
	// HoldDataset copies set to the device. image and target are the names of the inputs
	// that it feeds. It replaces an earlier dataset.
	HoldDataset(image, target string, set DeviceDataset) error
	// SelectSamples selects the samples of the next Step, one per batch element, and the
	// epoch (from 0) whose augmentation they get. A call of SetInput for one of the two
	// inputs cancels the selection.
	SelectSamples(epoch int, indexes []int) error
}
