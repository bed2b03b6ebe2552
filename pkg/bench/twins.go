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

	"lockstep/pkg/bench/internal/beside"
	"lockstep/pkg/launch"
	"lockstep/pkg/scaling"
	"lockstep/pkg/train"
)

// TwinOptions configures TwinRuns.
type TwinOptions struct {
	Configs []string // configs of lockstep train; empty: every shipped config whose name ends in -laptop
	Workers []int    // worker counts that are compared with one worker
	Seeds   []int64  // seeds of the runs of each worker count
	Set     []string // key=value, changed in each config
	Output  io.Writer
}

// Validate returns an error for the first invalid option.
func (o TwinOptions) Validate() error {
	switch {
	case len(o.Workers) == 0 || slices.Min(o.Workers) < 2:
		return fmt.Errorf("bench twins: workers are %v: name numbers above 1, which are compared with one worker", o.Workers)
	case len(o.Seeds) < 3:
		return fmt.Errorf("bench twins: %d seeds: use at least 3, from which one worker's interval is estimated", len(o.Seeds))
	}
	return nil
}

// Twins returns the names of the shipped configs for a laptop.
func Twins() []string {
	return slices.DeleteFunc(train.Names(), func(n string) bool { return !strings.HasSuffix(n, "-laptop") })
}

// TwinRuns trains each config with one worker and with more, to its end, with several
// seeds, and compares the measure of quality (IoU, accuracy on held-out images, else the
// held-out loss) with that of one worker. It must stay within one worker's interval over
// the seeds: the courses teach that quality does not depend on the number of workers.
func TwinRuns(ctx context.Context, o TwinOptions) ([]Record, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if len(o.Configs) == 0 {
		o.Configs = Twins()
	}
	logs, err := os.MkdirTemp("", "lockstep-bench-")
	if err != nil {
		return nil, fmt.Errorf("bench twins: %w", err)
	}
	defer os.RemoveAll(logs)
	var records []Record
	for _, config := range o.Configs {
		r, err := twinRecords(ctx, o, config, logs)
		if err != nil {
			return nil, fmt.Errorf("bench twins, %s: %w", config, beside.Stopped(ctx, err))
		}
		records = append(records, r...)
	}
	return records, nil
}

// twinRecords trains one config with every worker count and seed.
func twinRecords(ctx context.Context, o TwinOptions, config, logs string) ([]Record, error) {
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
	return qualityRecords(study.Quality(), Record{Name: config, Machine: beside.Machine(), Commit: beside.Commit(ctx)})
}

// qualityRecords compares each worker count with the interval of one worker.
func qualityRecords(q *scaling.Quality, r Record) ([]Record, error) {
	span, higher := qualityOf(q.Measure)
	if span == nil || len(q.Rows) == 0 || q.Rows[0].Workers != 1 {
		return nil, errors.New("the runs have no IoU, accuracy or held-out loss of one worker")
	}
	one := span(q.Rows[0])
	config := r.Name
	r.Unit, r.Peer, r.PeerValue, r.Within = q.Measure, "1 worker", one.Value, &[2]float64{one.Low, one.High}
	var records []Record
	for _, row := range q.Rows[1:] {
		v := span(row)
		r.Name, r.Value, r.Repeats = fmt.Sprintf("%s, %d workers", config, row.Workers), v.Value, row.Runs
		ratio := func(x float64) float64 {
			if higher {
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

// qualityOf returns the values of a measure, and whether higher ones are better.
func qualityOf(measure string) (span func(scaling.QualityRow) scaling.Estimate, higher bool) {
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
