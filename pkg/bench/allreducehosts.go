package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/collective/hosts"
	"lockstep/pkg/collective/schedule"
	"lockstep/pkg/runs"
)

// HostOptions configures MeasureHosts.
type HostOptions struct {
	Hosts      int // simulated hosts
	PerHost    int // ranks per host
	Link       hosts.Link
	Sizes      []int    // sizes of the float32 buffers in bytes
	Algorithms []string // names of package schedule; nil: all that differ for these hosts
	Repeats    int
	Output     io.Writer
}

// HostSizes returns default sizes for HostOptions, in bytes: 1 kB to 8 MB.
func HostSizes() []int {
	return []int{1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 8_000_000}
}

// The measurement of the latency and the bandwidth of a link.
const (
	latencyBytes   = 4
	bandwidthBytes = 8_000_000
	pingRepeats    = 5
)

// Each repeat consists of as many all-reduces as are predicted to take hostRepeatSeconds, within
// the limits.
const (
	hostRepeatSeconds = 0.1
	maxHostReduces    = 100
)

// Validate returns an error for the first invalid option.
func (o HostOptions) Validate() error {
	if o.Hosts < 2 || o.PerHost < 1 {
		return fmt.Errorf("bench allreduce: got %d hosts with %d ranks each, want at least 2 hosts and 1 rank", o.Hosts, o.PerHost)
	}
	if err := o.Link.Validate(); err != nil {
		return fmt.Errorf("bench allreduce: %w", err)
	}
	if err := checkNames("bench allreduce", "algorithm", o.Algorithms, schedule.Names()); err != nil {
		return err
	}
	own := AllReduceOptions{Workers: []int{o.Hosts * o.PerHost}, Sizes: o.Sizes, Transports: []string{transportTCP}, Repeats: o.Repeats}
	return own.Validate()
}

// algorithms returns the algorithms to measure.
func (o HostOptions) algorithms() []string {
	if len(o.Algorithms) > 0 {
		return o.Algorithms
	}
	return slices.DeleteFunc(schedule.Names(), func(name string) bool { return name == schedule.Hierarchical && o.PerHost == 1 })
}

// MeasureHosts measures all-reduces by each algorithm between simulated hosts on this machine,
// and predicts their times. The prediction uses only the schedule, and the latency and the
// bandwidth of messages between two ranks. The error wraps hosts.ErrNotPermitted if this user
// cannot create hosts.
func MeasureHosts(ctx context.Context, o HostOptions) (_ *runs.AllReduceTimes, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	network, err := hosts.New(ctx, o.Hosts, o.Link)
	if err != nil {
		return nil, fmt.Errorf("bench allreduce: %w", err)
	}
	defer func() {
		if cerr := network.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("bench allreduce: remove hosts: %w", cerr)
		}
	}()
	result := &runs.AllReduceTimes{
		Machine: comparison.DescribeMachine(), Commit: comparison.FindCommit(ctx),
		Hosts: o.Hosts, PerHost: o.PerHost, Link: o.Link.String(),
	}
	if err := o.measure(ctx, network, result); err != nil {
		return nil, fmt.Errorf("bench allreduce between hosts: %w", comparison.ContextCause(ctx, err))
	}
	return result, nil
}

// measure starts the workers of each algorithm and adds their rows to result.
func (o HostOptions) measure(ctx context.Context, network *hosts.Network, result *runs.AllReduceTimes) error {
	command, err := comparison.WorkerCommand(ctx)
	if err != nil {
		return err
	}
	var sides []hostSide
	defer func() {
		for _, s := range sides {
			s.Close()
		}
	}()
	for _, name := range o.algorithms() {
		s, err := comparison.Start(ctx, comparison.Program{
			Argv: append(slices.Clone(command), "--task", taskAllReduce), Workers: o.Hosts * o.PerHost, PerNode: o.PerHost, Hosts: network,
			Env: []string{"LOCKSTEP_COLLECTIVE=" + transportTCP, "LOCKSTEP_ALGORITHM=" + name},
		})
		if err != nil {
			return err
		}
		sides = append(sides, hostSide{s, name})
	}
	if result.Between, err = measureLink(sides[0].Side, o.PerHost); err != nil {
		return err
	}
	if o.PerHost > 1 {
		if result.Within, err = measureLink(sides[0].Side, 1); err != nil {
			return err
		}
	}
	for _, size := range o.Sizes {
		rows, err := o.measureSize(sides, size, result)
		if err != nil {
			return err
		}
		result.Rows = append(result.Rows, rows...)
		for _, r := range rows {
			comparison.Logf(o.Output, "%s, %s: %.4g ms, predicted %.4g ms", r.Algorithm, formatBytes(size), r.Seconds*1e3, r.ModelSeconds*1e3)
		}
	}
	return nil
}

// hostSide is the workers that use one algorithm.
type hostSide struct {
	*comparison.Side
	algorithm string
}

