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
