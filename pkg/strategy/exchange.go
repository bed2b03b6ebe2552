package strategy

import (
	"context"

	"lockstep/pkg/engine"
)

// Exchange is a strategy that a trainer runs with. It may also be an engine.NormSync, for
// synchronized batch norms, an engine.ReductionReporter, for traces, and a ParameterSync.
type Exchange interface {
	engine.GradSync
	// Stats returns the statistics of the exchange since the previous call of Stats.
	Stats() Stats
	// Name returns the transport of the gradients as recorded in run.json, such as
	// "shared memory" or "nccl".
	Name() string
	Close() error
}

// ParameterSync is an Exchange that changes the parameters after an optimizer step, such as
// one that averages parameters every few steps in place of the gradients. Checkpoints
// contain the optimizer's state and the moving averages of rank 0 only.
type ParameterSync interface {
	Exchange
	// AfterStep may change the parameters of exe after optimizer step number step, counted
	// from 1. Every rank calls it after every step.
	AfterStep(ctx context.Context, exe engine.Executable, step int) error
	// Equalize makes the parameters of exe equal on all ranks. Every rank calls it before
	// an evaluation and before a checkpoint.
	Equalize(ctx context.Context, exe engine.Executable) error
}

var (
	_ Exchange = (*DDP)(nil)
	_ Exchange = (*NCCL)(nil)
)

// Name returns the name of the group's transport.
func (d *DDP) Name() string { return d.group.Name() }
