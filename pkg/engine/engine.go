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

// ErrNonFinite is the error that Step wraps if the loss is NaN or infinite. The step then
// leaves the parameters unchanged.
var ErrNonFinite = errors.New("loss is not finite")

// ErrOutOfMemory is the error that an engine wraps if its device lacks the memory for a
// program or a step.
var ErrOutOfMemory = errors.New("device is out of memory")

// GradSync replaces a worker's gradients by their mean over all workers. The engine calls
// ReduceBucket as soon as the gradients of a bucket are final, in the order of
// plan.Program.Buckets, and continues with the backward pass. It calls Wait before it
// updates the parameters. A GradSync must be comparable by ==.
type GradSync interface {
	// ReduceBucket starts to reduce bucket i in place, if possible without waiting.
	ReduceBucket(i int, b device.Buffer, s device.Stream) error
	// Wait returns when all buckets since the previous call of Wait are reduced.
	Wait() error
	// Capabilities returns what the GradSync can do in addition. The zero value is valid.
	Capabilities() SyncCapabilities
}

// SyncCapabilities lists optional features of a GradSync, in addition to exchanging gradients.
// A nil function or pointer means that the feature is not available.
type SyncCapabilities struct {
	// Enqueues is set if ReduceBucket and SumStatistics only enqueue work in the stream that
	// they get, and return before it runs. The engine may then call them once, record what
	// they enqueue, and repeat it in every step. It is also set if there is nothing to
	// exchange.
	Enqueues bool
	// ShareStatistics exchanges the statistics of synchronized batch norms (plan.Attr.Sync)
	// on the host. It waits for the buckets that are being reduced, and returns the numbers
	// of all workers, concatenated in rank order. All workers must pass equally many. The
	// result is valid until the next call; own is not retained. An engine calls it and
	// ReduceBucket in the order of the program, which is the same on all ranks.
	ShareStatistics func(own []float64) (all []float64, err error)
	// SumStatistics replaces v by its sum over all workers, on stream s. v contains float64
	// values on the device, equally many on all workers. Sums and buckets are exchanged in the
	// order of the calls.
	SumStatistics func(v device.Buffer, s device.Stream) error
	// Reduced returns, for traces, the reductions that had finished when Wait last returned.
	// The result is valid until the next call of ReduceBucket or ShareStatistics.
	Reduced func() []Reduction
	// Watch watches a step and ends it if a rank is lost. stop ends the watch. It returns the
	// error with which Watch ended the step, or nil.
	Watch func(ctx context.Context) (stop func() error)
	// Accumulation is not nil if the update uses the mean gradient of several steps.
	Accumulation *Accumulation
}

// Accumulation describes a GradSync that adds up the gradients of several steps and reduces
// their mean in the last of these steps. An engine whose gradients are on a GPU adds them up
// there. In the last step only, it passes its buckets to Mean. In each step it calls Done
// instead of Wait.
type Accumulation struct {
	Step, Steps int      // number of the next step, from 1, and number of steps of the update
	Mean        GradSync // reduces the mean
	Done        func()   // records that the engine has added the gradients of a step
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
	Wait              time.Duration // blocked in GradSync.Wait or ShareStatistics: exposed communication
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

// Source provides the batches of a training run. A Source must be comparable by ==, such as a
// pointer.
type Source interface {
	// Next returns the next batch, or false if there is none, after the last batch or after
	// an error, which the Source reports to its owner. The values of a batch are valid until
	// the next call.
	Next() (Batch, bool)
}

// Batch contains the inputs of one step.
type Batch struct {
	Inputs map[string][]float32 // values by the input's name, in row-major order; nil with Samples
	// Samples are the indexes in the data set of Capabilities.HoldDataset, one for each sample
	// of the batch. The device augments the samples as in epoch Epoch, counted from 0.
	Samples []int
	Epoch   int
}

// Executable is a loaded program with its memory. It is not safe for concurrent use.
type Executable interface {
	Program() *plan.Program
	// Capabilities returns what the executable can do in addition to these methods.
	Capabilities() Capabilities
	// SetInput copies v, in row-major order, to the input.
	SetInput(name string, v []float32) error
	// NextBatch makes the next batch of s the inputs of the next Step. It returns false if s
	// has no further batch. An engine may take the batch after it from s during the next
	// Step, and copy it to its device, for the next call of NextBatch with the same s.
	// SetInput replaces an input of the batch.
	NextBatch(s Source) (bool, error)
	// Step runs the forward pass and, if the program has one, the backward pass. It passes
	// the buckets of gradients to sync, unless sync is nil, which a single worker may pass.
	// Then it applies update; if update is nil, it only computes the gradients. A program with
	// synchronized batch norms needs a sync that exchanges statistics. If the loss is not finite,
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
