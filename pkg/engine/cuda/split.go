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

// A strategy whose exchange runs on the host splits the step: forward; backward up to each
// bucket, which is then copied to page-locked memory while backward goes on; the exchange
// on the host; the copy back; the update. This is how several ranks share one GPU, which
// NCCL refuses. Synchronized batch norms split it further: see normSyncs.

// arrangeSplit returns the sections of a step with an exchange on the host.
func (x *executable) arrangeSplit(key replayKey, begin, end []command) (*replay, error) {
	first, err := x.splitAtNorms("the forward pass", "forward", begin)
	if err != nil {
		return nil, err
	}
	p := &replay{sections: first, forward: len(first)}
	backward := func(name string, list []command, ready int) error {
		more, err := x.splitAtNorms(name, "backward", list)
		if err != nil {
			return err
		}
		more[len(more)-1].ready = ready
		p.sections = append(p.sections, more...)
		return nil
	}
	at := x.schedule.forward
	if key.microbatch.exchanged() {
		if err := x.prepareHostGrads(); err != nil {
			return nil, err
		}
		for i, b := range x.exchange.buckets {
			var list []command
			last := b.ready
			if i == len(x.exchange.buckets)-1 {
				last = len(x.schedule.commands) - 1
			}
			for ; at <= last; at++ {
				list = append(list, x.commandsOf(at, key)...)
			}
			gathered, err := x.accumulate(key.microbatch, b.offset, b.size)
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
			list = append(list, x.commandsOf(at, key)...)
		}
		gathered, err := x.accumulate(key.microbatch, 0, x.exchange.lossAt)
		if err != nil {
			return nil, err
		}
		if err := backward("the backward pass", append(list, gathered...), 0); err != nil {
			return nil, err
		}
	}
	p.sections = append(p.sections, &section{name: "the update", phases: []phase{{"optimizer", end, 0}}})
	return p, nil
}

// prepareHostGrads allocates the gradients' memory on the host, and the buckets' events.
func (x *executable) prepareHostGrads() error {
	g := x.gpu
	if x.exchange.hostGrads.ptr != nil || len(x.exchange.buckets) == 0 {
		return nil
	}
	var err error
	if x.exchange.hostGrads, err = g.pin(x.memory.grads.bytes); err != nil {
		return err
	}
	for i := range x.exchange.buckets {
		b := &x.exchange.buckets[i]
		for _, e := range []*driver.Event{&b.sent, &b.filled} {
			if *e, err = g.driver.EventCreate(driver.EventDisableTiming); err != nil {
				return g.failed(err)
			}
		}
	}
	return nil
}

// splitStep runs a step with an exchange on the host: of gradients by sync (nil: they are not
// exchanged, but accumulated), of statistics by statisticsSync. A loss that is not finite ends it
// before any bucket is exchanged.
func (x *executable) splitStep(ctx context.Context, p *replay, sync, statisticsSync engine.GradSync, t *engine.Timing) error {
	g, c := x.gpu, hostExchange{executable: x, sync: sync}
	begin := time.Now()
	start := begin
	if err := c.run(ctx, p.sections[:p.forward]); err != nil {
		return err
	}
	if err := g.synchronize(); err != nil {
		return err
	}
	if err := x.readLoss(); err != nil {
		return err
	}
	exposed := x.exchange.norms.statistics.Spent()
	t.Forward, t.Wait = time.Since(start)-exposed, exposed
	if err := ctx.Err(); err != nil {
		return err
	}

	start = time.Now()
	if err := c.backward(ctx, p.sections[p.forward:len(p.sections)-1]); err != nil {
		return err
	}
	exposed = x.exchange.norms.statistics.Spent()
	t.Backward, t.Wait = time.Since(start)-exposed, t.Wait+exposed

	start = time.Now()
	if sync != nil {
		if err := c.end(); err != nil {
			return err
		}
		t.Wait += time.Since(start)
		start = time.Now()
	}
	g.reduced(statisticsSync, begin)

	if err := p.sections[len(p.sections)-1].run(g, x.engine.options.Graph); err != nil {
		return err
	}
	if err := g.synchronize(); err != nil {
		return err
	}
	t.Optimizer = time.Since(start)
	return x.results(false)
}

