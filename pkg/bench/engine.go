package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"lockstep/pkg/bench/internal/beside"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/english"
)

// Target ratios of Lockstep to PyTorch at DefaultShape; see Shape.targets.
const (
	oneThreadTarget  = 2.2
	twoThreadsTarget = 2.5
	twoWorkersTarget = 2.2
	plainGoTarget    = 0.1     // plain Go, for processors without AVX2, on one thread
	memoryTarget     = 1 / 0.6 // at most 0.6 times PyTorch's
)

// EngineOptions configures EngineRuns.
type EngineOptions struct {
	Shape   Shape
	Threads []int // threads of one worker; each number is measured in turn
	Workers int   // processes with one thread each that exchange gradients; 0: not measured
	Repeats int   // measured steps of each side, alternating
	// PlainRepeats is the number of measured steps for plain Go on one thread, which
	// takes many times as long. 0: not measured.
	PlainRepeats int
	Peer         PeerOptions
	Output       io.Writer // progress messages; nil: none
}

// Validate returns an error for the first invalid option.
func (o EngineOptions) Validate() error {
	for _, t := range o.Threads {
		if t < 1 {
			return fmt.Errorf("bench engine: threads is %d: use at least 1", t)
		}
	}
	switch {
	case o.Workers < 0 || o.Workers == 1:
		return fmt.Errorf("bench engine: workers is %d: use at least 2, or 0 for none", o.Workers)
	case len(o.Threads) == 0 && o.Workers == 0:
		return errors.New("bench engine: there is nothing to measure: name numbers of threads, for example 1,2, or workers")
	case o.Repeats < 1 || o.PlainRepeats < 0:
		return fmt.Errorf("bench engine: repeats are %d, those of plain Go %d: use at least 1 and 0", o.Repeats, o.PlainRepeats)
	}
	return o.Shape.validate()
}

// setting is a number of workers and the number of threads of each.
type setting struct{ workers, threads int }

func (s setting) String() string {
	threads := english.Count(s.threads, "thread")
	if s.workers == 1 {
		return threads
	}
	return fmt.Sprintf("%d workers × %s", s.workers, threads)
}

// EngineRuns measures training steps (forward, backward, Adam, fp32) of Lockstep and of
// PyTorch, alternating, in separate processes. Each step uses new images. The first step
// of each side is not counted. PyTorch uses the faster of its memory formats. If PyTorch
// is not installed on this machine, the error wraps ErrPeerMissing.
func EngineRuns(ctx context.Context, o EngineOptions) ([]Record, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	torch, err := o.Peer.Torch(ctx, torchScript)
	if err != nil {
		return nil, fmt.Errorf("bench engine: %w", err)
	}
	ours, err := beside.OwnCommand(ctx)
	if err != nil {
		return nil, fmt.Errorf("bench engine: %w", err)
	}
	b := engineBench{EngineOptions: o, torch: torch, ours: ours, record: Record{Machine: beside.Machine(), Commit: beside.Commit(ctx)}}
	var settings []setting
	for _, t := range o.Threads {
		settings = append(settings, setting{1, t})
	}
	if o.Workers > 0 {
		settings = append(settings, setting{o.Workers, 1})
	}
	var records []Record
	for _, s := range settings {
		r, err := b.compare(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("bench engine, %s: %w", s, beside.Stopped(ctx, err))
		}
		records = append(records, r...)
	}
	return records, nil
}

type engineBench struct {
	EngineOptions
	torch, ours []string
	record      Record // fields that all records share
}

// name returns a record's name. It includes the network if that is not the default.
func (b engineBench) name(format string, s setting) string {
	name := fmt.Sprintf(format, s)
	if b.Shape.Model != "" && b.Shape.Model != modelUNet2D {
		name = b.Shape.Model + " " + name
	}
	return name
}

func (b engineBench) say(format string, a ...any) { beside.Say(b.Output, format, a...) }

