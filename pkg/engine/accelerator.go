package engine

import (
	"io"
	"time"

	"lockstep/pkg/monitor"
)

// Accelerated is an Engine on a device of its own that says what it is and what it
// draws: a GPU.
type Accelerated interface {
	Engine
	// Accelerator names the kind of device ("NVIDIA H200").
	Accelerator() string
	// UUID tells the device from all others, on whatever machine.
	UUID() [16]byte
	// Watch samples the device from now on, every so often, a line a sample to w
	// (nil: none). What it cannot measure is left out; an error says why nothing can.
	Watch(every time.Duration, w io.Writer) (*monitor.Sampler, error)
}

// LossScale is the state of the factor that gradients carry in fp16, so that small
// ones do not vanish.
type LossScale struct {
	Scale     float64 `json:"scale"`      // of the next step
	GoodSteps int     `json:"good_steps"` // since it last changed
	Skipped   int     `json:"skipped"`    // updates that were left out so far
}

// LossScaler is an Executable that may scale its loss. A training that is to go on
// exactly where it stopped needs the scale beside the persistent tensors.
type LossScaler interface {
	// LossScale is false where the precision needs none.
	LossScale() (LossScale, bool)
	SetLossScale(LossScale) error
}

// DeviceDataset is a training set of bytes that is on the device as a whole, and what is done
// to its samples there: what data.Augment does on the host, by the same random numbers.
type DeviceDataset struct {
	// Image and Target hold sample after sample, each in the order of its shape, which
	// is that of a sample in the data set: the program's may be smaller, a window.
	Image, Target           []byte
	ImageShape, TargetShape []int // [c,h,w] or [c,d,h,w]; equal but for the channels
	// A value is its byte over these: 255 for images, 1 or 255 for masks.
	ImageDivisor, TargetDivisor float64
	// Values are, in place of Target, targets that have no places to cut and turn with
	// the image, sample after sample: the index of the class.
	Values []float32
	// Stored is where each sample lies: several may be parts of one, which are varied
	// each by its own number. nil: sample i is the i-th.
	Stored []int

	Flip, Rotate         bool
	Brightness, Contrast float64 // of the image alone
	Seed                 int64
}

// DatasetHolder is an Executable that can hold a DeviceDataset: then a step needs
// but the numbers of its samples from the host.
type DatasetHolder interface {
	// Hold copies a set to the device, for the inputs of these names, in place of one
	// that is held.
	Hold(image, target string, set DeviceDataset) error
	// Samples says what the next Step reads: these samples, one a place of the batch, as
	// they are varied in that epoch (from 0). SetInput of one of the two inputs ends it.
	Samples(epoch int, indexes []int) error
}
