package bench

import (
	"context"
	"fmt"
	"io"
	"slices"

	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/train"
)

// recordingTargetRatio is the required speed with recording, relative to the speed without: less
// than 1 % is lost.
const recordingTargetRatio = 0.99

// OverheadOptions configures MeasureOverhead.
type OverheadOptions struct {
	Config  string // config of lockstep train; empty: unet2d-cells
	Workers int
	Repeats int // starts of the processes
	Epochs  int // epochs with and without recording after each start
	Output  io.Writer
}

// Validate returns an error for the first invalid option.
func (o OverheadOptions) Validate() error {
	if o.Workers < 1 || o.Repeats < 1 || o.Epochs < 1 {
		return fmt.Errorf("bench overhead: got %d workers, %d repeats and %d epochs, want at least 1", o.Workers, o.Repeats, o.Epochs)
	}
	return nil
}

// overheadCases returns the changes to the config with which recording is measured:
// none, and as the worst case a tiny network, whose steps take about 1 ms.
func overheadCases() [][]string {
	return [][]string{nil, {"model.base=4", "model.depth=1", "data.height=32", "data.width=32", "data.count=3208"}}
}

// MeasureOverhead measures what recording costs. Trainings that record everything write their run folder
// (the times of each step, the events for TensorBoard, the load of the machine, and what the workers use each
// second) and keep a record of their collectives. They are compared with trainings that record nothing, and
// with trainings that leave out only what the workers use, which is the cost of the monitor. The clock reads of the engine and of the strategy, and the
// counters of sent bytes, are in both.
//
// Each repeat starts all trainings, and its value is the median of their epochs, so that the
// interval includes differences between processes.
func MeasureOverhead(ctx context.Context, o OverheadOptions) ([]Record, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	config := o.Config
	if config == "" {
		config = "unet2d-cells"
	}
	var records []Record
	for _, set := range overheadCases() {
		c, err := train.Worker{Config: config, Set: set}.Resolve()
		if err != nil {
			return nil, err
		}
		all := []training{
			{config: config, set: set, workers: o.Workers},
			{config: config, set: set, workers: o.Workers, unrecorded: true},
			{config: config, set: set, workers: o.Workers, unmonitored: true},
		}
		rates, err := alternation{repeats: o.Repeats * o.Epochs, perStart: o.Epochs, epochs: 1}.measure(ctx, all, o.Output)
		if err != nil {
			return nil, fmt.Errorf("bench overhead: %w", comparison.ContextCause(ctx, err))
		}
		with := mediansOfStarts(rates[0], o.Epochs)
		milliseconds := 1e3 * float64(o.Workers*c.Batch) / comparison.Median(mediansOfStarts(rates[1], o.Epochs))
		for i, part := range []string{"recording", "monitor"} {
			records = append(records, comparison.Compare(Record{
				Name: fmt.Sprintf("%s, steps of %.2g ms, %s", part, milliseconds, english.Count(o.Workers, "worker")),
				Unit: "samples/s", Peer: "without", Target: recordingTargetRatio,
				Machine: comparison.DescribeMachine(), Commit: comparison.FindCommit(ctx),
			}, with, mediansOfStarts(rates[1+i], o.Epochs)))
		}
	}
	return records, nil
}

// mediansOfStarts returns the median of each n values that follow each other.
func mediansOfStarts(values []float64, n int) []float64 {
	var medians []float64
	for v := range slices.Chunk(values, n) {
		medians = append(medians, comparison.Median(v))
	}
	return medians
}
