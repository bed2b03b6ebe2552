package engine

import (
	"errors"
	"fmt"
	"io"
	"time"

	"lockstep/pkg/internal/clib/nccl"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/monitor"
)

// Capabilities lists optional features of an executable and its engine, in addition to the
// methods of Executable. A nil pointer or function means that the feature is not available.
type Capabilities struct {
	// Notices contains one sentence for each property of the loaded program that changes its
	// results but is not an error.
	Notices []string
	// Stages describes how a pipeline divides the network's layers among the workers, if this
	// executable is one stage of a pipeline. It is empty for a complete network.
	Stages string
	// NoOutputs is set if another worker's stage computes the network's outputs.
	NoOutputs bool

	Accelerator *Accelerator // nil for an engine on the CPU
	HostMemory  *HostMemory  // nil if parameters and gradients are not in the host's memory

	// PeakFLOPS measures the floating-point operations per second of all of the engine's
	// threads together. It takes less than 50 ms. No step may run meanwhile.
	PeakFLOPS func() float64
	// SetInputBuffer and OutputBuffer are like SetInput and Output, but take host memory in the
	// precision of the executable. SetInput and Output may round, because they use float32.
	SetInputBuffer func(name string, v device.Buffer) error
	OutputBuffer   func(name string, dst device.Buffer) error
	// LossScale returns the state of loss scaling, and SetLossScale restores it. To resume a
	// training run exactly, restore it in addition to the persistent tensors. Both are nil
	// if the precision needs no loss scaling.
	LossScale    func() LossScale
	SetLossScale func(LossScale) error
	// HoldDataset copies set to the device's memory and replaces an earlier set. The batches of
	// a Source then contain indexes of samples instead of values. image and target are the
	// names of the program's inputs for the samples.
	HoldDataset func(image, target string, set DeviceDataset) error

	// Profile selects the training steps to profile.
	Profile func(Profile) error
	// RecordWait records in the profile that the next training step has waited since start.
	// name is the reason for the wait.
	RecordWait func(name string, start time.Time)
	// BeginPass begins a span in the profile and returns the function that ends it. The span is
	// one pass of a pipeline's micro-batch. part is "forward", "backward", or "exchange" for
	// waiting for another stage. Only one pass runs at a time. If the next training step is not
	// profiled, nothing is recorded.
	BeginPass func(name, part string) (end func())
}

// Accelerator is a GPU.
type Accelerator struct {
	Name string   // its model, such as "NVIDIA H200"
	UUID [16]byte // unique among all GPUs of all machines
	// Watch starts to sample the GPU at the given interval, and writes one line per sample to
	// w, unless w is nil. It omits quantities that it cannot measure, and returns an error if
	// it can measure none.
	Watch func(every time.Duration, w io.Writer) (*monitor.Sampler, error)
	// NCCL returns the library, or an error that explains why it cannot be used.
	NCCL func() (*nccl.Library, error)
	// Do runs f on the thread that holds the GPU's context.
	Do func(f func() error) error
	// RunOnNewThread runs f on a new thread with the GPU's context current, so that a call
	// which may block for ever does not block Do.
	RunOnNewThread func(f func() error) error
}

// HostMemory gives access to an executable's parameters and gradients in the host's memory.
// A strategy can then exchange parameters, or apply an update itself.
type HostMemory struct {
	// Buckets returns the memory of each gradient bucket, which is valid until Close. The next
	// Step uses the parameters that are in this memory.
	Buckets func() []BucketMemory
	// Unpack converts stored, values of a parameter in the layout of BucketMemory, to row-major
	// order. Pack converts v to that layout.
	Unpack func(param string, stored device.Buffer) ([]float64, error)
	Pack   func(param string, v []float64, stored device.Buffer) error
}

// BucketMemory is the memory of one gradient bucket and of its parameters.
type BucketMemory struct {
	Gradients  device.Buffer // as GradSync.ReduceBucket gets it
	Parameters []ParameterMemory
}

// ParameterMemory is the memory of a parameter. Its gradient has the same length and layout,
// which may include padding; the padding is zero in both.
type ParameterMemory struct {
	Name    string
	Weights device.Buffer
	Offset  int  // index of the first element of its gradient in BucketMemory.Gradients
	Vector  bool // as in optim.Tensor64
}

// LossScale is the state of loss scaling in fp16. Gradients are multiplied by Scale, so
// that small gradients do not underflow.
type LossScale struct {
	Scale     float64 `json:"scale"`      // scale of the next step
	GoodSteps int     `json:"good_steps"` // steps since the scale last changed
	Skipped   int     `json:"skipped"`    // updates skipped so far
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

// Profile selects the training steps to profile and the kind of profile.
type Profile struct {
	First, Steps int // first step, counted from 1, and number of steps
	// Trace is the file to write, in the format of Chrome's trace viewer and Perfetto, with
	// the time of every kernel. The CPU engine needs it. On a GPU, the steps run without
	// CUDA graphs, and take longer than usual; without Trace, the steps are only marked for
	// NVIDIA's profilers (nsys profile -c cudaProfilerApi).
	Trace string
	// Rank is the rank of this worker among World workers. A World of 0 means one worker.
	Rank, World int
}

// Validate returns an error that describes the first invalid field.
func (p Profile) Validate() error {
	switch {
	case p.First < 1:
		return fmt.Errorf("validate profile: first step is %d: steps are counted from 1", p.First)
	case p.Steps < 1:
		return fmt.Errorf("validate profile: number of steps is %d: use at least 1", p.Steps)
	case p.Rank < 0 || p.World < 0:
		return fmt.Errorf("validate profile: invalid rank %d of %d workers: neither may be negative", p.Rank, p.World)
	}
	return nil
}

// SetInputs sets the inputs of x to the values of the next batch of s. It returns false if s
// has no further batch. Engines that have no device memory implement NextBatch with it.
func SetInputs(x Executable, s Source) (bool, error) {
	b, ok := s.Next()
	if !ok {
		return false, nil
	}
	if b.Samples != nil {
		return false, errors.New("set inputs: the source returned indexes of samples, but the engine does not hold the data set")
	}
	for name, v := range b.Inputs {
		if err := x.SetInput(name, v); err != nil {
			return false, err
		}
	}
	return true, nil
}
