package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/collective"
	"lockstep/pkg/collective/schedule"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/nearest"
	"lockstep/pkg/launch"
)

// AllReduceOptions configures MeasureAllReduce.
type AllReduceOptions struct {
	Workers    []int    // numbers of processes; each process needs a core to be fast
	Sizes      []int    // sizes of the float32 buffers in bytes
	Transports []string // of Lockstep, of AllReduceTransports; nil: those that are installed
	Algorithms []string // of Lockstep, of AllReduceAlgorithms; nil: the default of each transport
	Beside     []string // peers, of AllReducePeers; nil: those that are installed
	Repeats    int
	Peer       PeerOptions
	Output     io.Writer
}

// A repeat consists of several all-reduces that together reduce about repeatBytes bytes, but at
// least minReduces and at most maxReduces. That is enough to time small buffers, and takes no
// minutes for large ones.
const (
	repeatBytes = 100_000_000
	minReduces  = 2
	maxReduces  = 500
)

// Programs with which MeasureAllReduce compares Lockstep.
const (
	peerOpenMPI = "openmpi"
	peerGloo    = "gloo"
	peerStream  = "stream" // see tcpStream
)

// AllReducePeers returns the names of the programs that all-reduces are compared with.
func AllReducePeers() []string { return []string{peerOpenMPI, peerGloo, peerStream} }

// AllReduceTransports returns Lockstep's transports between processes of one machine, as values of
// LOCKSTEP_COLLECTIVE.
func AllReduceTransports() []string { return append(ScheduledTransports(), transportMPI) }

// ScheduledTransports returns the transports for the algorithms of package schedule. MPI has its own.
func ScheduledTransports() []string { return []string{transportShared, "unix", transportTCP} }

// AllReduceAlgorithms returns the names of Lockstep's all-reduce algorithms. "direct" needs shared memory.
func AllReduceAlgorithms() []string { return collective.Algorithms() }

type lockstepSide struct{ transport, algorithm string }

func (o AllReduceOptions) lockstepSides() []lockstepSide {
	algorithms := o.Algorithms
	if len(algorithms) == 0 {
		algorithms = []string{""}
	}
	transports := o.Transports
	if transports == nil {
		transports = AllReduceTransports()
	}
	var sides []lockstepSide
	for _, transport := range transports {
		if transport == transportMPI {
			sides = append(sides, lockstepSide{transport, ""})
			continue
		}
		for _, algorithm := range algorithms {
			if algorithm != collective.AlgorithmDirect || transport == transportShared {
				sides = append(sides, lockstepSide{transport, algorithm})
			}
		}
	}
	return sides
}

// Values of LOCKSTEP_COLLECTIVE.
const (
	transportShared = "shm"
	transportTCP    = "tcp"
	transportMPI    = "mpi"
)

// key identifies the side by its transport and, unless it is the transport's default, its algorithm.
func (s lockstepSide) key() string {
	switch {
	case s.algorithm == "", s.transport == transportShared && s.algorithm == collective.AlgorithmDirect,
		s.transport != transportShared && s.algorithm == schedule.Ring:
		return s.transport
	}
	return s.transport + ", " + s.algorithm
}

// BufferSizes returns sizes in bytes from low to high. Each is the previous one times factor, rounded
// down to whole float32 numbers.
func BufferSizes(low, high, factor int) ([]int, error) {
	if low < 4 || high < low || high > maxBufferBytes || factor < 2 {
		return nil, fmt.Errorf("bench allreduce: got sizes from %d to %d bytes by the factor %d, want at least 4 bytes, at most %d, and a factor of at least 2", low, high, factor, maxBufferBytes)
	}
	var sizes []int
	for n := low; n <= high; n *= factor {
		sizes = append(sizes, n/4*4)
	}
	return sizes, nil
}

// maxBufferBytes limits the size of a buffer. Each process of each side allocates one.
const maxBufferBytes = 4_000_000_000

