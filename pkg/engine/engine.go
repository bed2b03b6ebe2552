// Package engine defines the interface of engines, which run a plan on a device. The
// engines are engine/reference (plain Go in float32 or float64, to which the others are
// compared), engine/cpu (Go assembly on a blocked layout) and engine/cuda (NVIDIA's
// libraries, loaded at run time).
package engine

import (
	"context"
	"errors"
	"time"

	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/optim"
)

// ErrNonFinite is the error that Step wraps if the loss is NaN or infinite. The parameters
// then have the values from before the step.
var ErrNonFinite = errors.New("loss is not finite")

// ErrOutOfMemory is the error that an engine wraps if its device lacks the memory for a
// program or a step.
var ErrOutOfMemory = errors.New("device is out of memory")

// GradSync replaces a worker's gradients by their mean over all workers. The engine calls
// ReduceBucket as soon as the gradients of a bucket are final, in the order of
// plan.Program.Buckets, and continues with the backward pass. It calls Wait before it
// updates the parameters.
type GradSync interface {
	// ReduceBucket starts to reduce bucket i in place, if possible without waiting.
	ReduceBucket(i int, b device.Buffer, s device.Stream) error
	// Wait returns when all buckets since the previous call of Wait are reduced.
	Wait() error
	// Capturable reports whether the calls may be captured in a CUDA graph.
	Capturable() bool
}

// ReductionReporter is a GradSync that reports when each bucket was reduced. Traces show
// these times.
type ReductionReporter interface {
	// Reduced returns the reductions that finished before the last return of Wait. The
	// result is valid until the next call of ReduceBucket or ShareStatistics.
	Reduced() []Reduction
}

// PassRecorder is an Engine whose profile shows the passes of the micro-batches of a pipeline, whose
// executables each run only one pass.
type PassRecorder interface {
	// BeginPass begins a span of the trace, if the profile selects the next training step, and
	// returns the function that ends it. part is "forward", "backward", or "exchange" for the
	// wait for another stage. Only one pass runs at a time.
	BeginPass(name, part string) (end func())
}

// AccumulatingSync is a GradSync that accumulates the gradients of several steps and
// reduces their mean in the last of them. An engine whose gradients are on a GPU adds them
// there: it calls Part before a step and Accumulated after it, instead of ReduceBucket and
// Wait.
type AccumulatingSync interface {
	GradSync
	// Part returns the number of the next step (from 1), the number of steps to accumulate,
	// and the GradSync with which the engine reduces the mean in the last step.
	Part() (part, parts int, inner GradSync)
	// Accumulated records that the engine has added the gradients of a step.
	Accumulated()
}

// Reduction records when a bucket of gradients, or the statistics of a batch norm, were
// exchanged between the workers.
type Reduction struct {
	Bucket int // −1 for the statistics of a batch norm
	Begin  time.Time
	Took   time.Duration
}

// Timing contains the duration of each phase of a step.
type Timing struct {
	Forward, Backward time.Duration
	Wait              time.Duration // blocked in GradSync.Wait or NormSync.ShareStatistics: exposed communication
	Optimizer         time.Duration // after the backward pass; an engine may update some weights during that pass
}

// Engine loads programs on one device.
type Engine interface {
	Name() string
	Options() Options
	// Load prepares p. If share is not nil, the new executable uses the parameters, states
	// and optimizer slots of share, for example to evaluate what another executable trains,
	// or to train with several batch sizes. share must be an executable of this engine.
	// Load returns an error if share lacks a parameter or state of p or has it with another
	// shape.
	Load(p *plan.Program, share Executable) (Executable, error)
	Close() error
}

// PeakMeasurer is an Engine that measures the peak performance of its device.
type PeakMeasurer interface {
	Engine
	// PeakFLOPS measures the floating-point operations per second of all of the engine's
	// threads together. It takes less than 50 ms. No step may run meanwhile.
	PeakFLOPS() float64
}

// Executable is a loaded program with its memory. It is not safe for concurrent use.
type Executable interface {
	Program() *plan.Program
	// SetInput copies v, in row-major order, to the input.
	SetInput(name string, v []float32) error
	// Step runs the forward pass and, if the program has one, the backward pass. It passes
	// the buckets of gradients to sync, unless sync is nil, which a single worker may pass.
	// Then it applies update; if update is nil, it only computes the gradients. A program with
	// synchronized batch norms needs a sync that is a NormSync. If the loss is not finite,
	// Step returns ErrNonFinite before it passes any bucket to sync and before it updates
	// the parameters.
	Step(ctx context.Context, sync GradSync, update *optim.Update) (Timing, error)
	Loss() float64
	// Output copies an output of the last Step to dst, in row-major order.
	Output(name string, dst []float32) error
	// Gradient returns a parameter's gradient after the last Step, in row-major order.
	Gradient(param string) ([]float64, error)
	// Names lists every persistent tensor: parameters, states, and the optimizer's slots as
	// "optimizer.m.<param>" and "optimizer.v.<param>" (Adam) or
	// "optimizer.momentum.<param>" (SGD with momentum). Slots are zero before the first
	// step.
	Names() []string
	// Get and Set copy a persistent tensor from and to the executable, in row-major order.
	// float64 represents the values of both precisions exactly.
	Get(name string) ([]float64, error)
	Set(name string, v []float64) error
	// MemoryBytes returns the size of the executable's memory: activations, parameters,
	// gradients and optimizer slots.
	MemoryBytes() int64
	Close() error
}

// HostMemory is an Executable whose parameters and gradients are in the host's memory. A
// strategy can then exchange parameters, or apply an update itself.
type HostMemory interface {
	Executable
	// BucketMemory returns the memory of each gradient bucket. It is valid until Close. The
	// next Step reads the parameters from there.
	BucketMemory() []BucketMemory
	// Unpack returns values of a parameter, which are stored like its weights in
	// BucketMemory, in row-major order. Pack does the opposite.
	Unpack(param string, stored device.Buffer) ([]float64, error)
	Pack(param string, v []float64, stored device.Buffer) error
}

// BufferCopier is an Executable that can copy inputs and outputs in the precision in which it
// computes, where SetInput and Output would round them to float32.
type BufferCopier interface {
	Executable
	// SetInputBuffer is SetInput, and OutputBuffer is Output, for values in host memory.
	SetInputBuffer(name string, v device.Buffer) error
	OutputBuffer(name string, dst device.Buffer) error
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

// NoticeReporter is an Executable that can report notices to the user.
type NoticeReporter interface {
	// Notices returns one sentence for each property of the loaded program that changes its
	// results but is not an error; nil if there are none.
	Notices() []string
}

// Prefetcher is an Executable that copies the inputs of the next step to the device while a
// step runs.
type Prefetcher interface {
	// SetPrefetch sets a function that every Step calls once while the device is busy. next
	// returns the inputs of the following step by name, in row-major order, or nil if there
	// are none. The values must not change before next is called again. SetInput overrides
	// a prefetched input. If next is nil, prefetching is off.
	SetPrefetch(next func() map[string][]float32)
}
