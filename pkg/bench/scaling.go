package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/launch"
	"lockstep/pkg/scaling"
)

// weakScalingTargetSpeedup is the required speed-up of 2 workers over 1 on two idle cores.
const weakScalingTargetSpeedup = 1.9

// ScalingOptions configures MeasureScaling.
type ScalingOptions struct {
	Config  string // config of lockstep train; empty: unet2d-cells
	Workers []int  // worker counts; the first is the baseline
	Repeats int    // runs of each worker count, interleaved
	Epochs  int    // epochs of each run, of which the first is not counted; 0: 4
	Threads int    // per worker; 0: 1
	Output  io.Writer
}

// MeasureScaling measures weak scaling: the throughput of each worker count with a fixed
// batch per worker, relative to the first worker count. The runs are complete trainings
// in separate processes, interleaved so that changes of the machine's speed affect all
// worker counts. Their folders are deleted afterwards.
//
// If the first worker count is one, each other count N is also compared with N
// simultaneous runs of one worker. These exchange nothing and do not wait for each other,
// so their loss of speed is caused by the machine (memory, clock rates, other load).
func MeasureScaling(ctx context.Context, o ScalingOptions) ([]Record, error) {
	if len(o.Workers) < 2 {
		return nil, errors.New("bench scaling: use at least two worker counts, for example 1,2")
	}
	if o.Repeats < 1 {
		return nil, fmt.Errorf("bench scaling: got %d repeats, want at least 1", o.Repeats)
	}
	if o.Config == "" {
		o.Config = "unet2d-cells"
	}
	if o.Epochs == 0 {
		o.Epochs = 4
	}
	if o.Epochs < 2 {
		return nil, fmt.Errorf("bench scaling: got %d epochs, want at least 2, because the first is not counted", o.Epochs)
	}
	logs, err := os.MkdirTemp("", "lockstep-bench-")
	if err != nil {
		return nil, fmt.Errorf("bench scaling: %w", err)
	}
	defer os.RemoveAll(logs)
	throughput, alone := map[int][]float64{}, map[int][]float64{}
	base := o.Workers[0]
	for i := range o.Repeats {
		measured, err := runScalingRepeat(ctx, o, logs, i+1)
		if err != nil {
			return nil, fmt.Errorf("bench scaling, repeat %d: %w", i+1, err)
		}
		for workers, v := range measured {
			throughput[workers] = append(throughput[workers], v)
		}
		for _, n := range o.Workers[1:] {
			if base != 1 {
				continue
			}
			v, err := runSideBySide(ctx, o, logs, i+1, n)
			if err != nil {
				return nil, fmt.Errorf("bench scaling, repeat %d, %d runs side by side: %w", i+1, n, err)
			}
			alone[n] = append(alone[n], v)
		}
	}
	var records []Record
	for _, n := range o.Workers[1:] {
		r := Record{
			Name: fmt.Sprintf("weak scaling %d → %d workers, %s", base, n, o.Config), Unit: "samples/s",
			Peer: english.Count(base, "worker"), Machine: comparison.DescribeMachine(), Commit: comparison.FindCommit(ctx),
		}
		if base == 1 && n == 2 {
			r.Target = weakScalingTargetSpeedup
		}
		records = append(records, comparison.Compare(r, throughput[n], throughput[base]))
		if base == 1 {
			r.Name, r.Target = fmt.Sprintf("%d runs of 1 worker side by side, %s", n, o.Config), 0
			records = append(records, comparison.Compare(r, alone[n], throughput[base]))
		}
	}
	return records, nil
}

// runSideBySide returns the total throughput of n simultaneous runs of one worker.
func runSideBySide(ctx context.Context, o ScalingOptions, logs string, repeat, n int) (float64, error) {
	o.Workers, o.Output = []int{1}, nil
	sums, errs := make([]float64, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			v, err := runScalingRepeat(ctx, o, filepath.Join(logs, fmt.Sprintf("beside-%d-%d", n, i)), repeat)
			sums[i], errs[i] = v[1], err
		})
	}
	all.Wait()
	sum := 0.0
	for _, v := range sums {
		sum += v
	}
	return sum, errors.Join(errs...)
}

// runScalingRepeat runs each worker count once. It returns the throughputs in samples per
// second by worker count.
func runScalingRepeat(ctx context.Context, o ScalingOptions, logs string, repeat int) (map[int]float64, error) {
	job, err := launch.Local(ctx, launch.Sweep{
		Config: o.Config, Workers: o.Workers, Seeds: []int64{int64(repeat)}, Epochs: o.Epochs, Threads: o.Threads,
		Logs: logs, Study: fmt.Sprintf("repeat-%d", repeat), Output: o.Output, Now: true,
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
	v := map[int]float64{}
	for _, p := range study.Points {
		v[p.Workers] = p.Throughput.Value
	}
	return v, nil
}
