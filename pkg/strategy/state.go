package strategy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/strategy/internal/shard"
)

// BroadcastState copies all persistent tensors of rank 0 to all ranks: parameters, running
// statistics and the optimizer's slots. They are sent as float64, which represents them exactly.
func BroadcastState(ctx context.Context, exe engine.Executable, group collective.Group) error {
	return BroadcastTensors(ctx, exe, group, exe.Names())
}

// BroadcastTensors copies the named tensors of rank 0 to all ranks, like BroadcastState. All ranks
// must pass the same names in the same order.
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

// AllReduceFloat64s replaces v by its element-wise sum over all ranks. It is meant for small
// vectors, such as the counts of a metric or the sum of a loss. If v is empty, it only waits for
// all ranks.
func AllReduceFloat64s(ctx context.Context, group collective.Group, v []float64) error {
	if len(v) == 0 {
		return group.Barrier(ctx) // a nil slice has no precision
	}
	return group.AllReduce(ctx, device.Buffer{F64: v})
}

// RankPrefix returns the prefix that Strategy.State adds to the names of a rank's tensors. The name
// of the tensor in the rank's executable follows.
func RankPrefix(rank int) string { return fmt.Sprintf("rank%d/", rank) }

// restoreTensors sets the named tensors of exe to their values in saved. It skips names that are
// not in saved.
func restoreTensors(exe engine.Executable, saved map[string][]float64, names []string) error {
	for _, name := range names {
		if v, ok := saved[name]; ok {
			if err := exe.Set(name, v); err != nil {
				return fmt.Errorf("restore %s: %w", name, err)
			}
		}
	}
	return nil
}

// namesWithoutSlots returns the names of the persistent tensors of exe except the optimizer's
// slots. An executable that never applies an update needs no memory for slots.
func namesWithoutSlots(exe engine.Executable) []string {
	return slices.DeleteFunc(slices.Clone(exe.Names()), func(name string) bool { return strings.HasPrefix(name, shard.OptimizerSlotPrefix) })
}
