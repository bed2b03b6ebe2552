package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/english"
)

// Target ratios of Lockstep to PyTorch at DefaultShape; see Shape.targetRatios.
const (
	plainGoTarget = 0.1     // plain Go kernels, for processors without assembly, on one thread
	memoryTarget  = 1 / 0.6 // at most 0.6 times PyTorch's
)

// EngineOptions configures MeasureEngine.
type EngineOptions struct {
	Shape   Shape
	Threads []int // numbers of threads of one worker; each is measured separately
	Workers int   // number of processes that exchange gradients, each with one thread; 0: not measured
	Repeats int   // measured steps of each side, alternating
	// PlainRepeats is the number of measured steps of the plain Go kernels on one thread, which are
	// many times slower. 0 skips this measurement.
	PlainRepeats int
	// Precision is "fp32" or "bf16"; "" means "fp32". In bf16, PyTorch uses autocast, and the plain
	// Go kernels are not measured, because they would emulate it.
	Precision string
	Peer      PeerOptions
	Output    io.Writer // progress messages; nil: none
}

// Validate returns an error for the first invalid option.
func (o EngineOptions) Validate() error {
	for _, t := range o.Threads {
		if t < 1 {
			return fmt.Errorf("bench engine: got %d threads, want at least 1", t)
		}
	}
	switch {
	case o.Workers < 0 || o.Workers == 1:
		return fmt.Errorf("bench engine: got %d workers, want at least 2, or 0 to skip this measurement", o.Workers)
	case len(o.Threads) == 0 && o.Workers == 0:
		return errors.New("bench engine: neither threads nor workers were given: use numbers of threads, for example 1,2, or a number of workers")
	case o.Repeats < 1 || o.PlainRepeats < 0:
		return fmt.Errorf("bench engine: got %d repeats, and %d repeats of the plain Go kernels; want at least 1, and at least 0 (0 skips the plain kernels)", o.Repeats, o.PlainRepeats)
	}
	if err := o.engineOptions().Validate(); err != nil {
		return fmt.Errorf("bench engine: %w", err)
	}
	return o.Shape.validate()
}

func (o EngineOptions) engineOptions() engine.Options {
	e := engine.DefaultOptions()
	e.Precision = cmp.Or(o.Precision, e.Precision)
	return e
}

func (o EngineOptions) isFP32() bool {
	return o.engineOptions().Precision == engine.DefaultOptions().Precision
}

type workerSetting struct{ workers, threads int }

func (s workerSetting) String() string {
	threads := english.FormatCount(s.threads, "thread")
	if s.workers == 1 {
		return threads
	}
	return fmt.Sprintf("%d workers × %s", s.workers, threads)
}

// planCPUs returns the CPUs to which lockstep launch would bind the workers, or nil for a single worker.
func (s workerSetting) planCPUs() ([][]int, error) {
	if s.workers == 1 {
		return nil, nil
	}
	return planCPUs(s.workers)
}

// MeasureEngine measures training steps (forward, backward, Adam; each on new images) of Lockstep and of
// PyTorch, alternating, in separate processes. The first step is not counted. PyTorch is the fastest of the
// installed versions, in its faster memory format, compiled if that is faster. If PyTorch is not installed,
// the error wraps ErrPeerMissing.
func MeasureEngine(ctx context.Context, o EngineOptions) ([]Record, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	torch, err := o.Peer.TorchCommands(ctx, torchScript)
	if err != nil {
		return nil, fmt.Errorf("bench engine: %w", err)
	}
	ours, err := comparison.WorkerCommand(ctx)
	if err != nil {
		return nil, fmt.Errorf("bench engine: %w", err)
	}
	b := engineBench{EngineOptions: o, torch: torch, ours: ours, record: Record{Machine: comparison.DescribeMachine(), Commit: comparison.FindCommit(ctx)}}
	var settings []workerSetting
	for _, t := range o.Threads {
		settings = append(settings, workerSetting{1, t})
	}
	if o.Workers > 0 {
		settings = append(settings, workerSetting{o.Workers, 1})
	}
	var records []Record
	for _, s := range settings {
		r, err := b.compareSetting(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("bench engine, %s: %w", s, comparison.ContextCause(ctx, err))
		}
		records = append(records, r...)
	}
	return records, nil
}

// engineBench contains the options of MeasureEngine and the commands of both sides.
type engineBench struct {
	EngineOptions
	torch  [][]string // by version
	ours   []string
	record Record // fields that all records share
}

// recordName formats the name of a record for setting s, and adds the network and the precision
// unless they are the defaults.
func (b engineBench) recordName(format string, s workerSetting) string {
	name := fmt.Sprintf(format, s)
	if b.Shape.Model != "" && b.Shape.Model != modelUNet2D {
		name = b.Shape.Model + " " + name
	}
	if !b.isFP32() {
		name += ", " + b.Precision
	}
	return name
}

func (b engineBench) logf(format string, a ...any) { comparison.Logf(b.Output, format, a...) }

