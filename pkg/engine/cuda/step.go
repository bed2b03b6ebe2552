package cuda

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/optim"
)

// Layout of the page-locked memory with the results of a step: the loss, the loss that was
// exchanged with the gradients, and the control block.
const (
	resultLoss    = 0
	resultTail    = 4
	resultControl = 64
	resultBytes   = resultControl + kernels.ControlBytes
)

// Step runs one step and waits for it. If it returns an error, parameters, states and
// optimizer slots are unchanged. A step in fp16 whose gradients overflow is not an error:
// it skips the update and halves the loss scale.
//
// Times are measured by the GPU's clock. A step that runs as one graph is measured as a
// whole. Its time is divided into forward, backward and optimizer in the proportions of the
// last step that ran without a graph.
func (x *executable) Step(ctx context.Context, sync engine.GradSync, update *optim.Update) (engine.Timing, error) {
	var t engine.Timing
	err := x.do(func() error {
		if len(x.exchange.buckets) == 0 {
			return x.step(ctx, sync, update, &t)
		}
		if err := x.gpu.beginStep(); err != nil {
			return err
		}
		err := x.holdBack()
		if err == nil {
			err = x.step(ctx, sync, update, &t)
		}
		return errors.Join(err, x.gpu.endStep())
	})
	if err != nil {
		return t, fmt.Errorf("step: %w", err)
	}
	return t, nil
}

func (x *executable) step(ctx context.Context, sync engine.GradSync, update *optim.Update, t *engine.Timing) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := x.canUpdate(update); err != nil {
		return err
	}
	statisticsSync := sync // exchanges statistics, after every batch of an update
	if a, ok := statisticsSync.(engine.Accumulating); ok {
		_, _, statisticsSync = a.Part()
	}
	if len(x.exchange.buckets) == 0 {
		sync = nil
	}
	var batch microbatch
	if a, ok := sync.(engine.Accumulating); ok {
		defer a.Accumulated()
		if batch, sync = microbatchOf(a); batch.kind == lastBatch && x.exchange.sums.ptr == 0 {
			return errors.New("the last of several batches comes before the first: begin with that one")
		}
	}
	syncNorms, deviceSync, err := x.statisticsExchange(statisticsSync)
	if err != nil {
		return err
	}
	split := sync != nil && !sync.Capturable() || syncNorms && deviceSync == nil
	key := replayKey{rule: ruleOf(update), microbatch: batch, split: split, syncNorms: syncNorms, deviceSync: deviceSync, buffers: x.nextBuffers(), dataset: x.usesDataset()}
	if !split {
		key.sync = sync
	}
	p := x.schedule.replays[key]
	if p == nil {
		var err error
		if p, err = x.arrange(key); err != nil {
			return err
		}
		x.schedule.replays[key] = p
	}
	if err := x.refresh(); err != nil {
		return err
	}
	if update != nil && int32(update.Step) <= x.last.control.Skipped {
		// A new training starts: skipped updates of the previous one do not count.
		x.last.control.Skipped = 0
		if err := x.gpu.write(x.memory.control.ptr, x.last.control.Bytes()); err != nil {
			return err
		}
	}
	var c kernels.Control
	if update != nil {
		c.LearningRate, c.Step = float32(update.LearningRate), int32(update.Step)
	}
	if key.dataset {
		c.Seed, c.Epoch = x.data.dataset.set.Seed, x.data.dataset.epoch
	}
	copy(x.memory.hostControl.data(), c.Bytes()[:kernels.ControlHostBytes])
	if len(x.data.inputs) > 0 {
		// Inputs are copied in a separate stream.
		if err := x.gpu.driver.EventRecord(x.data.fed, x.gpu.copies); err != nil {
			return x.gpu.failed(err)
		}
		if err := x.gpu.driver.StreamWaitEvent(x.gpu.compute, x.data.fed); err != nil {
			return x.gpu.failed(err)
		}
	}
	switch {
	case split:
		err = x.splitStep(ctx, p, sync, statisticsSync, t)
	case deviceSync != nil:
		err = x.wholeStep(ctx, p, deviceSync, t)
	default:
		err = x.wholeStep(ctx, p, sync, t)
	}
	if err != nil {
		return errors.Join(err, x.restore())
	}
	x.last.clip = 1
	if update != nil && update.ClipNorm > 0 {
		x.last.clip = float64(x.last.control.Clip)
	}
	return nil
}