// hostExchange runs a split step.
type hostExchange struct {
	*executable
	sync      engine.GradSync
	sent      int // number of buckets whose copy to the host is enqueued
	exchanged int // number of buckets passed to sync
}

// run enqueues sections, and the copy of each bucket to the host after the section that
// completes it. At a synchronized batch norm it waits for the GPU, and first passes on the
// buckets that were complete before: all ranks exchange in the order of the program.
func (c *hostExchange) run(ctx context.Context, sections []*section) error {
	o := c.engine.options
	for _, s := range sections {
		if err := s.run(c.gpu, o.Graph); err != nil {
			return err
		}
		for ; c.sent < s.ready; c.sent++ {
			if err := c.send(c.sent); err != nil {
				return err
			}
		}
		if s.normSync == nil {
			continue
		}
		if o.Overlap {
			if err := c.exchangeSent(ctx); err != nil {
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

// send enqueues the copy of a bucket to the host.
func (c *hostExchange) send(i int) error {
	g, b := c.gpu, c.exchange.buckets[i]
	if err := g.driver.EventRecord(b.filled, g.compute); err != nil {
		return g.failed(err)
	}
	if err := g.driver.StreamWaitEvent(g.exchange, b.filled); err != nil {
		return g.failed(err)
	}
	host := c.exchange.hostGrads.part(4*b.offset, 4*b.size)
	err := g.traced(fmt.Sprint("bucket ", i, " to the host"), "", "exchange", g.exchange, func() error {
		return g.failed(g.driver.MemcpyDtoHAsync(host.ptr, c.memory.grads.ptr.Add(int64(4*b.offset)), host.bytes, g.exchange))
	})
	if err != nil {
		return err
	}
	return g.failed(g.driver.EventRecord(b.sent, g.exchange))
}

// backward runs the backward pass and passes the remaining buckets to sync; without overlap
// all of them, after the pass.
func (c *hostExchange) backward(ctx context.Context, sections []*section) (err error) {
	defer func() {
		// The exchange may still write to a bucket: wait for it before returning.
		if err != nil && c.exchanged > 0 {
			if waitErr := c.sync.Wait(); waitErr != nil && !errors.Is(err, waitErr) {
				err = errors.Join(err, waitErr)
			}
		}
	}()
	if err := c.run(ctx, sections); err != nil {
		return err
	}
	if err := c.feedNext(); err != nil {
		return err
	}
	if c.sync == nil || !c.engine.options.Overlap {
		if err := c.gpu.synchronize(); err != nil {
			return err
		}
	}
	if err := c.exchangeSent(ctx); err != nil {
		return err
	}
	return ctx.Err()
}

// exchangeSent passes to sync the buckets that were sent, each when it has arrived on the host.
func (c *hostExchange) exchangeSent(ctx context.Context) error {
	for c.exchanged < c.sent {
		i := c.exchanged
		if err := ctx.Err(); err != nil {
			return err
		}
		b := c.exchange.buckets[i]
		if err := c.gpu.driver.EventSynchronize(b.sent); err != nil {
			return c.gpu.failed(err)
		}
		c.exchanged++
		if err := c.sync.Bucket(i, device.Buffer{F32: c.exchange.hostGrads.part(4*b.offset, 4*b.size).floats()}, device.Stream{}); err != nil {
			return fmt.Errorf("hand over gradient bucket %d: %w", i, err)
		}
	}
	return nil
}

// end waits for the exchange of gradients, and copies them back.
func (c *hostExchange) end() error {
	if err := c.sync.Wait(); err != nil {
		return fmt.Errorf("wait for gradients: %w", err)
	}
	g := c.gpu
	return g.traced("gradients to the GPU", "", "exchange", g.compute, func() error {
		return g.failed(g.driver.MemcpyHtoDAsync(c.memory.grads.ptr, c.exchange.hostGrads.ptr, int64(4*c.exchange.lossAt), g.compute))
	})
}