// compareSetting compares Lockstep with PyTorch in setting s. It returns records of the throughput and the
// peak memory. If requested and s has one thread, it also returns the throughput of the plain Go kernels.
func (b engineBench) compareSetting(ctx context.Context, s workerSetting) ([]Record, error) {
	cpus, err := s.planCPUs()
	if err != nil {
		return nil, err
	}
	peer, err := startFastestTorch(ctx, b.torch, b.Shape, s, b.engineOptions().Precision, b.logf)
	if err != nil {
		return nil, err
	}
	defer peer.Close()
	ours, err := b.startAndCheckLockstep(ctx, s, cpus, peer)
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	throughput, err := b.compareThroughput(ours, peer, s, b.Repeats)
	if err != nil {
		return nil, err
	}
	memory := b.record
	memory.Name = b.recordName("peak memory, %s", s)
	if memory, err = comparison.CompareMemory(memory, ours, peer); err != nil {
		return nil, err
	}
	throughput.Name = b.recordName("training, %s", s)
	targets, mostMemory := b.Shape.targetRatios(strings.Contains(ours.About.Name, "avx512"))
	if b.isFP32() {
		throughput.Target, memory.Target = targets[s], mostMemory
	}
	records := []Record{throughput, memory}
	if b.PlainRepeats == 0 || s != (workerSetting{1, 1}) || !b.isFP32() {
		return records, nil
	}
	ours.Close()
	plain, err := b.startAndCheckLockstep(ctx, s, cpus, peer, "LOCKSTEP_CPU=go")
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	slow, err := b.compareThroughput(plain, peer, s, b.PlainRepeats)
	if err != nil {
		return nil, err
	}
	slow.Name = b.recordName("training, %s, plain Go", s)
	if b.Shape == DefaultShape() {
		slow.Target = plainGoTarget
	}
	return append(records, slow), nil
}

// startAndCheckLockstep starts Lockstep and runs the first step. It returns an error if the networks
// or the numbers of threads of Lockstep and PyTorch differ.
func (b engineBench) startAndCheckLockstep(ctx context.Context, s workerSetting, cpus [][]int, peer *comparison.Side, env ...string) (*comparison.Side, error) {
	ours, err := startLockstep(ctx, b.ours, b.Shape, s, cpus, b.engineOptions(), env...)
	if err != nil {
		return nil, err
	}
	if err := comparison.CheckSameWork(ours.About, peer.About, s.threads); err != nil {
		ours.Close()
		return nil, err
	}
	b.logf("%s, %s: ready", ours.About.Name, s)
	return ours, nil
}

func (b engineBench) compareThroughput(ours, peer *comparison.Side, s workerSetting, repeats int) (Record, error) {
	oursSeconds, peerSeconds, err := measureAlternately(ours, peer, comparison.RequestStep, repeats)
	if err != nil {
		return Record{}, err
	}
	b.logf("%s, %s: %.3f s per step; %s: %.3f s per step", ours.About.Name, s, comparison.Median(oursSeconds), peer.About.Name, comparison.Median(peerSeconds))
	r := b.record
	r.Unit, r.Peer = "images/s", peer.About.Name
	images := float64(b.Shape.Batch * s.workers)
	return comparison.CompareRates(r, comparison.PerSecond(images, oursSeconds), comparison.PerSecond(images, peerSeconds)), nil
}

// measureAlternately sends a request repeatedly to Lockstep (ours) and to another program (peer), one at a
// time, and returns the seconds of each repeat.
func measureAlternately(ours, peer *comparison.Side, request string, repeats int) (oursSeconds, peerSeconds []float64, err error) {
	seconds, err := measureInTurns([]*comparison.Side{ours, peer}, request, repeats)
	if err != nil {
		return nil, nil, err
	}
	return seconds[0], seconds[1], nil
}

// measureInTurns sends a request repeatedly to all sides, one at a time. Each repeat reverses the
// order of the sides. It returns the seconds by side and repeat.
func measureInTurns(sides []*comparison.Side, request string, repeats int) ([][]float64, error) {
	seconds := make([][]float64, len(sides))
	for repeat := range repeats {
		for k := range sides {
			if repeat%2 == 1 {
				k = len(sides) - 1 - k
			}
			v, err := sides[k].TimeRequest(request)
			if err != nil {
				return nil, err
			}
			seconds[k] = append(seconds[k], v)
		}
	}
	return seconds, nil
}

// startLockstep starts Lockstep, whose workers are bound to cpus (see planCPUs), and runs the first step,
// which is not counted.
func startLockstep(ctx context.Context, command []string, shape Shape, s workerSetting, cpus [][]int, o engine.Options, env ...string) (*comparison.Side, error) {
	argv := append(append([]string{}, command...), "--task", TaskTrain, "--threads", strconv.Itoa(s.threads),
		"--precision", o.Precision, "--convolution", o.Convolution, "--fuse="+strconv.FormatBool(o.Fuse), "--overlap="+strconv.FormatBool(o.Overlap))
	if s.workers == 1 {
		// With one thread, the Go runtime also has one.
		env = append(env, "GOMAXPROCS="+strconv.Itoa(s.threads))
	}
	ours, err := comparison.Start(ctx, comparison.Program{Argv: append(argv, shape.commonFlags()...), Env: env, Workers: s.workers, CPUs: cpus})
	if err != nil {
		return nil, err
	}
	if _, err := ours.TimeRequest(comparison.RequestStep); err != nil {
		ours.Close()
		return nil, err
	}
	return ours, nil
}