// microbatchOf returns which batch of an update the next step computes, and the strategy
// that exchanges gradients after it, or nil if gradients are only exchanged after the
// update's last batch.
func microbatchOf(a engine.Accumulating) (microbatch, engine.GradSync) {
	at, parts, inner := a.Part()
	switch {
	case parts <= 1:
		return microbatch{}, inner
	case at >= parts:
		return microbatch{lastBatch, parts}, inner
	case at == 1:
		return microbatch{kind: firstBatch}, nil
	}
	return microbatch{kind: middleBatch}, nil
}

// accumulate returns the commands that add the gradients of a batch to the sums, or compute
// the mean over all batches, for n elements starting at from.
func (x *executable) accumulate(p microbatch, from, n int) ([]command, error) {
	grads := kernels.Pointer(x.memory.grads.ptr.Add(int64(4 * from)))
	sums := kernels.Pointer(x.exchange.sums.ptr.Add(int64(4 * from)))
	switch p.kind {
	case firstBatch:
		return []command{&copyCall{x.exchange.sums.ptr.Add(int64(4 * from)), x.memory.grads.ptr.Add(int64(4 * from)), int64(4 * n)}}, nil
	case middleBatch:
		return x.gpu.calls(kernels.GradAdd(sums, grads, n))
	case lastBatch:
		return x.gpu.calls(kernels.GradMean(grads, sums, n, p.parts))
	}
	return nil, nil
}

// prepareSums allocates the memory for sums of gradients, if p needs it and it does not
// exist.
func (x *executable) prepareSums(p microbatch) error {
	if p.kind == onlyBatch || x.exchange.sums.ptr != 0 {
		return nil
	}
	x.exchange.sums.bytes = int64(4 * x.exchange.lossAt)
	return x.gpu.allocate(&x.exchange.sums)
}

// arrange returns the commands of a step as a replay.
func (x *executable) arrange(key replayKey) (*replay, error) {
	begin := []command{&upCall{x.memory.control.ptr, x.memory.hostControl, kernels.ControlHostBytes}}
	if key.dataset {
		begin = append(begin, &upCall{x.data.samples.ptr, x.data.dataset.host, x.data.samples.bytes})
	}
	if x.memory.backup.bytes > 0 {
		begin = append(begin, &copyCall{x.memory.backup.ptr, x.store.states.ptr, x.memory.backup.bytes})
	}
	packing, err := x.packing()
	if err != nil {
		return nil, err
	}
	begin = append(begin, packing...)
	for i := range x.schedule.forward {
		begin = append(begin, x.commandsOf(i, key)...)
	}
	if x.program.Loss >= 0 {
		begin = append(begin, &copyToHost{x.memory.result.part(resultLoss, 4), x.address(x.program.Loss), 4})
		if len(x.exchange.buckets) > 0 {
			begin = append(begin, &copyCall{x.lossTail(), x.address(x.program.Loss), 4})
		}
	}
	if err := x.prepareSums(key.microbatch); err != nil {
		return nil, err
	}
	var end []command
	if key.rule.Rule != "" {
		if end, err = x.optimize(key.rule); err != nil {
			return nil, err
		}
	}
	if len(x.exchange.buckets) > 0 {
		end = append(end, &copyToHost{x.memory.result.part(resultTail, 4), x.lossTail(), 4})
	}
	end = append(end, &copyToHost{x.memory.result.part(resultControl, kernels.ControlBytes), x.memory.control.ptr, kernels.ControlBytes})
	if key.split {
		return x.arrangeSplit(key, begin, end)
	}
	backward, err := x.arrangeBackward(key)
	if err != nil {
		return nil, err
	}
	return &replay{sections: []*section{{name: "a step", phases: []phase{
		{"forward", begin, x.profile.forwardEnd}, {"backward", backward, x.profile.backwardEnd}, {"optimizer", end, 0},
	}}}}, nil
}

// arrangeBackward returns the commands of the backward pass. If key.sync is not nil, it
// receives each bucket as soon as the bucket is final.
func (x *executable) arrangeBackward(key replayKey) (list []command, err error) {
	p, sync, next := key.microbatch, key.sync, 0
	hand := func(upTo int) error {
		for ; next < len(x.exchange.buckets) && x.exchange.buckets[next].ready <= upTo; next++ {
			b := x.exchange.buckets[next]
			gathered, err := x.accumulate(p, b.offset, b.size)
			if err != nil {
				return err
			}
			list = append(list, gathered...)
			if sync == nil {
				continue
			}
			size := b.size
			if next == len(x.exchange.buckets)-1 {
				size += regionAlign // and the loss after the last bucket
			}
			list = append(list, &bucketCall{sync, next, device.Buffer{
				Pointer: uintptr(x.memory.grads.ptr.Add(int64(4 * b.offset))), Type: device.F32, Elements: size,
			}, x.exchange.fork})
		}
		return nil
	}
	for i := x.schedule.forward; i < len(x.schedule.commands); i++ {
		list = append(list, x.commandsOf(i, key)...)
		// Without an exchange, all gradients are accumulated at once.
		if sync != nil && x.engine.options.Overlap {
			if err := hand(i); err != nil {
				return nil, err
			}
		}
	}
	if sync == nil {
		if p.kind == onlyBatch {
			return list, nil
		}
		gathered, err := x.accumulate(p, 0, x.exchange.lossAt)
		return append(list, gathered...), err
	}
	if err := hand(math.MaxInt); err != nil {
		return nil, err
	}
	return append(list, &joinCall{x.exchange.join}), nil
}

