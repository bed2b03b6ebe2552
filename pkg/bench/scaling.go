package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/english"
)

// weakScalingTargetSpeedup is the required speed-up of 2 workers over 1 on two idle cores.
const weakScalingTargetSpeedup = 1.9

// ScalingOptions configures MeasureScaling.
type ScalingOptions struct {
	Config  string // config of lockstep train; empty: unet2d-cells
	Workers []int  // worker counts; the first is the baseline
	Repeats int    // measurements of each worker count, interleaved
	Epochs  int    // epochs of each measurement; 0: 1
	Threads int    // per worker; 0: 1
	Output  io.Writer
}

// scalingRepeatsPerStart is the number of repeats after which the processes are restarted.
const scalingRepeatsPerStart = 5

// MeasureScaling measures weak scaling: the throughput of each worker count with a fixed batch per worker,
// relative to the first worker count. It trains as lockstep train does. The processes of all worker counts
// exist at the same time and run for an epoch in turns, so that changes of the machine's speed affect all.
//
// If the first worker count is one, each other count N is also compared with N simultaneous trainings of one
// worker. These exchange nothing and do not wait for each other, so that any loss of speed is caused by the
// machine (memory, clock rates, other load).
func MeasureScaling(ctx context.Context, o ScalingOptions) ([]Record, error) {
	o.Config, o.Epochs = cmp.Or(o.Config, "unet2d-cells"), cmp.Or(o.Epochs, 1)
	switch {
	case len(o.Workers) < 2:
		return nil, errors.New("bench scaling: use at least two worker counts, for example 1,2")
	case slices.Min(o.Workers) < 1:
		return nil, fmt.Errorf("bench scaling: got worker counts %v, want at least 1", o.Workers)
	case o.Repeats < 1 || o.Epochs < 1:
		return nil, fmt.Errorf("bench scaling: got %d repeats of %d epochs, want at least 1", o.Repeats, o.Epochs)
	}
	base := o.Workers[0]
	var all []measuredTraining
	for _, n := range o.Workers {
		all = append(all, measuredTraining{config: o.Config, workers: n, threads: o.Threads})
	}
	if base == 1 {
		for _, n := range o.Workers[1:] {
			all = append(all, measuredTraining{config: o.Config, workers: 1, threads: o.Threads, copies: n})
		}
	}
	rates, err := alternatingMeasurement{repeats: o.Repeats, perStart: scalingRepeatsPerStart, epochs: o.Epochs}.measureThroughputs(ctx, all, o.Output)
	if err != nil {
		return nil, fmt.Errorf("bench scaling: %w", comparison.ContextCause(ctx, err))
	}
	common := Record{Unit: "samples/s", Peer: english.FormatCount(base, "worker"), Machine: comparison.DescribeMachine(), Commit: comparison.FindCommit(ctx)}
	kernels := instructionSetSuffix()
	var records []Record
	for i, n := range o.Workers[1:] {
		r := common
		if r.Name = fmt.Sprintf("weak scaling %d → %d workers, %s%s", base, n, o.Config, kernels); base == 1 && n == 2 {
			r.Target = weakScalingTargetSpeedup
		}
		records = append(records, comparison.CompareRates(r, rates[1+i], rates[0]))
		if base == 1 {
			r = common
			r.Name = fmt.Sprintf("%d runs of 1 worker side by side, %s%s", n, o.Config, kernels)
			records = append(records, comparison.CompareRates(r, rates[len(o.Workers)+i], rates[0]))
		}
	}
	return records, nil
}

// instructionSetSuffix returns a suffix for a row's name that names the vector instruction set of
// workers on the CPU, such as ", avx2". LOCKSTEP_CPU can change that. It returns "" if they use none.
func instructionSetSuffix() string {
	sets, err := engine.InstructionSets("fp32")
	if err != nil || len(sets) == 0 {
		return ""
	}
	return ", " + sets[0]
}
