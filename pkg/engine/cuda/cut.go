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

// A strategy whose exchange runs on the host cuts the step: forward; backward up
// to each bucket, which then goes to page-locked memory while backward goes on;
// the exchange there; the way back; the update. This is how several ranks share
// one GPU, which NCCL refuses.

// arrangeCut makes the sections of a step with an exchange on the host.
func (x *executable) arrangeCut(whole part, begin, end []command) (*play, error) {
	g := x.gpu
	if x.mirror.ptr == nil {
		var err error
		if x.mirror, err = g.pin(x.grads.bytes); err != nil {
			return nil, err
		}
		for i := range x.buckets {
			b := &x.buckets[i]
			for _, e := range []*driver.Event{&b.sent, &b.filled} {
				if *e, err = g.driver.EventCreate(driver.EventDisableTiming); err != nil {
					return nil, g.failed(err)
				}
			}
		}
	}
	p := &play{sections: []*section{{name: "the forward pass", parts: []piece{{"forward", begin, 0}}}}}
	at := x.forward
	for i, b := range x.buckets {
		var list []command
		for ; at <= b.ready && at < len(x.steps); at++ {
			list = append(list, x.steps[at]...)
		}
		if i == len(x.buckets)-1 {
			for ; at < len(x.steps); at++ {
				list = append(list, x.steps[at]...)
			}
		}
		gathered, err := x.gather(whole, b.offset, b.size)
		if err != nil {
			return nil, err
		}
		list = append(list, gathered...)
		p.sections = append(p.sections, &section{name: fmt.Sprint("the backward pass to bucket ", i), parts: []piece{{"backward", list, 0}}})
	}
	p.sections = append(p.sections, &section{name: "the update", parts: []piece{{"optimizer", end, 0}}})
	return p, nil
}

// cutStep runs a step whose exchange is on the host. A loss that is not finite
// ends it before any bucket is handed over.
func (x *executable) cutStep(ctx context.Context, p *play, sync engine.GradSync, t *engine.Timing) error {
	g, graph := x.gpu, x.engine.options.Graph
	begin := time.Now()
	start := begin
	if err := p.sections[0].run(g, graph); err != nil {
		return err
	}
	if err := g.synchronize(); err != nil {
		return err
	}
	if err := x.readLoss(); err != nil {
		return err
	}
	t.Forward = time.Since(start)
	if err := ctx.Err(); err != nil {
		return err
	}

	start = time.Now()
	if err := x.sendBuckets(p); err != nil {
		return err
	}
	if err := x.feedNext(); err != nil {
		return err
	}
	if err := x.handOver(ctx, sync); err != nil {
		return err
	}
	t.Backward = time.Since(start)

	start = time.Now()
	if err := sync.Wait(); err != nil {
		return fmt.Errorf("wait for gradients: %w", err)
	}
	g.reduced(sync, begin)
	err := g.traced("gradients to the GPU", "", "exchange", g.compute, func() error {
		return g.failed(g.driver.MemcpyHtoDAsync(x.grads.ptr, x.mirror.ptr, int64(4*x.lossAt), g.compute))
	})
	if err != nil {
		return err
	}
	t.Wait = time.Since(start)

	start = time.Now()
	if err := p.sections[len(p.sections)-1].run(g, graph); err != nil {
		return err
	}
	if err := g.synchronize(); err != nil {
		return err
	}
	t.Optimizer = time.Since(start)
	return x.results(false)
}

// sendBuckets enqueues the backward pass, and each bucket's way to the host
// behind the section that completes it.
func (x *executable) sendBuckets(p *play) error {
	g := x.gpu
	for i := range x.buckets {
		b := &x.buckets[i]
		if err := p.sections[1+i].run(g, x.engine.options.Graph); err != nil {
			return err
		}
		if err := g.driver.EventRecord(b.filled, g.compute); err != nil {
			return g.failed(err)
		}
		if err := g.driver.StreamWaitEvent(g.exchange, b.filled); err != nil {
			return g.failed(err)
		}
		host := x.mirror.part(4*b.offset, 4*b.size)
		err := g.traced(fmt.Sprint("bucket ", i, " to the host"), "", "exchange", g.exchange, func() error {
			return g.failed(g.driver.MemcpyDtoHAsync(host.ptr, x.grads.ptr.Add(int64(4*b.offset)), host.bytes, g.exchange))
		})
		if err != nil {
			return err
		}
		if err := g.driver.EventRecord(b.sent, g.exchange); err != nil {
			return g.failed(err)
		}
	}
	return nil
}

// handOver gives sync each bucket as it arrives on the host; without overlap all
// of them when the backward pass is over.
func (x *executable) handOver(ctx context.Context, sync engine.GradSync) (err error) {
	g, handed := x.gpu, 0
	defer func() {
		// A bucket that is under way is written to: wait before giving up.
		if err != nil && handed > 0 {
			err = errors.Join(err, sync.Wait())
		}
	}()
	if !x.engine.options.Overlap {
		if err := g.synchronize(); err != nil {
			return err
		}
	}
	for i, b := range x.buckets {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := g.driver.EventSynchronize(b.sent); err != nil {
			return g.failed(err)
		}
		handed++
		if err := sync.Bucket(i, device.Buffer{F32: x.mirror.part(4*b.offset, 4*b.size).floats()}, device.Stream{}); err != nil {
			return fmt.Errorf("hand over gradient bucket %d: %w", i, err)
		}
	}
	return ctx.Err()
}
