package cuda

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lockstep/pkg/engine"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/device"
)

// A step is split if its strategy exchanges gradients on the host: the forward pass; the
// backward pass up to each bucket, which is then copied to page-locked memory while the
// backward pass goes on; the exchange on the host; the copy back to the GPU; the update. In
// this way several ranks can share one GPU, which NCCL does not support. Synchronized batch
// norms split the step further; see syncnorm.go.

// newSplitReplay returns the sections of a step with an exchange on the host. begin contains
// the commands up to the end of the forward pass, and end contains the commands of the update.
func (x *executable) newSplitReplay(key replayKey, begin, end []command) (*stepReplay, error) {
	first, err := x.splitAtNormSyncs("the forward pass", "forward", begin)
	if err != nil {
		return nil, err
	}
	p := &stepReplay{sections: first, forward: len(first)}
	backward := func(name string, list []command, ready int) error {
		more, err := x.splitAtNormSyncs(name, "backward", list)
		if err != nil {
			return err
		}
		more[len(more)-1].ready = ready
		p.sections = append(p.sections, more...)
		return nil
	}
	at := x.schedule.forward
	if key.microbatch.endsUpdate() {
		if err := x.prepareHostExchange(); err != nil {
			return nil, err
		}
		for i, b := range x.exchange.buckets {
			var list []command
			last := b.ready
			if i == len(x.exchange.buckets)-1 {
				last = len(x.schedule.commands) - 1
			}
			for ; at <= last; at++ {
				list = append(list, x.taskCommands(at, key)...)
			}
			gathered, err := x.accumulationCommands(key.microbatch, b.offset, b.size)
			if err != nil {
				return nil, err
			}
			if err := backward(fmt.Sprint("the backward pass to bucket ", i), append(list, gathered...), i+1); err != nil {
				return nil, err
			}
		}
	}
	if at < len(x.schedule.commands) {
		// Only statistics are exchanged.
		var list []command
		for ; at < len(x.schedule.commands); at++ {
			list = append(list, x.taskCommands(at, key)...)
		}
		gathered, err := x.accumulationCommands(key.microbatch, 0, x.exchange.lossAt)
		if err != nil {
			return nil, err
		}
		if err := backward("the backward pass", append(list, gathered...), 0); err != nil {
			return nil, err
		}
	}
	p.sections = append(p.sections, &commandSection{name: "the update", phases: []sectionPhase{{"optimizer", end, 0}}})
	return p, nil
}

func (x *executable) prepareHostExchange() error {
	g := x.gpu
	if x.exchange.hostGrads.ptr != nil || len(x.exchange.buckets) == 0 {
		return nil
	}
	var err error
	if x.exchange.hostGrads, err = g.allocatePinned(x.memory.grads.bytes); err != nil {
		return err
	}
	for i := range x.exchange.buckets {
		b := &x.exchange.buckets[i]
		for _, e := range []*driver.Event{&b.sent, &b.filled} {
			if *e, err = g.driver.EventCreate(driver.EventDisableTiming); err != nil {
				return g.explainLostGPU(err)
			}
		}
	}
	return nil
}

// runSplitStep runs a step with an exchange on the host. sync exchanges gradients; it is
// nil if they are only accumulated. statisticsSync exchanges statistics. If the loss is not
// finite, the step ends with an error before any bucket is exchanged.
func (x *executable) runSplitStep(ctx context.Context, p *stepReplay, sync, statisticsSync engine.GradSync, t *engine.Timing) error {
	g, c := x.gpu, hostExchange{executable: x, sync: sync}
	begin := time.Now()
	start := begin
	if err := c.runSections(ctx, p.sections[:p.forward]); err != nil {
		return err
	}
	if err := g.synchronize(); err != nil {
		return err
	}
	if err := x.readLoss(); err != nil {
		return err
	}
	exposed := x.exchange.norms.statistics.TakeExchangeTime()
	t.Forward, t.Wait = time.Since(start)-exposed, exposed
	if err := ctx.Err(); err != nil {
		return err
	}

	start = time.Now()
	if err := c.runBackward(ctx, p.sections[p.forward:len(p.sections)-1]); err != nil {
		return err
	}
	exposed = x.exchange.norms.statistics.TakeExchangeTime()
	t.Backward, t.Wait = time.Since(start)-exposed, t.Wait+exposed

	start = time.Now()
	if sync != nil {
		if err := c.finishExchange(); err != nil {
			return err
		}
		t.Wait += time.Since(start)
		start = time.Now()
	}
	g.traceReductions(statisticsSync, begin)

	if err := p.sections[len(p.sections)-1].enqueue(g, x.engine.options.Graph); err != nil {
		return err
	}
	if err := g.synchronize(); err != nil {
		return err
	}
	t.Optimizer = time.Since(start)
	return x.readResults(false)
}

