package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/launch"
	"lockstep/pkg/scaling"
	"lockstep/pkg/train"
)

// TwinOptions configures MeasureTwins.
type TwinOptions struct {
	Configs []string // configs of lockstep train; empty: every shipped config whose name ends in -laptop
	Workers []int    // worker counts that are compared with one worker
	Seeds   []int64  // seeds of the runs of each worker count
	Set     []string // settings key=value that are changed in each config
	Output  io.Writer
}

// Validate returns an error for the first invalid option.
func (o TwinOptions) Validate() error {
	switch {
	case len(o.Workers) == 0 || slices.Min(o.Workers) < 2:
		return fmt.Errorf("bench twins: got worker counts %v, want counts above 1 to compare with one worker", o.Workers)
	case len(o.Seeds) < 3:
		return fmt.Errorf("bench twins: got %d seeds, want at least 3 to estimate the confidence interval of one worker", len(o.Seeds))
	}
	return nil
}

// laptopConfigs returns the names of the shipped configs that are small enough for a
// laptop.
func laptopConfigs() []string {
	return slices.DeleteFunc(train.Names(), func(n string) bool { return !strings.HasSuffix(n, "-laptop") })
}

// MeasureTwins trains each config to its end with one worker and with more, each with
// several seeds. It compares the measure of quality (IoU, accuracy on held-out images, or
// else the held-out loss) of several workers with the confidence interval of one worker,
// which is computed from the runs with different seeds. The courses teach that quality
// does not depend on the number of workers.
func MeasureTwins(ctx context.Context, o TwinOptions) ([]Record, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if len(o.Configs) == 0 {
		o.Configs = laptopConfigs()
	}
	logs, err := os.MkdirTemp("", "lockstep-bench-")
	if err != nil {
		return nil, fmt.Errorf("bench twins: %w", err)
	}
	defer os.RemoveAll(logs)
	var records []Record
	for _, config := range o.Configs {
		r, err := trainAndCompare(ctx, o, config, logs)
		if err != nil {
			return nil, fmt.Errorf("bench twins: config %s: %w", config, comparison.ContextCause(ctx, err))
		}
		records = append(records, r...)
	}
	return records, nil
}

// trainAndCompare trains one config with every worker count and seed, and compares the
// quality.
func trainAndCompare(ctx context.Context, o TwinOptions, config, logs string) ([]Record, error) {
	job, err := launch.Local(ctx, launch.Sweep{
		Config: config, Workers: append([]int{1}, o.Workers...), Seeds: o.Seeds, Set: o.Set,
		Oversubscribe: true, Logs: logs, Output: o.Output, Now: true, // simultaneous runs are allowed, because no times are compared
	})
	if err != nil {
		return nil, err
	}
	if err := job.Wait(ctx); err != nil {
		return nil, err
	}
	study, err := scaling.Read(job.Dir())
	if err != nil {
		return nil, err
	}
	return compareQuality(study.Quality(), Record{Name: config, Machine: comparison.DescribeMachine(), Commit: comparison.FindCommit(ctx)})
}

// compareQuality returns one record for each worker count above 1. The record compares the
// quality with the confidence interval of the quality with one worker.
func compareQuality(q *scaling.Quality, r Record) ([]Record, error) {
	get, higherIsBetter := selectMeasure(q.Measure)
	if get == nil || len(q.Rows) == 0 || q.Rows[0].Workers != 1 {
		return nil, errors.New("found no IoU, accuracy or held-out loss of a run with one worker")
	}
	one := get(q.Rows[0])
	config := r.Name
	r.Unit, r.Peer, r.PeerValue, r.Within = q.Measure, "1 worker", one.Value, &[2]float64{one.Low, one.High}
	var records []Record
	for _, row := range q.Rows[1:] {
		v := get(row)
		r.Name, r.Value, r.Repeats = fmt.Sprintf("%s, %d workers", config, row.Workers), v.Value, row.Runs
		ratio := func(x float64) float64 {
			if higherIsBetter {
				return x / one.Value
			}
			return one.Value / x
		}
		r.Ratio = ratio(v.Value)
		r.Spread = [2]float64{math.Min(ratio(v.Min), ratio(v.Max)), math.Max(ratio(v.Min), ratio(v.Max))}
		records = append(records, r)
	}
	return records, nil
}

// selectMeasure returns a function that gets the given measure from a row, and reports
// whether higher values are better. get is nil if the measure is unknown.
func selectMeasure(measure string) (get func(scaling.QualityRow) scaling.Estimate, higherIsBetter bool) {
	switch measure {
	case "iou":
		return func(r scaling.QualityRow) scaling.Estimate { return r.IoU }, true
	case "val_accuracy":
		return func(r scaling.QualityRow) scaling.Estimate { return r.ValAccuracy }, true
	case "test_loss":
		return func(r scaling.QualityRow) scaling.Estimate { return r.TestLoss }, false
	}
	return nil, false
}
