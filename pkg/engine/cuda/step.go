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

// Layout of the page-locked memory with the results of a step, in bytes: the loss, the loss
// that was exchanged with the gradients, and the control block.
const (
	resultLoss    = 0
	resultTail    = 4
	resultControl = 64
	resultBytes   = resultControl + kernels.ControlBytes
)

// Step runs one step and waits for its end. If it returns an error, parameters, states and
// optimizer slots are unchanged. An fp16 step whose gradients overflow is not an error: it
// skips the update and halves the loss scale.
//
// Times are measured with the GPU's clock. If a step runs as one graph, only its total time
// is measured. This time is divided into forward, backward and optimizer in the proportions
// of the last step that ran without a graph.
func (x *executable) Step(ctx context.Context, sync engine.GradSync, update *optim.Update) (engine.Timing, error) {
	var t engine.Timing
	err := x.do(func() error {
		if len(x.exchange.buckets) == 0 {
			return x.step(ctx, sync, update, &t)
		}
		if err := x.gpu.beginStep(); err != nil {
			return err
		}
		err := x.keepGPUBusy()
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

// step does the work of Step, without the profile.
func (x *executable) step(ctx context.Context, sync engine.GradSync, update *optim.Update, t *engine.Timing) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := x.checkUpdate(update); err != nil {
		return err
	}
	statisticsSync := sync // exchanges statistics, after every batch of an update
	if a := accumulationOf(sync); a != nil {
		statisticsSync = a.Mean
	}
	if len(x.exchange.buckets) == 0 {
		sync = nil
	}
	var batch microbatch
	if a := accumulationOf(sync); a != nil {
		defer a.Done()
		if batch, sync = nextMicrobatch(a); batch.kind == lastBatch && x.exchange.sums.ptr == 0 {
			return errors.New("got the last batch of an update before its first batch: run the batches in order")
		}
	}
	syncNorms, onDevice, err := x.resolveStatisticsSync(statisticsSync)
	if err != nil {
		return err
	}
	split := sync != nil && !sync.Capabilities().Enqueues || syncNorms && !onDevice
	key := replayKey{rule: withoutStepValues(update), microbatch: batch, split: split, syncNorms: syncNorms, buffers: x.inputBufferMask(), dataset: x.usesDataset()}
	if !split {
		key.sync = sync
	}
	if onDevice {
		key.deviceSync = statisticsSync
	}
	p := x.schedule.replays[key]
	if p == nil {
		var err error
		if p, err = x.newReplay(key); err != nil {
			return err
		}
		x.schedule.replays[key] = p
	}
	if err := x.refreshWeightCopies(); err != nil {
		return err
	}
	if update != nil && int32(update.Step) <= x.last.control.Skipped {
		// A new training starts: skipped updates of the previous one do not count.
		x.last.control.Skipped = 0
		if err := x.gpu.writeMemory(x.memory.control.ptr, x.last.control.Bytes()); err != nil {
			return err
		}
	}
	var c kernels.ControlBlock
	if update != nil {
		c.LearningRate, c.Step = float32(update.LearningRate), int32(update.Step)
	}
	if key.dataset {
		c.Seed, c.Epoch = x.data.dataset.set.Seed, x.data.dataset.epoch
	}
	copy(x.memory.hostControl.byteSlice(), c.Bytes()[:kernels.ControlHostBytes])
	if len(x.data.inputs) > 0 {
		// Inputs are copied in a separate stream.
		if err := x.gpu.driver.EventRecord(x.data.fed, x.gpu.copies); err != nil {
			return x.gpu.explainLostGPU(err)
		}
		if err := x.gpu.driver.StreamWaitEvent(x.gpu.compute, x.data.fed); err != nil {
			return x.gpu.explainLostGPU(err)
		}
	}
	switch {
	case split:
		err = x.runSplitStep(ctx, p, sync, statisticsSync, t)
	case onDevice:
		err = x.runUnsplitStep(ctx, p, statisticsSync, t)
	default:
		err = x.runUnsplitStep(ctx, p, sync, t)
	}
	if err != nil {
		return errors.Join(err, x.restoreStates())
	}
	x.last.clip = 1
	if update != nil && update.ClipNorm > 0 {
		x.last.clip = float64(x.last.control.Clip)
	}
	return nil
}

// accumulationOf returns sync's Accumulation. It returns nil if sync is nil or does not
// accumulate gradients.
func accumulationOf(sync engine.GradSync) *engine.Accumulation {
	if sync == nil {
		return nil
	}
	return sync.Capabilities().Accumulation
}

// nextMicrobatch returns which batch of an update the next step computes and, if it is the
// update's last batch, the GradSync that exchanges the gradients.
func nextMicrobatch(a *engine.Accumulation) (microbatch, engine.GradSync) {
	switch {
	case a.Steps <= 1:
		return microbatch{}, a.Mean
	case a.Step >= a.Steps:
		return microbatch{lastBatch, a.Steps}, a.Mean
	case a.Step == 1:
		return microbatch{kind: firstBatch}, nil
	}
	return microbatch{kind: middleBatch}, nil
}

// accumulationCommands returns the commands that accumulate n gradients, beginning with element
// from. Depending on p, the gradients start the sums, are added to the sums, or become the mean
// over all batches.
func (x *executable) accumulationCommands(p microbatch, from, n int) ([]command, error) {
	grads := kernels.Pointer(x.memory.grads.ptr.Add(int64(4 * from)))
	sums := kernels.Pointer(x.exchange.sums.ptr.Add(int64(4 * from)))
	switch p.kind {
	case firstBatch:
		return []command{&copyWithinGPUCall{x.exchange.sums.ptr.Add(int64(4 * from)), x.memory.grads.ptr.Add(int64(4 * from)), int64(4 * n)}}, nil
	case middleBatch:
		return x.gpu.newKernelCalls(kernels.AddGradients(sums, grads, n))
	case lastBatch:
		return x.gpu.newKernelCalls(kernels.AverageGradients(grads, sums, n, p.parts))
	}
	return nil, nil
}

func (x *executable) allocateGradSums(p microbatch) error {
	if p.kind == onlyBatch || x.exchange.sums.ptr != 0 {
		return nil
	}
	x.exchange.sums.bytes = int64(4 * x.exchange.lossAt)
	return x.gpu.allocate(&x.exchange.sums)
}

func (x *executable) newReplay(key replayKey) (*stepReplay, error) {
	begin := []command{&copyToGPUCall{x.memory.control.ptr, x.memory.hostControl, kernels.ControlHostBytes}}
	if key.dataset {
		begin = append(begin, &copyToGPUCall{x.data.samples.ptr, x.data.dataset.host, x.data.samples.bytes})
	}
	if x.memory.backup.bytes > 0 {
		begin = append(begin, &copyWithinGPUCall{x.memory.backup.ptr, x.store.states.ptr, x.memory.backup.bytes})
	}
	packing, err := x.inputConversionCommands()
	if err != nil {
		return nil, err
	}
	begin = append(begin, packing...)
	for i := range x.schedule.forward {
		begin = append(begin, x.taskCommands(i, key)...)
	}
	if x.program.Loss >= 0 {
		begin = append(begin, &copyToHostCall{x.memory.result.subrange(resultLoss, 4), x.tensorAddress(x.program.Loss), 4})
		if len(x.exchange.buckets) > 0 {
			begin = append(begin, &copyWithinGPUCall{x.exchangedLossAddress(), x.tensorAddress(x.program.Loss), 4})
		}
	}
	if err := x.allocateGradSums(key.microbatch); err != nil {
		return nil, err
	}
	var end []command
	if key.rule.Rule != "" {
		if end, err = x.optimizerCommands(key.rule); err != nil {
			return nil, err
		}
	}
	if len(x.exchange.buckets) > 0 {
		end = append(end, &copyToHostCall{x.memory.result.subrange(resultTail, 4), x.exchangedLossAddress(), 4})
	}
	end = append(end, &copyToHostCall{x.memory.result.subrange(resultControl, kernels.ControlBytes), x.memory.control.ptr, kernels.ControlBytes})
	if key.split {
		return x.newSplitReplay(key, begin, end)
	}
	backward, err := x.backwardCommands(key)
	if err != nil {
		return nil, err
	}
	return &stepReplay{sections: []*commandSection{{name: "a step", phases: []sectionPhase{
		{"forward", begin, x.profile.forwardEnd}, {"backward", backward, x.profile.backwardEnd}, {"optimizer", end, 0},
	}}}}, nil
}

// backwardCommands returns the commands of the backward pass. They pass each bucket to key.sync
// as soon as it is complete, unless key.sync is nil.
func (x *executable) backwardCommands(key replayKey) (list []command, err error) {
	p, sync, next := key.microbatch, key.sync, 0
	hand := func(upTo int) error {
		for ; next < len(x.exchange.buckets) && x.exchange.buckets[next].ready <= upTo; next++ {
			b := x.exchange.buckets[next]
			gathered, err := x.accumulationCommands(p, b.offset, b.size)
			if err != nil {
				return err
			}
			list = append(list, gathered...)
			if sync == nil {
				continue
			}
			size := b.size
			if next == len(x.exchange.buckets)-1 {
				size += regionAlignmentElements // and the loss after the last bucket
			}
			list = append(list, &exchangeBucketCall{sync, next, device.Buffer{
				Pointer: uintptr(x.memory.grads.ptr.Add(int64(4 * b.offset))), Type: device.F32, Elements: size,
			}, x.exchange.fork})
		}
		return nil
	}
	for i := x.schedule.forward; i < len(x.schedule.commands); i++ {
		list = append(list, x.taskCommands(i, key)...)
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
		gathered, err := x.accumulationCommands(p, 0, x.exchange.lossAt)
		return append(list, gathered...), err
	}
	if err := hand(math.MaxInt); err != nil {
		return nil, err
	}
	return append(list, &waitForExchangeCall{x.exchange.join}), nil
}

// runUnsplitStep runs a step in which the host has nothing to do between the commands.
func (x *executable) runUnsplitStep(ctx context.Context, p *stepReplay, sync engine.GradSync, t *engine.Timing) error {
	stop := func() error { return nil }
	if sync != nil {
		if watch := sync.Capabilities().Watch; watch != nil {
			stop = watch(ctx)
		}
	}
	err := x.launchUnsplitStep(p.sections[0])
	if watchErr := stop(); watchErr != nil {
		return watchErr // the cause of any other error
	}
	if err != nil {
		return err
	}
	if err := x.measureStepTimes(p.sections[0], t); err != nil {
		return err
	}
	return x.readResults(true)
}

func (x *executable) launchUnsplitStep(s *commandSection) error {
	g := x.gpu
	if err := g.driver.EventRecord(x.profile.begin, g.compute); err != nil {
		return g.explainLostGPU(err)
	}
	if err := s.enqueue(g, x.engine.options.Graph); err != nil {
		return err
	}
	if err := g.driver.EventRecord(x.profile.end, g.compute); err != nil {
		return g.explainLostGPU(err)
	}
	if err := x.prefetchNextInputs(); err != nil {
		return err
	}
	return g.explainLostGPU(g.driver.EventSynchronize(x.profile.end))
}

func (x *executable) measureStepTimes(s *commandSection, t *engine.Timing) error {
	d := x.gpu.driver
	whole, err := d.EventElapsed(x.profile.begin, x.profile.end)
	if err != nil {
		return x.gpu.explainLostGPU(err)
	}
	if !s.replayed {
		forward, err1 := d.EventElapsed(x.profile.begin, x.profile.forwardEnd)
		backward, err2 := d.EventElapsed(x.profile.forwardEnd, x.profile.backwardEnd)
		if err := errors.Join(err1, err2); err != nil {
			return x.gpu.explainLostGPU(err)
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

// readResults reads the results of a step from host memory. It returns an error if the loss is
// not finite. If lossExchanged is set, it also returns one if the loss of another rank is not
// finite.
func (x *executable) readResults(lossExchanged bool) error {
	data := x.memory.result.byteSlice()
	c := kernels.DecodeControl(data[resultControl:])
	if err := x.readLoss(); err != nil {
		return err
	}
	if lossExchanged && len(x.exchange.buckets) > 0 && x.program.Loss >= 0 {
		if v := decodeFloat32(data[resultTail:]); math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("loss of another rank: %w", engine.ErrNonFinite)
		}
	}
	x.last.control = c
	return nil
}

// readLoss stores the loss and the loss scale of the step in x.last. It returns an error if the
// loss is not finite.
func (x *executable) readLoss() error {
	x.last.scale = float64(x.last.control.LossScale) // the scale before this step's update
	if x.program.Loss < 0 {
		return nil
	}
	x.last.loss = decodeFloat32(x.memory.result.byteSlice()[resultLoss:])
	if math.IsNaN(x.last.loss) || math.IsInf(x.last.loss, 0) {
		return fmt.Errorf("loss is %v: %w", x.last.loss, engine.ErrNonFinite)
	}
	return nil
}

func decodeFloat32(b []byte) float64 {
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
}

// restoreStates restores the states from before the step, unless the GPU is lost.
func (x *executable) restoreStates() error {
	g := x.gpu
	if g.lost != nil || x.memory.backup.bytes == 0 {
		return nil
	}
	if err := g.synchronize(); err != nil {
		return err
	}
	if err := g.driver.MemcpyDtoDAsync(x.store.states.ptr, x.memory.backup.ptr, x.memory.backup.bytes, g.compute); err != nil {
		return g.explainLostGPU(err)
	}
	return g.synchronize()
}