// compare measures one setting: throughput, peak memory, and with one thread also plain
// Go.
func (b engineBench) compare(ctx context.Context, s setting) ([]Record, error) {
	peer, err := fastestTorch(ctx, b.torch, b.Shape, s, b.say)
	if err != nil {
		return nil, err
	}
	defer peer.Close()
	ours, err := b.startOurs(ctx, s, peer)
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	throughput, err := b.throughput(ours, peer, s, b.Repeats)
	if err != nil {
		return nil, err
	}
	memory, err := b.memory(ours, peer, s)
	if err != nil {
		return nil, err
	}
	throughput.Name = b.name("training, %s", s)
	targets, mostMemory := b.Shape.targets()
	throughput.Target, memory.Target = targets[s], mostMemory
	records := []Record{throughput, memory}
	if b.PlainRepeats == 0 || s != (setting{1, 1}) {
		return records, nil
	}
	ours.Close()
	plain, err := b.startOurs(ctx, s, peer, "LOCKSTEP_CPU=go")
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	slow, err := b.throughput(plain, peer, s, b.PlainRepeats)
	if err != nil {
		return nil, err
	}
	slow.Name = b.name("training, %s, plain Go", s)
	if b.Shape == DefaultShape() {
		slow.Target = plainGoTarget
	}
	return append(records, slow), nil
}

// startOurs starts Lockstep's side, checks that it does the same work as the peer, and
// warms it up.
func (b engineBench) startOurs(ctx context.Context, s setting, peer *beside.Side, env ...string) (*beside.Side, error) {
	ours, err := startOurs(ctx, b.ours, b.Shape, s, engine.DefaultOptions(), env...)
	if err != nil {
		return nil, err
	}
	if err := beside.SameWork(ours.About, peer.About, s.threads); err != nil {
		ours.Close()
		return nil, err
	}
	b.say("%s, %s: ready", ours.About.Name, s)
	return ours, nil
}

// throughput measures steps of both sides, alternating.
func (b engineBench) throughput(ours, peer *beside.Side, s setting, repeats int) (Record, error) {
	a, p, err := alternate(ours, peer, beside.RequestStep, repeats)
	if err != nil {
		return Record{}, err
	}
	b.say("%s, %s: %.3f s a step; %s: %.3f s", ours.About.Name, s, beside.Median(a), peer.About.Name, beside.Median(p))
	r := b.record
	r.Unit, r.Peer = "images/s", peer.About.Name
	images := float64(b.Shape.Batch * s.workers)
	return beside.Compared(r, beside.PerSecond(images, a), beside.PerSecond(images, p)), nil
}

func (b engineBench) memory(ours, peer *beside.Side, s setting) (Record, error) {
	a, err := ours.PeakBytes()
	if err != nil {
		return Record{}, err
	}
	p, err := peer.PeakBytes()
	if err != nil {
		return Record{}, err
	}
	r := b.record
	r.Name, r.Unit, r.Peer = b.name("peak memory, %s", s), "MiB", peer.About.Name
	return beside.ComparedCost(r, []float64{a / (1 << 20)}, []float64{p / (1 << 20)}), nil
}

// alternate sends the same request to both sides, one at a time. The sides take turns in
// being first. It returns the seconds that each request took.
func alternate(ours, peer *beside.Side, request string, repeats int) (a, p []float64, err error) {
	for i := range repeats {
		order := []struct {
			side    *beside.Side
			seconds *[]float64
		}{{ours, &a}, {peer, &p}}
		if i%2 == 1 {
			order[0], order[1] = order[1], order[0]
		}
		for _, o := range order {
			v, err := o.side.Seconds(request)
			if err != nil {
				return nil, nil, err
			}
			*o.seconds = append(*o.seconds, v)
		}
	}
	return a, p, nil
}

// startOurs starts Lockstep's side with engine options o, except that s determines the
// threads, and runs the first step, which is not counted.
func startOurs(ctx context.Context, command []string, shape Shape, s setting, o engine.Options, env ...string) (*beside.Side, error) {
	argv := append(append([]string{}, command...), "--task", TaskTrain, "--threads", strconv.Itoa(s.threads),
		"--convolution", o.Convolution, "--fuse="+strconv.FormatBool(o.Fuse), "--overlap="+strconv.FormatBool(o.Overlap))
	if s.workers == 1 {
		// With one thread, the Go runtime also has one. Several workers need one
		// more for the exchange, as their peers have.
		env = append(env, "GOMAXPROCS="+strconv.Itoa(s.threads))
	}
	ours, err := beside.Start(ctx, beside.Program{Argv: append(argv, shape.arguments()...), Env: env, Workers: s.workers})
	if err != nil {
		return nil, err
	}
	if _, err := ours.Seconds(beside.RequestStep); err != nil {
		ours.Close()
		return nil, err
	}
	return ours, nil
}