// hostExchange is the state of a split step while it runs.
type hostExchange struct {
	*executable
	sync      engine.GradSync
	sent      int // number of buckets whose copy to the host is enqueued
	exchanged int // number of buckets passed to sync
}

// runSections enqueues sections, and after each section the copies to the host of the
// buckets that it completes. At a synchronized batch norm it waits for the GPU. With
// overlap, it first passes the completed buckets to sync, so that all ranks exchange in the
// order of the program.
func (c *hostExchange) runSections(ctx context.Context, sections []*commandSection) error {
	o := c.engine.options
	for _, s := range sections {
		if err := s.enqueue(c.gpu, o.Graph); err != nil {
			return err
		}
		for ; c.sent < s.ready; c.sent++ {
			if err := c.enqueueBucketCopy(c.sent); err != nil {
				return err
			}
		}
		if s.normSync == nil {
			continue
		}
		if o.Overlap {
			if err := c.exchangeCopiedBuckets(ctx); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.syncNormOnHost(s.normSync); err != nil {
			return err
		}
	}
	return nil
}

func (c *hostExchange) enqueueBucketCopy(i int) error {
	g, b := c.gpu, c.exchange.buckets[i]
	if err := g.driver.EventRecord(b.filled, g.compute); err != nil {
		return g.explainLostGPU(err)
	}
	if err := g.driver.StreamWaitEvent(g.exchange, b.filled); err != nil {
		return g.explainLostGPU(err)
	}
	host := c.exchange.hostGrads.subrange(4*b.offset, 4*b.size)
	err := g.runTracedSpan(fmt.Sprint("bucket ", i, " to the host"), "", "exchange", g.exchange, func() error {
		return g.explainLostGPU(g.driver.MemcpyDtoHAsync(host.ptr, c.memory.grads.ptr.Add(int64(4*b.offset)), host.bytes, g.exchange))
	})
	if err != nil {
		return err
	}
	return g.explainLostGPU(g.driver.EventRecord(b.sent, g.exchange))
}

// runBackward runs the backward pass and passes the buckets to sync. Without Options.Overlap,
// it does so only after the backward pass.
func (c *hostExchange) runBackward(ctx context.Context, sections []*commandSection) (err error) {
	defer func() {
		// The exchange may still write to a bucket: wait for it before returning.
		if err != nil && c.exchanged > 0 {
			if waitErr := c.sync.Wait(); waitErr != nil && !errors.Is(err, waitErr) {
				err = errors.Join(err, waitErr)
			}
		}
	}()
	if err := c.runSections(ctx, sections); err != nil {
		return err
	}
	if err := c.prefetchNextInputs(); err != nil {
		return err
	}
	if c.sync == nil || !c.engine.options.Overlap {
		if err := c.gpu.synchronize(); err != nil {
			return err
		}
	}
	if err := c.exchangeCopiedBuckets(ctx); err != nil {
		return err
	}
	return ctx.Err()
}

// exchangeCopiedBuckets passes buckets to sync, each after its copy to the host has ended.
func (c *hostExchange) exchangeCopiedBuckets(ctx context.Context) error {
	for c.exchanged < c.sent {
		i := c.exchanged
		if err := ctx.Err(); err != nil {
			return err
		}
		b := c.exchange.buckets[i]
		if err := c.gpu.driver.EventSynchronize(b.sent); err != nil {
			return c.gpu.explainLostGPU(err)
		}
		c.exchanged++
		if err := c.sync.ReduceBucket(i, device.Buffer{F32: c.exchange.hostGrads.subrange(4*b.offset, 4*b.size).floatSlice()}, device.Stream{}); err != nil {
			return fmt.Errorf("exchange gradient bucket %d: %w", i, err)
		}
	}
	return nil
}

func (c *hostExchange) finishExchange() error {
	if err := c.sync.Wait(); err != nil {
		return fmt.Errorf("wait for gradients: %w", err)
	}
	g := c.gpu
	return g.runTracedSpan("gradients to the GPU", "", "exchange", g.compute, func() error {
		return g.explainLostGPU(g.driver.MemcpyHtoDAsync(c.memory.grads.ptr, c.exchange.hostGrads.ptr, int64(4*c.exchange.lossAt), g.compute))
	})
}
