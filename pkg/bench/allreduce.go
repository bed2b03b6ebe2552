package bench

import (
	"context"
	"fmt"
	"io"

	"lockstep/pkg/bench/internal/comparison"
)

// AllReduceOptions configures MeasureAllReduce.
type AllReduceOptions struct {
	Workers int   // processes, each on a separate core
	Sizes   []int // sizes of the float32 buffers in bytes
	Repeats int
	Peer    PeerOptions
	Output  io.Writer
}

// Each repeat consists of several all-reduces: as many as are needed to reduce about
// repeatBytes bytes, within the limits. Small buffers then take long enough to be timed, and
// large ones do not take minutes.
const (
	repeatBytes = 100_000_000
	minReduces  = 2
	maxReduces  = 500
)

// DefaultBufferSizes returns buffer sizes in bytes, from sizes at which latency dominates to
// sizes at which bandwidth dominates.
func DefaultBufferSizes() []int { return []int{1_000, 100_000, 1_000_000, 8_000_000, 100_000_000} }

// Validate returns an error for the first invalid option.
func (o AllReduceOptions) Validate() error {
	if o.Workers < 2 || o.Repeats < 1 {
		return fmt.Errorf("bench allreduce: got %d workers and %d repeats, want at least 2 workers and 1 repeat", o.Workers, o.Repeats)
	}
	if len(o.Sizes) == 0 {
		return fmt.Errorf("bench allreduce: no sizes were given: use sizes in bytes, for example 1000,8000000")
	}
	for _, n := range o.Sizes {
		if n < 4 || n%4 != 0 {
			return fmt.Errorf("bench allreduce: invalid size %d: use a positive multiple of 4 bytes, the size of a float32", n)
		}
	}
	return nil
}

// MeasureAllReduce compares the speed of all-reduces by Lockstep and by PyTorch's backend
// gloo, in bytes of the buffer per second. The measurements alternate.
func MeasureAllReduce(ctx context.Context, o AllReduceOptions) ([]Record, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	records, err := o.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("bench allreduce: %w", comparison.ContextCause(ctx, err))
	}
	return records, nil
}

func (o AllReduceOptions) run(ctx context.Context) ([]Record, error) {
	torch, err := o.Peer.TorchCommand(ctx, torchScript)
	if err != nil {
		return nil, err
	}
	command, err := comparison.WorkerCommand(ctx)
	if err != nil {
		return nil, err
	}
	task := []string{"--task", taskAllReduce, "--threads", "1"}
	peer, err := comparison.StartPeer(ctx, comparison.Program{Argv: append(torch, task...), Workers: o.Workers})
	if err != nil {
		return nil, err
	}
	defer peer.Close()
	ours, err := comparison.Start(ctx, comparison.Program{Argv: append(command, task...), Workers: o.Workers})
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	var records []Record
	for _, size := range o.Sizes {
		count := min(max(repeatBytes/size, minReduces), maxReduces)
		request := fmt.Sprintf("%s %d %d", comparison.RequestAllReduce, size, count)
		if _, _, err := measureAlternately(ours, peer, request, 1); err != nil { // warm-up, not counted
			return nil, err
		}
		a, p, err := measureAlternately(ours, peer, request, o.Repeats)
		if err != nil {
			return nil, err
		}
		r := Record{
			Name: fmt.Sprintf("all-reduce of %s, %d workers", formatBytes(size), o.Workers), Unit: "GB/s",
			Peer: peer.About.Name, Machine: comparison.DescribeMachine(), Commit: comparison.FindCommit(ctx),
		}
		gigabytes := float64(size) * float64(count) / 1e9
		r = comparison.Compare(r, comparison.PerSecond(gigabytes, a), comparison.PerSecond(gigabytes, p))
		comparison.Logf(o.Output, "%s: %.3f GB/s; %s: %.3f GB/s", r.Name, r.Value, r.Peer, r.PeerValue)
		records = append(records, r)
	}
	return records, nil
}

// formatBytes formats a number of bytes in MB or kB.
func formatBytes(n int) string {
	switch {
	case n >= 1_000_000:
		return fmt.Sprintf("%.4g MB", float64(n)/1e6)
	case n >= 1_000:
		return fmt.Sprintf("%.4g kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d bytes", n)
}
