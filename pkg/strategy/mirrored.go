package strategy

import (
	"cmp"
	"context"
	"fmt"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/english"
)

// Names of the strategies whose processes contain several replicas of the network. The replicas
// compute the same as the workers of NameDDP. Only the number of processes and the group that
// connects the replicas are different.
const (
	NameMirrored    = "mirrored"
	NameMultiWorker = "multiworker"
)

// ReplicasPerProcess returns how many of the workers of a run are in each process. It is more than
// 1 only for NameMirrored, where a single process contains all workers, and for NameMultiWorker.
// CheckWorkers reports whether the workers can be divided evenly.
func (c Config) ReplicasPerProcess(workers int) int {
	switch c.Name {
	case NameMirrored:
		return workers
	case NameMultiWorker:
		return cmp.Or(c.Replicas, 1)
	}
	return 1
}

// newMirrored returns a DDP. group connects the replicas within a process through shared memory.
func newMirrored(ctx context.Context, _ Config, _ *engine.Accelerator, group collective.Group) (Strategy, error) {
	return NewDDP(ctx, group), nil
}

func checkReplicas(c Config) error {
	if c.Replicas < 0 {
		return fmt.Errorf("strategy.replicas is %d: use the number of replicas in each process, at least 1, or 0 for 1", c.Replicas)
	}
	return nil
}

// checkWorkersPerProcess returns an error if the workers cannot be divided evenly among processes.
func checkWorkersPerProcess(c Config, workers int) error {
	if n := c.ReplicasPerProcess(workers); workers%n != 0 {
		return fmt.Errorf("strategy %s: %s cannot be divided among processes with %d replicas each: use a multiple of %d, or other strategy.replicas", NameMultiWorker, english.FormatCount(workers, "worker"), n, n)
	}
	return nil
}
