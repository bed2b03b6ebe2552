// Package probe declares the interface through which package selftest examines the GPU
// engine, in addition to engine.Engine and engine.Executable. Package cuda implements it.
package probe

import (
	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/plan"
)

// GPU gives a self-test access to an engine's GPU. Its methods must be called on the
// engine's thread (Engine.Do).
type GPU interface {
	// Allocate returns memory whose bytes are all 0xff, which is NaN in every type.
	Allocate(bytes int64) (driver.Ptr, error)
	Free(p driver.Ptr, bytes int64) error
	Write(p driver.Ptr, data []byte) error
	// Read returns bytes of the GPU's memory after all enqueued work is done.
	Read(p driver.Ptr, bytes int64) ([]byte, error)
	// Launch enqueues kernel launches. It does not wait for them.
	Launch(list []kernels.Launch) error
	// Lost returns the error that made the GPU unusable, or nil.
	Lost() error
}

// Executable is an executable of the GPU engine with methods for self-tests.
type Executable interface {
	engine.Executable
	// TaskCount returns the number of tasks to which the program's kernels were lowered.
	TaskCount() int
	// FillWithNaN fills with NaN all memory that a step must write before it reads it.
	FillWithNaN() error
	// CheckPadding returns an error for the first padding element of an output that is not
	// zero.
	CheckPadding() error
	// LaunchedKernels returns the names of the engine's own kernels that the steps so far
	// have launched.
	LaunchedKernels() []string
	// GradientScale returns the loss scale in the gradients of the last step; 1 if the
	// precision is not fp16.
	GradientScale() float64
	// RunPlans runs every plan that cuDNN has for the first convolution with operation op,
	// alone and in every graph that fuses other operations with it.
	// The result is filled with NaN before each run. visit is called with each run on the
	// engine's thread; if it returns an error, RunPlans stops and returns this error.
	RunPlans(op plan.Op, visit func(PlanResult) error) (PlanSummary, error)
}

// PlanResult is the result of running one cuDNN plan.
type PlanResult struct {
	Name    string
	Reduced bool     // it uses Winograd's algorithm, or sums in a lower precision
	Fused   bool     // its graph contains more than the convolution
	Kernels []string // names of the engine's own kernels that ran before and after it
	Result  []float64
	// FurtherOutputs contains the plan's other outputs by name: mean and invstd if the plan
	// also computes the statistics for a batch norm, or dgamma, dbeta and dx if it computes
	// sums for the gradient of a batch norm.
	FurtherOutputs map[string][]float64
	Err            error // why the plan failed; Result is nil then
}

// PlanSummary describes the plans that a call of RunPlans has run.
type PlanSummary struct {
	NoPlan  error // why cuDNN has no plan at all, or nil
	Missing error // why some graphs have no plan, or nil
	Fusible bool  // the task has a bias, a sum or ReLU, which a graph may contain
}