// Validate returns an error for the first invalid option.
func (o AllReduceOptions) Validate() error {
	if len(o.Workers) == 0 || slices.Min(o.Workers) < 2 || o.Repeats < 1 {
		return fmt.Errorf("bench allreduce: got %v workers and %d repeats, want at least 2 workers and 1 repeat", o.Workers, o.Repeats)
	}
	if len(o.Sizes) == 0 {
		return fmt.Errorf("bench allreduce: no sizes were given: use sizes in bytes, for example 1000,8000000")
	}
	for _, n := range o.Sizes {
		if n < 4 || n%4 != 0 || n > maxBufferBytes {
			return fmt.Errorf("bench allreduce: invalid size %d: use a positive multiple of 4 bytes, the size of a float32, up to %d", n, maxBufferBytes)
		}
	}
	if o.Transports != nil && len(o.Transports) == 0 {
		return fmt.Errorf("bench allreduce: no transport was given: use %s", english.JoinOr(AllReduceTransports()))
	}
	if err := checkNames("bench allreduce", "transport", o.Transports, AllReduceTransports()); err != nil {
		return err
	}
	if err := checkNames("bench allreduce", "algorithm", o.Algorithms, AllReduceAlgorithms()); err != nil {
		return err
	}
	if len(o.lockstepSides()) == 0 {
		return fmt.Errorf("bench allreduce: the algorithm %s needs shared memory: add the transport %s, or another algorithm", collective.AlgorithmDirect, transportShared)
	}
	if slices.Contains(o.Beside, peerStream) && !(slices.Equal(o.Workers, []int{2}) && o.measuresTCP()) {
		return fmt.Errorf("bench allreduce: peer %s supports only 2 workers over TCP: use 2 workers, and add the transport %s", peerStream, transportTCP)
	}
	return checkNames("bench allreduce", "peer", o.Beside, AllReducePeers())
}

// checkNames returns an error for the first of names that is not in known. The error begins with
// operation, such as "bench allreduce", and calls the name a what, such as "transport".
func checkNames(operation, what string, names, known []string) error {
	for _, n := range names {
		if !slices.Contains(known, n) {
			return fmt.Errorf("%s: unknown %s %q%s: use %s", operation, what, n, nearest.Hint(n, known), english.JoinOr(known))
		}
	}
	return nil
}

// MeasureAllReduce measures in turns the all-reduces of Lockstep (with each transport and each
// algorithm), of Open MPI and of PyTorch's backend gloo, and two processes that exchange as many
// bytes by TCP. If Open MPI or PyTorch is not installed, it is skipped and named in the result,
// unless o asks for it.
func MeasureAllReduce(ctx context.Context, o AllReduceOptions) (*AllReduces, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	result := &AllReduces{Machine: comparison.DescribeMachine(), Commit: comparison.FindCommit(ctx)}
	for _, ranks := range o.Workers {
		if err := o.measureRankCount(ctx, ranks, result); err != nil {
			return nil, fmt.Errorf("bench allreduce: %d workers: %w", ranks, comparison.ContextCause(ctx, err))
		}
	}
	return result, nil
}

func (o AllReduceOptions) measureRankCount(ctx context.Context, ranks int, result *AllReduces) error {
	command, err := comparison.WorkerCommand(ctx)
	if err != nil {
		return err
	}
	cpus, err := planCPUs(ranks)
	if err != nil {
		return err
	}
	var sides []allReduceSide
	defer func() {
		for _, s := range sides {
			s.Close()
		}
	}()
	for _, own := range o.lockstepSides() {
		s, err := startLockstepSide(ctx, own, command, ranks, cpus)
		if o.Transports == nil && errors.Is(err, ErrPeerMissing) {
			result.noteSkipped(fmt.Sprintf("transport %s: %v", own.transport, err))
			continue
		}
		if err != nil {
			return err
		}
		sides = append(sides, allReduceSide{s, own.key()})
	}
	names := o.Beside
	if names == nil {
		names = AllReducePeers()
		if ranks != 2 || !o.measuresTCP() {
			names = slices.DeleteFunc(names, func(name string) bool { return name == peerStream })
		}
	}
	for _, name := range names {
		s, err := o.startPeer(ctx, name, command, ranks, cpus)
		if o.Beside == nil && errors.Is(err, ErrPeerMissing) {
			result.noteSkipped(fmt.Sprintf("%s: %v", name, err))
			continue
		}
		if err != nil {
			return err
		}
		sides = append(sides, allReduceSide{s, name})
	}
	for _, size := range o.Sizes {
		rows, err := o.measureBufferSize(sides, ranks, size)
		if err != nil {
			return err
		}
		result.addRows(rows)
		for _, r := range rows {
			comparison.Logf(o.Output, "%s, %d ranks, %s: %.2f µs, bus bandwidth %.3f GB/s", r.Side, ranks, formatBytes(size), r.Microseconds, r.BusGBs)
		}
	}
	return nil
}

// allReduceSide is a running side of the comparison.
type allReduceSide struct {
	*comparison.Side
	key string // see lockstepSide.key, or name of the peer
}

func (o AllReduceOptions) measuresTCP() bool {
	return o.Transports == nil || slices.Contains(o.Transports, transportTCP)
}

// planCPUs returns the CPUs to which lockstep launch would bind each rank, or nil if it would bind
// none, for example if there are more ranks than cores. It must be called before other sides start,
// because they may be bound too.
func planCPUs(ranks int) ([][]int, error) {
	b, err := launch.Sweep{}.PlanBinding(ranks)
	if err != nil {
		return nil, err
	}
	return parseCPUs(b)
}

