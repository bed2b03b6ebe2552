// Package probe declares what package selftest sees of the GPU engine beside engine.Engine
// and engine.Executable. Package cuda implements it.
package probe

import (
	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/plan"
)

// GPU is an engine's GPU. Its methods are called on the engine's thread (Engine.Do).
type GPU interface {
	// Allocate returns memory whose bytes are all 0xff, which is NaN in every type.
	Allocate(bytes int64) (driver.Ptr, error)
	Free(p driver.Ptr, bytes int64) error
	Write(p driver.Ptr, data []byte) error
	// Read returns bytes of the GPU's memory after all enqueued work is done.
	Read(p driver.Ptr, bytes int64) ([]byte, error)
	// Launch enqueues kernels.
	Launch(list []kernels.Launch) error
	// Lost returns the error that made the GPU unusable, or nil.
	Lost() error
}

// Executable is an executable of the GPU engine.
type Executable interface {
	engine.Executable
	// Tasks returns the number of tasks that the program's kernels were lowered to.
	Tasks() int
	// Poison fills with NaN what a step must write before it reads it.
	Poison() error
	// CheckPadding reports the first element of an output's padding that is not zero.
	CheckPadding() error
	// Launched lists the engine's own kernels that the steps so far launched.
	Launched() []string
	// GradientScale returns the loss scale of the last step's gradients.
	GradientScale() float64
	// AppliedNorms counts the batch norms that convolutions apply as they read, and those
	// that they could apply.
	AppliedNorms() (applied, candidates int)
	// EachPlan runs every plan that cuDNN has for the first convolution with operation op,
	// each into a result full of NaN, and hands it to visit on the engine's thread. An
	// error of visit ends it.
	EachPlan(op plan.Op, graphs Graphs, visit func(Plan) error) (Plans, error)
}

// Graphs selects the graphs of cuDNN's that EachPlan runs.
type Graphs uint8

const (
	// AllGraphs selects the convolution alone, and with everything fused that cuDNN may fuse.
	AllGraphs Graphs = iota
	// NormGraphs selects the graphs that apply the batch norm before the convolution, or sum
	// for its gradient. The batch norm's own kernels run before each plan.
	NormGraphs
)

// Plan is one run of one of cuDNN's plans.
type Plan struct {
	Name    string
	Reduced bool     // Winograd's algorithm, or sums in a lower precision
	Fused   bool     // more than the convolution in one graph
	Kernels []string // the engine's own kernels that ran with it
	Result  []float64
	// Beside holds what the graph leaves beside its result: the mean and invstd of the batch
	// norm after it, the sum and square of the result's channels, or the dgamma, dbeta and
	// dx of the batch norm before it.
	Beside map[string][]float64
	Err    error // why the plan failed; Result is nil then
}

// Plans describes what EachPlan ran.
type Plans struct {
	None    error // why cuDNN has no plan at all, or nil
	Missing error // why some graphs have no plan, or nil
	Fusible bool  // whether the task has a bias, a sum or ReLU that a graph may hold
}