// watched is a strategy that detects a step which waits for a lost rank. stop returns the
// error with which the strategy ended such a step, or nil.
type watched interface {
	Watch(ctx context.Context) (stop func() error)
}

// wholeStep runs a step that does not need the host before its end.
func (x *executable) wholeStep(ctx context.Context, p *replay, sync engine.GradSync, t *engine.Timing) error {
	stop := func() error { return nil }
	if w, ok := sync.(watched); ok {
		stop = w.Watch(ctx)
	}
	err := x.launchWhole(p.sections[0])
	if watchErr := stop(); watchErr != nil {
		return watchErr // the cause of any other error
	}
	if err != nil {
		return err
	}
	if err := x.measure(p.sections[0], t); err != nil {
		return err
	}
	return x.results(true)
}

// launchWhole enqueues a step in the compute stream and waits for its end.
func (x *executable) launchWhole(s *section) error {
	g := x.gpu
	if err := g.driver.EventRecord(x.profile.begin, g.compute); err != nil {
		return g.failed(err)
	}
	if err := s.run(g, x.engine.options.Graph); err != nil {
		return err
	}
	if err := g.driver.EventRecord(x.profile.end, g.compute); err != nil {
		return g.failed(err)
	}
	if err := x.feedNext(); err != nil {
		return err
	}
	return g.failed(g.driver.EventSynchronize(x.profile.end))
}

// measure sets t from the events of a step.
func (x *executable) measure(s *section, t *engine.Timing) error {
	d := x.gpu.driver
	whole, err := d.EventElapsed(x.profile.begin, x.profile.end)
	if err != nil {
		return x.gpu.failed(err)
	}
	if !s.replayed {
		forward, err1 := d.EventElapsed(x.profile.begin, x.profile.forwardEnd)
		backward, err2 := d.EventElapsed(x.profile.forwardEnd, x.profile.backwardEnd)
		if err := errors.Join(err1, err2); err != nil {
			return x.gpu.failed(err)
		}
		total := max(float64(whole), 1e-9)
		x.profile.shares = [3]float64{float64(forward) / total, float64(backward) / total, 1 - float64(forward+backward)/total}
	}
	part := func(i int) time.Duration {
		return time.Duration(x.profile.shares[i] * float64(whole) * float64(time.Millisecond))
	}
	t.Forward, t.Backward, t.Optimizer = part(0), part(1), part(2)
	return nil
}

// results reads the results of a step. With tail, the exchanged loss is checked too:
// another rank's loss may not be finite.
func (x *executable) results(tail bool) error {
	data := x.memory.result.data()
	c := kernels.ReadControl(data[resultControl:])
	if err := x.readLoss(); err != nil {
		return err
	}
	if tail && len(x.exchange.buckets) > 0 && x.program.Loss >= 0 {
		if v := float(data[resultTail:]); math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("the loss of another rank: %w", engine.ErrNonFinite)
		}
	}
	x.last.control = c
	return nil
}

// readLoss stores the step's loss and loss scale in x.last. It returns an error if the loss
// is not finite.
func (x *executable) readLoss() error {
	x.last.scale = float64(x.last.control.LossScale) // the scale before this step's update
	if x.program.Loss < 0 {
		return nil
	}
	x.last.loss = float(x.memory.result.data()[resultLoss:])
	if math.IsNaN(x.last.loss) || math.IsInf(x.last.loss, 0) {
		return fmt.Errorf("loss is %v: %w", x.last.loss, engine.ErrNonFinite)
	}
	return nil
}

func float(b []byte) float64 {
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
}

// restore sets the states back to their values before the step, unless the device is lost.
func (x *executable) restore() error {
	g := x.gpu
	if g.lost != nil || x.memory.backup.bytes == 0 {
		return nil
	}
	if err := g.synchronize(); err != nil {
		return err
	}
	if err := g.driver.MemcpyDtoDAsync(x.store.states.ptr, x.memory.backup.ptr, x.memory.backup.bytes, g.compute); err != nil {
		return g.failed(err)
	}
	return g.synchronize()
}
