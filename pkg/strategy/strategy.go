package strategy

import (
	"context"
	"time"

	"lockstep/pkg/engine"
	"lockstep/pkg/optim"
)

// Strategy decides how N workers turn their batches into one update of the parameters. Each worker
// has its own Strategy, for one executable.
//
// All ranks call Start, Step, Equalize and State in the same order. If Config.IsAsynchronous
// returns true, ranks may be in different calls of Step at the same time. They wait for each other
// in Equalize, which they call after the same number of steps. A Strategy may also be an
// engine.ReductionReporter, for traces. If there is only one rank, it exchanges nothing.
type Strategy interface {
	// Start makes the state of the workers consistent before the first step: usually all
	// ranks get rank 0's parameters, running statistics and optimizer slots. saved contains
	// the tensors of the checkpoint of a resumed run, including those that State returned;
	// nil for a new run.
	Start(ctx context.Context, exe engine.Executable, saved map[string][]float64) error
	// Step computes the gradients of one batch on exe, whose inputs are set. If the batch is
	// the last one of its optimizer step, Step also updates the parameters. After an error,
	// every further Step returns an error, because the workers are no longer synchronized.
	Step(ctx context.Context, exe engine.Executable, s Step) (engine.Timing, error)
	// Equalize makes the parameters of exe equal on all ranks. Every rank calls it after the
	// last step of an epoch, before the evaluation.
	Equalize(ctx context.Context, exe engine.Executable) error
	// State returns, on rank 0, the tensors that a checkpoint needs in addition to the
	// persistent tensors of rank 0's executable, or in place of them if they have the same
	// name. They are in row-major order. A tensor of another rank is named by RankPrefix. On
	// the other ranks, State returns nil. It does not change the training: a run with
	// checkpoints computes the same bits as one without.
	State(ctx context.Context, exe engine.Executable) (map[string][]float64, error)
	// Stats returns statistics of the exchange since the previous call of Stats.
	Stats() Stats
	// Name returns the transport as recorded in run.json, such as "shared memory" or "nccl".
	Name() string
	// Close cancels operations in progress and ends all goroutines. It does not close the
	// group.
	Close() error
}

// Step describes one batch of an optimizer step.
type Step struct {
	Batch, Batches int          // number of this batch from 1, and number of batches whose mean gradient the update uses
	Update         optim.Update // the update to apply after the last batch; Update.Step counts optimizer steps from 1
}

// isLast reports whether the batch is the last one of its optimizer step.
func (s Step) isLast() bool { return s.Batch >= s.Batches }

// Stats contains statistics of the exchange since the previous call of Strategy.Stats.
type Stats struct {
	AllReduce time.Duration // time in operations of the group, also while the backward pass went on
	First     time.Time     // when the first bucket or statistics were queued; zero if none were
	Buckets   int           // number of reduced buckets
	Shared    int           // number of exchanges of batch norm statistics
	Bytes     int           // size of this worker's buckets and statistics
	// Staleness is the number of updates that were applied between the parameters for which the
	// last gradient was computed and the parameters that it updated. It is 0 unless workers are
	// asynchronous.
	Staleness int
}

var (
	_ Strategy = (*DDP)(nil)
	_ Strategy = (*NCCL)(nil)
)

// accumulation runs the batches of optimizer steps. The zero value is ready to use.
type accumulation struct {
	accumulator *Accumulator // nil until a step has several batches
}

// runBatch runs the batch s on exe, which passes its gradients to sync. After the last batch, the
// executable applies update. If update is nil, the strategy applies the update itself.
func (a *accumulation) runBatch(ctx context.Context, exe engine.Executable, sync engine.GradSync, s Step, update *optim.Update) (engine.Timing, error) {
	if s.Batches > 1 && a.accumulator == nil {
		a.accumulator = NewAccumulator(sync)
	}
	if a.accumulator != nil {
		if s.Batch <= 1 {
			a.accumulator.Begin(s.Batches)
		}
		sync = a.accumulator
	}
	if !s.isLast() {
		update = nil
	}
	return exe.Step(ctx, sync, update)
}

// OptimizerSharder is a Strategy in which each worker has only a part of the optimizer state.
type OptimizerSharder interface {
	Strategy
	// OptimizerBytes returns the size of this rank's part of the optimizer's state for
	// updates like u, and the size of the complete state, which a worker has with NameDDP.
	// Call it after Start.
	OptimizerBytes(u optim.Update) (own, complete int64)
}

// SentEstimator is a Strategy that can estimate the bytes that its workers send, but needs more
// than the size of the parameters for it, so that Config.SentBytes cannot.
type SentEstimator interface {
	Strategy
	// SentBytes returns the mean number of bytes that a worker sends in an optimizer step
	// according to the formula Kind.Bytes. batches is the mean number of batches of a step. Call
	// it after Start.
	SentBytes(batches float64) float64
}

var (
	_ SentEstimator = (*compressedDDP)(nil)
	_ SentEstimator = (*pipeline)(nil)
)
