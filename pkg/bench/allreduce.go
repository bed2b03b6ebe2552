package bench

import (
	"context"
	"fmt"
	"io"

	"lockstep/pkg/bench/internal/beside"
)

// AllReduceOptions configures AllReduceRuns.
type AllReduceOptions struct {
	Workers int   // processes, each on a separate core
	Sizes   []int // sizes of the float32 buffers in bytes
	Repeats int
	Peer    PeerOptions
	Output  io.Writer
}

// Each repeat reduces about this many bytes in a number of sums within these limits, so
// that small buffers take long enough to be timed and large ones do not take
// minutes.
const (
	sumBytes = 100_000_000
	leastSum = 2
	mostSums = 500
)

// DefaultSizes returns sizes from those that latency dominates to those that bandwidth
// dominates.
func DefaultSizes() []int { return []int{1_000, 100_000, 1_000_000, 8_000_000, 100_000_000} }

// Validate returns an error for the first invalid option.
func (o AllReduceOptions) Validate() error {
	if o.Workers < 2 || o.Repeats < 1 {
		return fmt.Errorf("bench allreduce: workers are %d and repeats %d: use at least 2 and 1", o.Workers, o.Repeats)
	}
	if len(o.Sizes) == 0 {
		return fmt.Errorf("bench allreduce: there is nothing to measure: name sizes in bytes, for example 1000,8000000")
	}
	for _, n := range o.Sizes {
		if n < 4 || n%4 != 0 {
			return fmt.Errorf("bench allreduce: size is %d bytes: use a positive multiple of 4, the size of a float32", n)
		}
	}
	return nil
}

// AllReduceRuns measures sums over all workers by Lockstep and by PyTorch's gloo,
// alternating, in bytes of the buffer per second.
func AllReduceRuns(ctx context.Context, o AllReduceOptions) ([]Record, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	records, err := o.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("bench allreduce: %w", beside.Stopped(ctx, err))
	}
	return records, nil
}

func (o AllReduceOptions) run(ctx context.Context) ([]Record, error) {
	torch, err := o.Peer.Torch(ctx, torchScript)
	if err != nil {
		return nil, err
	}
	command, err := beside.OwnCommand(ctx)
	if err != nil {
		return nil, err
	}
	task := []string{"--task", taskAllReduce, "--threads", "1"}
	peer, err := beside.StartPeer(ctx, beside.Program{Argv: append(torch, task...), Workers: o.Workers})
	if err != nil {
		return nil, err
	}
	defer peer.Close()
	ours, err := beside.Start(ctx, beside.Program{Argv: append(command, task...), Workers: o.Workers})
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	var records []Record
	for _, size := range o.Sizes {
		count := min(max(sumBytes/size, leastSum), mostSums)
		request := fmt.Sprintf("%s %d %d", beside.RequestAllReduce, size, count)
		if _, _, err := alternate(ours, peer, request, 1); err != nil { // warm-up, not counted
			return nil, err
		}
		a, p, err := alternate(ours, peer, request, o.Repeats)
		if err != nil {
			return nil, err
		}
		r := Record{
			Name: fmt.Sprintf("all-reduce of %s, %d workers", bytesText(size), o.Workers), Unit: "GB/s",
			Peer: peer.About.Name, Machine: beside.Machine(), Commit: beside.Commit(ctx),
		}
		gigabytes := float64(size) * float64(count) / 1e9
		r = beside.Compared(r, beside.PerSecond(gigabytes, a), beside.PerSecond(gigabytes, p))
		beside.Say(o.Output, "%s: %.3f GB/s; %s: %.3f GB/s", r.Name, r.Value, r.Peer, r.PeerValue)
		records = append(records, r)
	}
	return records, nil
}

// bytesText formats a size in powers of a thousand.
func bytesText(n int) string {
	switch {
	case n >= 1_000_000:
		return fmt.Sprintf("%.4g MB", float64(n)/1e6)
	case n >= 1_000:
		return fmt.Sprintf("%.4g kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d bytes", n)
}
