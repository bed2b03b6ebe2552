// Package engine says what it is to run a plan on a device. The engines
// themselves are engine/reference (plain Go, float32 and float64, the truth),
// engine/cpu (Go assembly on a blocked layout) and engine/cuda (NVIDIA's
// libraries, opened at run time).
package engine

import (
	"context"
	"errors"
	"time"

	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/optim"
)

// ErrNonFinite is wrapped by Step when the loss is NaN or infinite; the
// parameters are then as before the step.
var ErrNonFinite = errors.New("loss is not finite")

// ErrOutOfMemory is wrapped by errors of an engine whose device has not enough memory
// for a program or a step.
var ErrOutOfMemory = errors.New("out of memory of the device")

// GradSync turns a worker's gradients into those of all workers. The engine
// calls Bucket as soon as a bucket's gradients are final (in the order of
// plan.Program.Buckets), goes on with backward, and calls Wait before the
// optimiser runs.
type GradSync interface {
	// Bucket starts the reduction of bucket i in place and returns at once where it can.
	Bucket(i int, b device.Buffer, s device.Stream) error
	// Wait returns when every bucket handed over since the last Wait is reduced.
	Wait() error
	// Capturable says whether the calls may be recorded in a device graph.
	Capturable() bool
}

// Reducing is a GradSync that says when each bucket was reduced, for a trace.
type Reducing interface {
	// Reduced are the reductions before the last Wait, valid until the next Bucket
	// or ShareStatistics.
	Reduced() []Reduction
}

// Accumulating is a GradSync that takes the mean gradient of several steps, one after
// another: an engine whose gradients lie on a device of its own adds them up there.
// It asks Part before a step and calls Accumulated after it, in place of Bucket and Wait.
type Accumulating interface {
	GradSync
	// Part says which step of how many the next one is, from 1, and what exchanges the
	// mean of all of them, with the last.
	Part() (part, parts int, inner GradSync)
	Accumulated()
}

// Reduction is the time that a bucket spent in the collective.
type Reduction struct {
	Bucket int // −1: no bucket, but the statistics of a batch norm
	Begin  time.Time
	Took   time.Duration
}

// Timing says where a step's time went.
type Timing struct {
	Forward, Backward time.Duration
	Wait              time.Duration // blocked in GradSync.Wait or NormSync.ShareStatistics: exposed communication
	Optimizer         time.Duration
}

// Engine loads programs on one device.
type Engine interface {
	Name() string
	Options() Options
	// Load prepares p. With share, an Executable of this engine whose program
	// has parameters and states of the same names and shapes, the two use the
	// same parameters, states and optimiser slots (train and eval programs,
	// several batch sizes); parameters that share lacks are an error.
	Load(p *plan.Program, share Executable) (Executable, error)
	Close() error
}

// Peaked is an Engine that measures what its device can do at most.
type Peaked interface {
	Engine
	// PeakFLOPS is in floating-point operations a second, on all of the engine's
	// threads, measured now in less than 50 ms. Do not step meanwhile.
	PeakFLOPS() float64
}

// Executable is a loaded program with its memory. It is for one goroutine.
type Executable interface {
	Program() *plan.Program
	// SetInput copies v, in the logical order of the input's shape.
	SetInput(name string, v []float32) error
	// Step runs the forward pass, the backward pass where the program has one,
	// hands the buckets to sync (may be nil: the worker is alone), and applies
	// update (may be nil: gradients only). A program with synchronised batch norms
	// needs a sync that is a NormSync. A non-finite loss is ErrNonFinite, before any
	// bucket is handed over and before the optimiser.
	Step(ctx context.Context, sync GradSync, update *optim.Update) (Timing, error)
	// Loss is the loss of the last Step.
	Loss() float64
	// Output copies an output of the last Step to dst, in logical order.
	Output(name string, dst []float32) error
	// Gradient returns a parameter's gradient after the last Step, in logical order.
	Gradient(param string) ([]float64, error)
	// Names lists every persistent tensor: parameters, states, and the optimiser's
	// slots as "optimizer.m.<param>" and "optimizer.v.<param>" (Adam) or
	// "optimizer.momentum.<param>" (SGD with momentum; zero before the first step).
	Names() []string
	// Get and Set copy a persistent tensor out and in, in logical order; float64
	// holds either precision exactly.
	Get(name string) ([]float64, error)
	Set(name string, v []float64) error
	// MemoryBytes is what the executable holds: arena, parameters, gradients, slots.
	MemoryBytes() int64
	Close() error
}

// Noticer is an Executable with something to tell the person who trains.
type Noticer interface {
	// Notices returns what loading the program found that changes the results but is no
	// error, a sentence each; nil: nothing.
	Notices() []string
}

// Prefetcher is an Executable that takes the next step's inputs while a step
// runs: for devices that work on their own, and to which a copy takes time.
type Prefetcher interface {
	// Ahead has next called once in every Step, when the device is at work. What it
	// returns, values by the inputs' names in logical order, is what the Step after
	// reads, unless SetInput comes in between; nil is nothing. The values must not
	// change before next is called again. A nil next ends this.
	Ahead(next func() map[string][]float32)
}
