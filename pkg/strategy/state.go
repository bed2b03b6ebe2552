package strategy

import (
	"context"
	"fmt"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
)

// BroadcastState gives every rank rank 0's persistent tensors: parameters,
// running statistics and the optimiser's slots, exactly (in float64).
func BroadcastState(ctx context.Context, exe engine.Executable, group collective.Group) error {
	return BroadcastTensors(ctx, exe, group, exe.Names())
}

// BroadcastTensors is BroadcastState for the named tensors, which all ranks
// name in the same order.
func BroadcastTensors(ctx context.Context, exe engine.Executable, group collective.Group, names []string) error {
	if group.Size() == 1 {
		return nil
	}
	for _, name := range names {
		v, err := exe.Get(name)
		if err != nil {
			return fmt.Errorf("broadcast %s: %w", name, err)
		}
		if err := group.Broadcast(ctx, device.Buffer{F64: v}, 0); err != nil {
			return fmt.Errorf("broadcast %s: %w", name, err)
		}
		if group.Rank() == 0 {
			continue
		}
		if err := exe.Set(name, v); err != nil {
			return fmt.Errorf("broadcast %s: %w", name, err)
		}
	}
	return nil
}

// AllReduceFloat64s adds v over all ranks, in place: counts of a metric, sums
// of a loss.
func AllReduceFloat64s(ctx context.Context, group collective.Group, v []float64) error {
	if len(v) == 0 {
		return group.Barrier(ctx) // a nil slice would not say its precision
	}
	return group.AllReduce(ctx, device.Buffer{F64: v})
}
