package cuda

import (
	"errors"
	"fmt"

	"lockstep/pkg/engine"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/optim"
)

// replayKey identifies a kind of step by everything that affects its commands.
type replayKey struct {
	rule       optim.Update    // see withoutStepValues
	microbatch microbatch      // the batch's position in its update
	sync       engine.GradSync // exchanges gradients within the step; nil if gradients are not exchanged or the step is split
	split      bool            // the step is split at buckets and synchronized batch norms, for an exchange on the host
	// syncNorms is true if batch norms are synchronized. deviceSync synchronizes them on the
	// GPU; if it is nil, they are synchronized on the host.
	syncNorms  bool
	deviceSync engine.GradSync
	buffers    uint64 // which input buffers it reads, see executable.inputBufferMask
	dataset    bool   // it reads the data set on the GPU
}

// microbatch identifies the batch of an update that a step computes. The zero microbatch is
// the only batch of its update.
type microbatch struct {
	kind  microbatchKind
	parts int // number of batches in the update; set only for the last batch
}

// endsUpdate reports whether gradients are exchanged after the batch.
func (p microbatch) endsUpdate() bool { return p.kind == onlyBatch || p.kind == lastBatch }

// microbatchKind is the position of a batch in an optimizer update.
type microbatchKind uint8

const (
	onlyBatch   microbatchKind = iota
	firstBatch                 // its gradients start the sums
	middleBatch                // its gradients are added to the sums
	lastBatch                  // the gradients become the mean over all batches, which is exchanged and applied
)

// stepReplay contains the commands of one kind of step, in sections between which the host
// works.
type stepReplay struct {
	sections []*commandSection
	forward  int // for a split step: the number of sections of the forward pass
}

// commandSection contains commands that are launched as one graph.
type commandSection struct {
	name   string
	phases []sectionPhase
	runs   int
	exec   driver.GraphExec
	// recording is the value of profiler.recordings when exec was created.
	recording int
	// For a step that is split into sections: ready is the number of buckets that are complete
	// after this section, and normSync is the synchronization point after it, or nil.
	ready    int
	normSync *normSyncCall
	// replayed reports whether the section's last run was a launch of its graph.
	replayed bool
}

// sectionPhase is a part of a section that profiles show under its name.
type sectionPhase struct {
	name     string // "forward", "backward", "optimizer"
	commands []command
	after    driver.Event // recorded after the phase if the section does not run as a graph; 0: no event
}

// enqueue enqueues a section in the compute stream. The first time, it enqueues the commands
// one by one, which loads all kernels. The second time, it captures them as a CUDA graph. From
// then on it launches the graph. If graph is false or a trace is recorded, it always enqueues
// the commands one by one.
func (s *commandSection) enqueue(g *gpu, graph bool) error {
	s.runs++
	if !graph || s.runs == 1 || g.profile.tracer != nil {
		s.replayed = false
		for _, p := range s.phases {
			if err := s.enqueuePhase(g, p); err != nil {
				return err
			}
			if p.after != 0 {
				if err := g.driver.EventRecord(p.after, g.compute); err != nil {
					return g.explainLostGPU(err)
				}
			}
		}
		return nil
	}
	if s.exec != 0 && s.recording != g.profile.recordings { // CUPTI must observe its creation
		if err := g.driver.GraphExecDestroy(s.exec); err != nil {
			return g.explainLostGPU(err)
		}
		s.exec = 0
	}
	if s.exec == 0 {
		s.recording = g.profile.recordings
		if err := s.captureGraph(g); err != nil {
			return fmt.Errorf("capture %s as a graph (--set engine.graph=false disables graphs): %w", s.name, err)
		}
	}
	s.replayed = true
	return g.explainLostGPU(g.driver.GraphLaunch(s.exec, g.compute))
}

func (s *commandSection) enqueuePhase(g *gpu, p sectionPhase) error {
	g.stack.NVTX.Push(p.name)
	defer g.stack.NVTX.Pop()
	if g.profile.tracer == nil {
		return g.enqueueCommands(p.commands, g.compute)
	}
	for _, c := range p.commands {
		layer, inner := "", c
		if n, ok := c.(*taskCommand); ok {
			layer, inner = n.layer, n.command
		}
		var err error
		if b, ok := inner.(interface {
			runTraced(g *gpu, s driver.Stream) error
		}); ok {
			err = b.runTraced(g, g.compute)
		} else {
			err = g.runTracedSpan(c.label(), layer, p.name, g.compute, func() error { return c.run(g, g.compute) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *commandSection) captureGraph(g *gpu) error {
	d := g.driver
	if err := d.StreamBeginCapture(g.compute, driver.CaptureThreadLocal); err != nil {
		return g.explainLostGPU(err)
	}
	var first error
	for _, p := range s.phases {
		if first = g.enqueueCommands(p.commands, g.compute); first != nil {
			break
		}
	}
	// End the capture in any case: a stream cannot be used while it is captured.
	graph, err := d.StreamEndCapture(g.compute)
	if err := errors.Join(first, g.explainLostGPU(err)); err != nil {
		return err
	}
	exec, err := d.GraphInstantiate(graph)
	if err := errors.Join(g.explainLostGPU(err), g.explainLostGPU(d.GraphDestroy(graph))); err != nil {
		return err
	}
	s.exec = exec
	return g.explainLostGPU(d.GraphUpload(exec, g.compute))
}

func (p *stepReplay) close(g *gpu) error {
	var errs []error
	for _, s := range p.sections {
		if s.exec != 0 {
			errs = append(errs, g.driver.GraphExecDestroy(s.exec))
			s.exec = 0
		}
	}
	return errors.Join(errs...)
}

// exchangeBucketCall passes a bucket of gradients to sync, which exchanges it in the exchange stream
// while the backward pass continues. The exchange starts after the work that was enqueued in
// the compute stream before this command.
type exchangeBucketCall struct {
	sync   engine.GradSync
	index  int
	buffer device.Buffer
	fork   driver.Event
}

func (c *exchangeBucketCall) run(g *gpu, s driver.Stream) error {
	if err := c.beginExchange(g, s); err != nil {
		return err
	}
	return c.enqueue(g)
}

func (c *exchangeBucketCall) runTraced(g *gpu, s driver.Stream) error {
	if err := c.beginExchange(g, s); err != nil {
		return err
	}
	return g.runTracedSpan(c.label(), "", "exchange", g.exchange, func() error { return c.enqueue(g) })
}

func (c *exchangeBucketCall) beginExchange(g *gpu, s driver.Stream) error {
	if err := g.driver.EventRecord(c.fork, s); err != nil {
		return g.explainLostGPU(err)
	}
	return g.explainLostGPU(g.driver.StreamWaitEvent(g.exchange, c.fork))
}

func (c *exchangeBucketCall) enqueue(g *gpu) error {
	if err := c.sync.ReduceBucket(c.index, c.buffer, device.Stream{Handle: uintptr(g.exchange)}); err != nil {
		return fmt.Errorf("exchange gradient bucket %d: %w", c.index, err)
	}
	return nil
}

func (c *exchangeBucketCall) label() string { return fmt.Sprint("exchange bucket ", c.index) }

// waitForExchangeCall makes the compute stream wait for the exchange stream.
type waitForExchangeCall struct{ event driver.Event }

func (c *waitForExchangeCall) run(g *gpu, s driver.Stream) error {
	if err := g.driver.EventRecord(c.event, g.exchange); err != nil {
		return g.explainLostGPU(err)
	}
	return g.explainLostGPU(g.driver.StreamWaitEvent(s, c.event))
}

func (c *waitForExchangeCall) label() string { return "wait for the exchange" }