// startLockstepSide starts one of Lockstep's sides, bound to cpus. With the transport MPI, one
// mpirun starts and binds the ranks instead, and passes the requests to rank 0.
func startLockstepSide(ctx context.Context, own lockstepSide, command []string, ranks int, cpus [][]int) (*comparison.Side, error) {
	p := comparison.Program{
		Argv:    append(slices.Clone(command), "--task", taskAllReduce),
		Env:     []string{"LOCKSTEP_COLLECTIVE=" + own.transport, "LOCKSTEP_ALGORITHM=" + own.algorithm},
		Workers: ranks,
		CPUs:    cpus,
	}
	if own.transport == transportMPI {
		argv, err := comparison.OpenMPICommand(ctx, ranks)
		if err != nil {
			return nil, err
		}
		p.Argv, p.Workers, p.CPUs = slices.Concat(argv, p.Argv), 1, nil
	}
	return comparison.Start(ctx, p)
}

// startPeer starts a peer. The ranks of Open MPI are started and bound by one mpirun. The ranks of
// other peers are separate processes; only those of the TCP stream are bound to cpus.
func (o AllReduceOptions) startPeer(ctx context.Context, name string, command []string, ranks int, cpus [][]int) (*comparison.Side, error) {
	if name == peerOpenMPI {
		argv, err := comparison.OpenMPICommand(ctx, ranks)
		if err != nil {
			return nil, err
		}
		argv = slices.Concat(argv, command, []string{"--task", taskOpenMPI})
		return comparison.StartPeer(ctx, comparison.Program{Argv: argv, Workers: 1})
	}
	if name == peerStream {
		return comparison.StartPeer(ctx, comparison.Program{Argv: append(slices.Clone(command), "--task", taskStream), Workers: ranks, CPUs: cpus})
	}
	return o.startFastestGloo(ctx, ranks)
}

// The all-reduces by which the version of gloo is chosen.
const (
	glooTrialBytes = 10_000_000
	glooTrialSums  = 10
)

// startFastestGloo measures an all-reduce of glooTrialBytes with each version of PyTorch, and leaves the fastest
// one running.
func (o AllReduceOptions) startFastestGloo(ctx context.Context, ranks int) (*comparison.Side, error) {
	versions, err := o.Peer.TorchCommands(ctx, torchScript)
	if err != nil {
		return nil, err
	}
	f := fastestPeer{ctx: ctx, workers: ranks, logf: func(format string, a ...any) { comparison.Logf(o.Output, format, a...) }}
	f.request = fmt.Sprintf("%s %d %d", comparison.RequestAllReduce, glooTrialBytes, glooTrialSums)
	f.describe = func(seconds float64) string {
		return fmt.Sprintf("%d ranks: %.2f ms per sum of %s", ranks, 1e3*seconds/glooTrialSums, formatBytes(glooTrialBytes))
	}
	for _, torch := range versions {
		f.try(append(torch, "--task", taskAllReduce, "--threads", "1"))
	}
	return f.finish()
}

// measureBufferSize measures all-reduces of size bytes on all sides in turns. It checks the result
// of each side before and after.
func (o AllReduceOptions) measureBufferSize(sides []allReduceSide, ranks, size int) ([]AllReduceRow, error) {
	wrong := make([]int, len(sides))
	check := func() error {
		for i, s := range sides {
			n, err := s.CheckAllReduce(size)
			if err != nil {
				return err
			}
			wrong[i] += n
		}
		return nil
	}
	if err := check(); err != nil {
		return nil, err
	}
	count := min(max(repeatBytes/size, minReduces), maxReduces)
	request := fmt.Sprintf("%s %d %d", comparison.RequestAllReduce, size, count)
	programs := make([]*comparison.Side, len(sides))
	for i, s := range sides {
		programs[i] = s.Side
	}
	if _, err := measureInTurns(programs, request, 1); err != nil { // warm-up, not counted
		return nil, err
	}
	seconds, err := measureInTurns(programs, request, o.Repeats)
	if err != nil {
		return nil, err
	}
	if err := check(); err != nil {
		return nil, err
	}
	rows := make([]AllReduceRow, len(sides))
	for i, s := range sides {
		rows[i] = newAllReduceRow(s, ranks, size, count, seconds[i], wrong[i])
	}
	return rows, nil
}

func formatBytes(n int) string {
	switch {
	case n >= 1_000_000:
		return fmt.Sprintf("%.4g MB", float64(n)/1e6)
	case n >= 1_000:
		return fmt.Sprintf("%.4g kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d bytes", n)
}
