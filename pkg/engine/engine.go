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

// ErrNonFinite is wrapped by the error of Step if the loss is NaN or infinite. The
// parameters are then the same as before the step.
var ErrNonFinite = errors.New("loss is not finite")

// ErrOutOfMemory is wrapped by errors of an engine whose device has not enough memory for
// a program or a step.
var ErrOutOfMemory = errors.New("out of memory of the device")

// GradSync replaces a worker's gradients by the mean over all workers. The engine calls
// Bucket as soon as the gradients of a bucket are final, in the order of
// plan.Program.Buckets, and continues with the backward pass. It calls Wait before the
// optimizer runs.
type GradSync interface {
	// Bucket starts the reduction of bucket i in place. If possible it returns at once.
	Bucket(i int, b device.Buffer, s device.Stream) error
	// Wait returns once all buckets since the last Wait are reduced.
	Wait() error
	// Capturable reports whether the calls may be captured in a CUDA graph.
	Capturable() bool
}

// Reducing is a GradSync that reports when each bucket was reduced, for a trace.
type Reducing interface {
	// Reduced returns the reductions before the last Wait. The result is valid until the
	// next call of Bucket or ShareStatistics.
	Reduced() []Reduction
}

// Accumulating is a GradSync that accumulates the gradients of several steps and reduces
// their mean with the last step. An engine whose gradients are on a GPU adds them there:
// it calls Part before a step and Accumulated after it, instead of Bucket and Wait.
type Accumulating interface {
	GradSync
	// Part returns the number of the next step, from 1, and the number of steps to
	// accumulate. inner reduces the mean of all of them, with the last step.
	Part() (part, parts int, inner GradSync)
	// Accumulated records that the step has been added.
	Accumulated()
}

// Reduction is the time that a bucket spent in the collective.
type Reduction struct {
	Bucket int // −1 for the statistics of a batch norm
	Begin  time.Time
	Took   time.Duration
}

// Timing contains the duration of each phase of a step.
type Timing struct {
	Forward, Backward time.Duration
	Wait              time.Duration // blocked in GradSync.Wait or NormSync.ShareStatistics: exposed communication
	Optimizer         time.Duration
}

// Engine loads programs on one device.
type Engine interface {
	Name() string
	Options() Options
	// Load prepares p. If share is not nil, the executable uses share's parameters,
	// states and optimizer slots, for example for training and evaluation, or for several
	// batch sizes. share must be an Executable of this engine. It is an error if share
	// lacks a parameter or state of p, or has it with another shape.
	Load(p *plan.Program, share Executable) (Executable, error)
	Close() error
}

// Peaked is an Engine that measures the peak performance of its device.
type Peaked interface {
	Engine
	// PeakFLOPS measures floating-point operations per second on all of the engine's
	// threads, within 50 ms. No step may run meanwhile.
	PeakFLOPS() float64
}

// Executable is a loaded program with its memory. It is not safe for concurrent use.
type Executable interface {
	Program() *plan.Program
	// SetInput copies v, in row-major order of the input's shape.
	SetInput(name string, v []float32) error
	// Step runs the forward pass, the backward pass if the program has one, passes the
	// buckets to sync (nil: the worker is the only one), and applies update (nil:
	// computes gradients only). A program with synchronized batch norms needs a sync that
	// is a NormSync. If the loss is not finite, Step returns ErrNonFinite before it
	// passes any bucket and before the optimizer.
	Step(ctx context.Context, sync GradSync, update *optim.Update) (Timing, error)
	// Loss returns the loss of the last Step.
	Loss() float64
	// Output copies an output of the last Step to dst, in row-major order.
	Output(name string, dst []float32) error
	// Gradient returns a parameter's gradient after the last Step, in row-major order.
	Gradient(param string) ([]float64, error)
	// Names lists every persistent tensor: parameters, states, and the optimizer's slots
	// as "optimizer.m.<param>" and "optimizer.v.<param>" (Adam) or
	// "optimizer.momentum.<param>" (SGD with momentum). Slots are zero before the first
	// step.
	Names() []string
	// Get and Set copy a persistent tensor from and to the executable, in row-major
	// order. float64 represents the values of either precision exactly.
	Get(name string) ([]float64, error)
	Set(name string, v []float64) error
	// MemoryBytes returns the size of the executable's memory: arena, parameters,
	// gradients and slots.
	MemoryBytes() int64
	Close() error
}

// Noticer is an Executable that reports notices to the user.
type Noticer interface {
	// Notices returns facts about the loaded program that change the results but are not
	// errors, one sentence each; nil if there are none.
	Notices() []string
}

// Prefetcher is an Executable that copies the next step's inputs to a device while a step
// runs.
type Prefetcher interface {
	// Ahead sets a function that every Step calls once while the device is busy. next
	// returns the inputs of the following Step by name, in row-major order, or nil for
	// none; SetInput overrides them. The values must not change before the next call of
	// next. A nil next turns prefetching off.
	Ahead(next func() map[string][]float32)
}