// measureLink measures messages between rank 0 and another rank: half of the median time of a
// round trip. The latency is the time of a message of one number.
func measureLink(s *comparison.Side, peer int) (runs.LinkSpeed, error) {
	oneWay := func(bytes, count int) (float64, error) {
		var seconds []float64
		for i := range 1 + pingRepeats { // the first one is a warm-up
			answers, err := s.Ask(fmt.Sprintf("%s %d %d %d", comparison.RequestPing, peer, bytes, count))
			if err != nil {
				return 0, err
			}
			if i > 0 {
				seconds = append(seconds, answers[0].Seconds/float64(2*count))
			}
		}
		return comparison.Median(seconds), nil
	}
	short, err := oneWay(latencyBytes, 100)
	if err != nil {
		return runs.LinkSpeed{}, err
	}
	long, err := oneWay(bandwidthBytes, 1)
	if err != nil {
		return runs.LinkSpeed{}, err
	}
	if !(short > 0 && long > short) {
		return runs.LinkSpeed{}, fmt.Errorf("measure link to rank %d: %d bytes took %g s, and %d bytes %g s", peer, latencyBytes, short, bandwidthBytes, long)
	}
	return runs.LinkSpeed{LatencySeconds: short, BytesPerSecond: (bandwidthBytes - latencyBytes) / (long - short)}, nil
}

// measureSize measures one size by all algorithms in turns. It checks the sums before and after.
func (o HostOptions) measureSize(sides []hostSide, size int, result *runs.AllReduceTimes) ([]runs.AllReduceTime, error) {
	rows := make([]runs.AllReduceTime, len(sides))
	check := func() error {
		for i, s := range sides {
			wrong, err := s.CheckAllReduce(size)
			if err != nil {
				return err
			}
			rows[i].Wrong += wrong
		}
		return nil
	}
	counts, seconds := make([]int, len(sides)), make([][]float64, len(sides))
	for i, s := range sides {
		plan, err := schedule.New(s.algorithm, schedule.Topology{Ranks: o.Hosts * o.PerHost, PerNode: o.PerHost}, schedule.Pieces(size))
		if err != nil {
			return nil, err
		}
		cost := plan.Cost(size, o.PerHost, schedule.Link(result.Between), schedule.Link(result.Within))
		rows[i] = runs.AllReduceTime{Algorithm: s.algorithm, Bytes: size, Repeats: o.Repeats, Steps: cost.Steps, CriticalBytes: cost.Bytes, ModelSeconds: cost.Seconds}
		counts[i] = min(max(int(hostRepeatSeconds/cost.Seconds), 1), maxHostReduces)
	}
	if err := check(); err != nil {
		return nil, err
	}
	for range o.Repeats {
		for i, s := range sides {
			total, err := s.TimeRequest(fmt.Sprintf("%s %d %d", comparison.RequestAllReduce, size, counts[i]))
			if err != nil {
				return nil, err
			}
			seconds[i] = append(seconds[i], total/float64(counts[i]))
		}
	}
	if err := check(); err != nil {
		return nil, err
	}
	for i := range rows {
		rows[i].Seconds, rows[i].LowSeconds, rows[i].HighSeconds = comparison.Median(seconds[i]), slices.Min(seconds[i]), slices.Max(seconds[i])
	}
	return rows, nil
}

// WriteHosts writes the result of MeasureHosts as a table, or as JSON. It returns an error if a
// sum was wrong.
func WriteHosts(w io.Writer, a *runs.AllReduceTimes, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		if err := e.Encode(a); err != nil {
			return err
		}
	} else if err := writeHostTable(w, a); err != nil {
		return err
	}
	for _, r := range a.Rows {
		if r.Wrong > 0 {
			return fmt.Errorf("bench allreduce: %d wrong elements in all-reduces of %s by %s between hosts", r.Wrong, formatBytes(r.Bytes), r.Algorithm)
		}
	}
	return nil
}

// writeHostTable writes the table of WriteHosts.
func writeHostTable(w io.Writer, a *runs.AllReduceTimes) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "size\tsteps\tcritical bytes\tmodel\tmeasured\tlowest … highest\tmeasured/model\t#wrong\t  algorithm")
	fmt.Fprintln(t, "(B)\t\t(B)\t(ms)\t(ms)\t(ms)\t\t\t")
	for _, r := range a.Rows {
		fmt.Fprintf(t, "%d\t%d\t%.0f\t%.3f\t%.3f\t%.3f … %.3f\t%.2f\t%d\t  %s\n", r.Bytes, r.Steps, r.CriticalBytes, r.ModelSeconds*1e3, r.Seconds*1e3,
			r.LowSeconds*1e3, r.HighSeconds*1e3, r.Seconds/r.ModelSeconds, r.Wrong, r.Algorithm)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "%d hosts, ranks per host: %d, link of each host: %s\n", a.Hosts, a.PerHost, a.Link)
	fmt.Fprintf(w, "between hosts: latency %.1f µs, bandwidth %.2f MB/s\n", a.Between.LatencySeconds*1e6, a.Between.BytesPerSecond/1e6)
	if a.PerHost > 1 {
		fmt.Fprintf(w, "within a host: latency %.1f µs, bandwidth %.2f MB/s\n", a.Within.LatencySeconds*1e6, a.Within.BytesPerSecond/1e6)
	}
	_, err := fmt.Fprintf(w, "machine: %s; commit %s\n", a.Machine, a.Commit)
	return err
}
