package cuda

import (
	"errors"
	"fmt"

	"lockstep/pkg/engine"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/optim"
)

// replayKey says what a step does beside forward and backward: whatever changes
// the launches.
type replayKey struct {
	rule       optim.Update    // see ruleOf
	microbatch microbatch      // of an update that takes several batches
	sync       engine.GradSync // one that is recorded; nil for none, or one that is not
	split      bool            // at the buckets, and where workers meet
	// meets says whether workers meet in synchronised batch norms; norms is how, nil on
	// the host.
	syncNorms  bool
	deviceSync engine.DeviceNormSync
	buffers    uint64 // see executable.onWays
	dataset    bool   // the inputs come from the set that lies on the GPU
}

// microbatch is what a step is of an update that takes several batches; the zero part is a
// whole update.
type microbatch struct {
	kind  microbatchKind
	parts int // of the last one: how many there were
}

// exchanged says whether gradients go to the other workers behind it.
func (p microbatch) exchanged() bool { return p.kind == onlyBatch || p.kind == lastBatch }

// microbatchKind is where in an update a step stands.
type microbatchKind uint8

const (
	onlyBatch   microbatchKind = iota
	firstBatch                 // its gradients begin the sums
	middleBatch                // they are added to them
	lastBatch                  // they become the mean of all parts, which is exchanged and applied
)

// replay is a step: sections, one after another, that only the host comes between.
type replay struct {
	sections []*section
	forward  int // sections of the forward pass, where the step is cut
}

// section is a run of commands that is launched at once.
type section struct {
	name   string
	phases []phase
	runs   int
	exec   driver.GraphExec
	// recording is profiler.recordings when exec was made.
	profiled int
	// Behind it, where the step is cut: so many buckets are complete, and workers meet.
	ready    int
	normSync *normSyncCall
	// replayed says whether the last run was the graph's.
	replayed bool
}

// phase is a named part of a section, for the profile.
type phase struct {
	name     string // "forward", "backward", "optimizer"
	commands []command
	after    driver.Event // recorded behind it where the section is not a graph; 0: none
}

// run puts a section in the compute stream. It runs as it is the first time,
// so that everything is loaded, and is then recorded as a graph and launched as
// that.
func (s *section) run(g *gpu, graph bool) error {
	s.runs++
	if !graph || s.runs == 1 || g.profile.tracer != nil {
		s.replayed = false
		for _, p := range s.phases {
			if err := s.runPhase(g, p); err != nil {
				return err
			}
			if p.after != 0 {
				if err := g.driver.EventRecord(p.after, g.compute); err != nil {
					return g.failed(err)
				}
			}
		}
		return nil
	}
	if s.exec != 0 && s.profiled != g.profile.recordings { // a profile must see it being made
		if err := g.driver.GraphExecDestroy(s.exec); err != nil {
			return g.failed(err)
		}
		s.exec = 0
	}
	if s.exec == 0 {
		s.profiled = g.profile.recordings
		if err := s.record(g); err != nil {
			return fmt.Errorf("record %s as a graph (--set engine.graph=false does without): %w", s.name, err)
		}
	}
	s.replayed = true
	return g.failed(g.driver.GraphLaunch(s.exec, g.compute))
}

// runPhase runs the commands of a piece one by one.
func (s *section) runPhase(g *gpu, p phase) error {
	g.stack.NVTX.Push(p.name)
	defer g.stack.NVTX.Pop()
	if g.profile.tracer == nil {
		return g.runAll(p.commands, g.compute)
	}
	for _, c := range p.commands {
		layer, inner := "", c
		if n, ok := c.(*named); ok {
			layer, inner = n.layer, n.command
		}
		var err error
		if b, ok := inner.(interface {
			traced(g *gpu, s driver.Stream) error
		}); ok {
			err = b.traced(g, g.compute)
		} else {
			err = g.traced(c.label(), layer, p.name, g.compute, func() error { return c.run(g, g.compute) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// record captures the commands.
func (s *section) record(g *gpu) error {
	d := g.driver
	if err := d.StreamBeginCapture(g.compute, driver.CaptureThreadLocal); err != nil {
		return g.failed(err)
	}
	var first error
	for _, p := range s.phases {
		if first = g.runAll(p.commands, g.compute); first != nil {
			break
		}
	}
	// Ended in any case: a stream that stays in capture is of no use.
	graph, err := d.StreamEndCapture(g.compute)
	if err := errors.Join(first, g.failed(err)); err != nil {
		return err
	}
	exec, err := d.GraphInstantiate(graph)
	if err := errors.Join(g.failed(err), g.failed(d.GraphDestroy(graph))); err != nil {
		return err
	}
	s.exec = exec
	return g.failed(d.GraphUpload(exec, g.compute))
}

// close destroys what was recorded.
func (p *replay) close(g *gpu) error {
	var errs []error
	for _, s := range p.sections {
		if s.exec != 0 {
			errs = append(errs, g.driver.GraphExecDestroy(s.exec))
			s.exec = 0
		}
	}
	return errors.Join(errs...)
}

// bucketCall hands a bucket to a strategy whose exchange is put in a stream of
// its own, beside backward: it begins when the compute stream is here.
type bucketCall struct {
	sync   engine.GradSync
	index  int
	buffer device.Buffer
	fork   driver.Event
}

func (c *bucketCall) run(g *gpu, s driver.Stream) error {
	if err := c.begin(g, s); err != nil {
		return err
	}
	return c.enqueue(g)
}

// traced is run, with the exchange between two events.
func (c *bucketCall) traced(g *gpu, s driver.Stream) error {
	if err := c.begin(g, s); err != nil {
		return err
	}
	return g.traced(c.label(), "", "exchange", g.exchange, func() error { return c.enqueue(g) })
}

// begin lets the exchange wait for the compute stream.
func (c *bucketCall) begin(g *gpu, s driver.Stream) error {
	if err := g.driver.EventRecord(c.fork, s); err != nil {
		return g.failed(err)
	}
	return g.failed(g.driver.StreamWaitEvent(g.exchange, c.fork))
}

func (c *bucketCall) enqueue(g *gpu) error {
	if err := c.sync.Bucket(c.index, c.buffer, device.Stream{Handle: uintptr(g.exchange)}); err != nil {
		return fmt.Errorf("hand over gradient bucket %d: %w", c.index, err)
	}
	return nil
}

func (c *bucketCall) label() string { return fmt.Sprint("exchange bucket ", c.index) }

// joinCall lets the compute stream wait for the exchange.
type joinCall struct{ event driver.Event }

func (c *joinCall) run(g *gpu, s driver.Stream) error {
	if err := g.driver.EventRecord(c.event, g.exchange); err != nil {
		return g.failed(err)
	}
	return g.failed(g.driver.StreamWaitEvent(s, c.event))
}

func (c *joinCall) label() string { return "wait for the exchange" }
