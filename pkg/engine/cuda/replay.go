package cuda

import (
	"errors"
	"fmt"

	"lockstep/pkg/engine"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/optim"
)

// replayKey describes what a step does besides forward and backward: everything that
// changes its launches.
type replayKey struct {
	rule       optim.Update    // see ruleOf
	microbatch microbatch      // of an update that takes several batches
	sync       engine.GradSync // one that is recorded; nil for none, or one that is not
	split      bool            // at the buckets and the synchronized batch norms, for an exchange on the host
	// syncNorms reports whether batch norms are synchronized: by deviceSync, or on the host
	// if that is nil.
	syncNorms  bool
	deviceSync engine.DeviceNormSync
	buffers    uint64 // see executable.nextBuffers
	dataset    bool   // the inputs come from the data set on the GPU
}

// microbatch says which batch of an update a step computes, where an update accumulates the
// gradients of several. The zero microbatch is an update of one batch.
type microbatch struct {
	kind  microbatchKind
	parts int // number of batches; set for the last one only
}

// exchanged reports whether gradients are exchanged after the batch.
func (p microbatch) exchanged() bool { return p.kind == onlyBatch || p.kind == lastBatch }

// microbatchKind is the position of a batch in its update.
type microbatchKind uint8

const (
	onlyBatch   microbatchKind = iota
	firstBatch                 // its gradients start the sums
	middleBatch                // its gradients are added to the sums
	lastBatch                  // the gradients become the mean over all batches, which is exchanged and applied
)

// replay is a step that is run again and again: sections, between which the host works.
type replay struct {
	sections []*section
	forward  int // number of sections of the forward pass, if the step is split
}

// section is a list of commands that is launched as one graph.
type section struct {
	name   string
	phases []phase
	runs   int
	exec   driver.GraphExec
	// recording is profiler.recordings when exec was made.
	profiled int
	// If the step is split: the number of buckets that are complete after the section, and
	// the synchronization after it, or nil.
	ready    int
	normSync *normSyncCall
	// replayed reports whether the last run launched the graph.
	replayed bool
}

// phase is a part of a section with a name for profiles.
type phase struct {
	name     string // "forward", "backward", "optimizer"
	commands []command
	after    driver.Event // recorded after it if the section is not run as a graph; 0: none
}

// run enqueues a section in the compute stream. The first time its commands run one by
// one, so that all kernels are loaded; then they are captured as a graph, which is launched.
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

// runPhase runs the commands of a phase one by one.
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

// record captures the commands as a graph.
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

// close destroys the captured graphs.
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

// bucketCall passes a bucket to a strategy, which exchanges it in the exchange stream while
// the backward pass goes on. The exchange begins when the compute stream gets here.
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

// traced enqueues the exchange like run, between two events of a trace.
func (c *bucketCall) traced(g *gpu, s driver.Stream) error {
	if err := c.begin(g, s); err != nil {
		return err
	}
	return g.traced(c.label(), "", "exchange", g.exchange, func() error { return c.enqueue(g) })
}

// begin makes the exchange wait for the compute stream.
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

// joinCall makes the compute stream wait for the exchange.
type joinCall struct{ event driver.Event }

func (c *joinCall) run(g *gpu, s driver.Stream) error {
	if err := g.driver.EventRecord(c.event, g.exchange); err != nil {
		return g.failed(err)
	}
	return g.failed(g.driver.StreamWaitEvent(s, c.event))
}

func (c *joinCall) label() string { return "wait for the exchange" }
