package strategy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/optim"
)

// NamePipeline is the name of the strategy that divides the network's layers among the
// workers.
const NamePipeline = "pipeline"

// pipeline is pipeline parallelism with one update per optimizer step: each rank has one
// stage of the network, and the batches of an optimizer step, its micro-batches, follow each
// other through the stages. Stages send activations to later stages and gradients to earlier
// ones. Each rank updates the parameters of its own stage.
type pipeline struct {
	*queue
	schedule string
	senders  []*sender // by rank; nil for this rank
	shards   shards
	failed   error // the error that ended the training

	passes   []passOfBatch // remaining passes of the current optimizer step
	running  map[int]*microBatch
	messages []device.Buffer       // by rank: gradients that this rank receives
	received map[int]device.Buffer // by tensor ID: the parts of messages
	differ   bool                  // other ranks' stages were updated since the last Equalize
	complete int64                 // size of all parameters in bytes
	bubble   Bubble
}

// Bubble is the time in which a stage of a pipeline was idle, because it waited for other
// stages.
type Bubble struct {
	Idle, Total time.Duration // waiting, and in steps altogether
	// Formula is (S−1)/(M+S−1) for S stages and M micro-batches in the largest optimizer step:
	// the idle part of a step if all stages take equal times and messages take none.
	Formula float64
}

// BubbleMeasurer is a Strategy whose workers are stages that wait for each other.
type BubbleMeasurer interface {
	Strategy
	// TakeBubble returns the bubble of this rank's stage in the steps since the previous call.
	TakeBubble() Bubble
}

// newPipeline creates the strategy of one worker.
func newPipeline(ctx context.Context, c Config, _ engine.Engine, group collective.Group) (Strategy, error) {
	p := &pipeline{queue: newQueue(ctx, group, nil), schedule: c.schedule(), running: map[int]*microBatch{}, received: map[int]device.Buffer{}}
	p.accumulator = NewAccumulator(p.queue)
	p.senders = make([]*sender, group.Size())
	for to := range p.senders {
		if to != group.Rank() {
			p.senders[to] = newSender(p.ctx, p.cancel, group, to)
		}
	}
	return p, nil
}

// stageOf returns exe as a stage of the group's pipeline.
func (p *pipeline) stageOf(exe engine.Executable) (*StagedExecutable, error) {
	x, ok := exe.(*StagedExecutable)
	if !ok || len(x.stages) != p.group.Size() || x.stage != p.group.Rank() {
		return nil, fmt.Errorf("strategy %s: the executable is not stage %d of %d: load it with LoadStage", NamePipeline, p.group.Rank(), p.group.Size())
	}
	return x, nil
}

// Start copies rank 0's parameters and running statistics to all ranks, and restores the
// optimizer's slots of this rank's stage.
func (p *pipeline) Start(ctx context.Context, exe engine.Executable, saved map[string][]float64) error {
	x, err := p.stageOf(exe)
	if err != nil {
		return err
	}
	names := withoutSlots(exe)
	if err := restoreTensors(exe, saved, names); err != nil {
		return err
	}
	if err := BroadcastTensors(ctx, exe, p.group, names); err != nil {
		return err
	}
	if err := p.startShards(x); err != nil {
		return err
	}
	if err := p.shards.restoreSlots(saved); err != nil {
		return err
	}
	for _, ids := range x.stages[x.stage].Gradients {
		message, parts := x.newMessage(ids)
		p.messages = append(p.messages, message)
		for i, id := range ids {
			p.received[id] = parts[i]
		}
	}
	own, _ := p.shards.ownedBytes()
	bytes := []float64{float64(own)}
	err = p.sumFloat64s(bytes)
	p.complete = int64(bytes[0])
	return err
}

// startShards makes this rank the owner of its stage's parameters. Every rank lists all
// parameters of the network, so that the ranks can sum up norms.
func (p *pipeline) startShards(x *StagedExecutable) error {
	if err := p.shards.start(x.backward, func(n int) (lo, hi int) { return 0, n }); err != nil {
		return err
	}
	own := map[string]piece{}
	var nothing piece
	for i, b := range p.shards.buckets {
		for _, q := range b.Parameters {
			own[q.Name] = piece{i, q.Offset, q.Offset + q.Weights.Len(), q.Weights, b.Gradients.Slice(q.Offset, q.Offset+q.Weights.Len()), q.Vector}
			nothing = piece{weights: q.Weights.Slice(0, 0), gradient: q.Weights.Slice(0, 0)}
		}
	}
	p.shards.pieces = nil
	for _, q := range x.program.Params {
		part, ok := own[q.Name]
		if !ok {
			part = nothing
			part.vector = len(x.program.Tensors[q.Tensor].Shape) == 1
		}
		p.shards.pieces = append(p.shards.pieces, part)
	}
	return nil
}

// Step runs the forward pass of one micro-batch, and those backward passes that the schedule
// has before the next forward pass. After the last micro-batch, it updates the parameters of
// this rank's stage.
func (p *pipeline) Step(ctx context.Context, exe engine.Executable, s Step) (t engine.Timing, err error) {
	if p.failed != nil {
		return t, p.failed
	}
	defer func() { p.failed = err }()
	x, err := p.stageOf(exe)
	if err != nil {
		return t, err
	}
	begin := time.Now()
	if s.Batch <= 1 {
		p.passes, x.sum, x.loss = scheduleOf(p.schedule, len(x.stages), x.stage, s.Batches), 0, 0
		p.accumulator.Begin(s.Batches)
		if f := bubbleOf(len(x.stages), s.Batches); p.bubble.Total == 0 || f < p.bubble.Formula {
			p.bubble.Formula = f
		}
	}
	for first := true; len(p.passes) > 0 && (first || p.passes[0].backward); first = false {
		next := p.passes[0]
		p.passes = p.passes[1:]
		if next.backward {
			err = p.runBackward(ctx, x, next.batch, &t)
		} else {
			err = p.runForward(ctx, x, next.batch, &t)
		}
		if err != nil {
			return t, p.describe(err)
		}
	}
	if s.isLast() {
		err = p.finishStep(x, s.Update, &t)
	}
	p.bubble.Idle += t.Wait
	p.bubble.Total += time.Since(begin)
	return t, err
}

// describe returns the error to report after an operation has failed with err: if the failure
// of a sender has canceled the operation, the error of the sender.
func (p *pipeline) describe(err error) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	for _, s := range p.senders {
		if s != nil {
			err = cmp.Or(s.failure(), err)
		}
	}
	return err
}

// runForward receives the activations of a micro-batch, runs its forward pass and sends the
// results to the stages that need them.
func (p *pipeline) runForward(ctx context.Context, x *StagedExecutable, batch int, t *engine.Timing) error {
	b := x.takeMicroBatch()
	p.running[batch] = b
	if err := p.receive(x.stages[x.stage].Activations, b.messages, t); err != nil {
		return fmt.Errorf("receive activations of micro-batch %d: %w", batch, err)
	}
	begin := time.Now()
	err := x.runForward(ctx, b)
	if err != nil {
		return fmt.Errorf("micro-batch %d: %w", batch, err)
	}
	if x.HasOutputs() {
		x.sum += x.forward.Loss()
	}
	for to, stage := range x.stages {
		for _, id := range stage.Activations[x.stage] {
			p.senders[to].add(b.tensors[id])
		}
		p.send(to)
	}
	t.Forward += time.Since(begin)
	return nil
}

// runBackward receives the gradients of a micro-batch, runs its backward pass and sends the
// results to the stages that need them.
func (p *pipeline) runBackward(ctx context.Context, x *StagedExecutable, batch int, t *engine.Timing) error {
	if err := p.receive(x.stages[x.stage].Gradients, p.messages, t); err != nil {
		return fmt.Errorf("receive gradients of micro-batch %d: %w", batch, err)
	}
	begin := time.Now()
	b := p.running[batch]
	delete(p.running, batch)
	if err := x.runBackward(ctx, b, p.received, p.accumulator); err != nil {
		return fmt.Errorf("micro-batch %d: %w", batch, err)
	}
	x.release(b)
	for to, stage := range x.stages {
		for _, id := range stage.Gradients[x.stage] {
			v := x.newBuffer(x.program.Tensors[id].Elements())
			if err := readOutput(x.backward, plan.InputName(id), v); err != nil {
				return err
			}
			p.senders[to].add(v)
		}
		p.send(to)
	}
	t.Backward += time.Since(begin)
	return nil
}

// receive receives one message from each stage that computes one of the given tensors, and
// adds the time of waiting to t.
func (p *pipeline) receive(ids [][]int, messages []device.Buffer, t *engine.Timing) error {
	begin := time.Now()
	for from, list := range ids {
		if len(list) == 0 {
			continue
		}
		if err := p.group.Recv(p.ctx, messages[from], from); err != nil {
			return err
		}
	}
	took := time.Since(begin)
	t.Wait += took
	p.mu.Lock()
	p.stats.AllReduce += took
	p.mu.Unlock()
	return nil
}

// send sends the tensors that were added for rank to as one message.
func (p *pipeline) send(to int) {
	if s := p.senders[to]; s != nil {
		n := s.send()
		p.mu.Lock()
		if n > 0 {
			p.markQueued()
		}
		p.stats.Bytes += n
		p.mu.Unlock()
	}
}

// finishStep waits for this rank's messages, exchanges the losses and updates the parameters
// of this rank's stage.
func (p *pipeline) finishStep(x *StagedExecutable, u optim.Update, t *engine.Timing) error {
	begin := time.Now()
	for _, s := range p.senders {
		if s != nil {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	loss := []float64{x.sum}
	if err := p.sumFloat64s(loss); err != nil {
		return fmt.Errorf("exchange losses: %w", err)
	}
	x.loss = loss[0]
	t.Wait += time.Since(begin)
	begin = time.Now()
	if err := p.shards.apply(u, p.sumFloat64s); err != nil {
		return err
	}
	p.differ = p.group.Size() > 1
	t.Optimizer += time.Since(begin)
	return nil
}

// Equalize copies each stage's parameters and running statistics to all ranks.
func (p *pipeline) Equalize(_ context.Context, exe engine.Executable) error {
	x, err := p.stageOf(exe)
	if err != nil || !p.differ {
		return err
	}
	p.differ = false
	return p.operate(0, func(ctx context.Context) error {
		for stage := range x.stages {
			for _, name := range x.tensorsOf(stage) {
				v, err := exe.Get(name)
				if err != nil {
					return err
				}
				if err := p.group.Broadcast(ctx, device.Buffer{F64: v}, stage); err != nil {
					return fmt.Errorf("copy %s to all ranks: %w", name, err)
				}
				if err := exe.Set(name, v); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// tensorsOf returns the names of the parameters and running statistics of a stage.
func (x *StagedExecutable) tensorsOf(stage int) []string {
	var names []string
	p := x.stages[stage].Forward
	for _, q := range p.Params {
		names = append(names, q.Name)
	}
	for _, id := range p.States {
		names = append(names, p.Tensors[id].Name)
	}
	return names
}

// State returns, on rank 0, the parameters and running statistics of the other stages and the
// optimizer's slots of all stages.
func (p *pipeline) State(_ context.Context, exe engine.Executable) (map[string][]float64, error) {
	x, err := p.stageOf(exe)
	if err != nil {
		return nil, err
	}
	own, err := p.shards.collectSlots(func(device.Buffer) error { return nil })
	if err != nil || p.group.Size() == 1 {
		return own, err
	}
	rank, all := p.group.Rank(), own
	err = p.operate(0, func(ctx context.Context) error {
		for stage := 1; stage < len(x.stages); stage++ {
			for _, name := range x.checkpointNames(stage, slices.Sorted(maps.Keys(p.shards.slots))) {
				var err error
				switch v, ok := own[name]; {
				case rank == 0:
					all[name] = make([]float64, x.elements(name))
					err = p.group.Recv(ctx, device.Buffer{F64: all[name]}, stage)
				case rank == stage && !ok:
					if v, err = exe.Get(name); err != nil {
						return err
					}
					err = p.group.Send(ctx, device.Buffer{F64: v}, 0)
				case rank == stage:
					err = p.group.Send(ctx, device.Buffer{F64: v}, 0)
				}
				if err != nil {
					return fmt.Errorf("collect %s: %w", name, err)
				}
			}
		}
		return nil
	})
	if rank != 0 {
		all = nil
	}
	return all, err
}

// checkpointNames returns the names of the parameters and running statistics of a stage, and
// of its parameters' optimizer slots with the given names.
func (x *StagedExecutable) checkpointNames(stage int, slots []string) []string {
	names := x.tensorsOf(stage)
	for _, slot := range slots {
		for _, q := range x.stages[stage].Forward.Params {
			names = append(names, slotPrefix+slot+"."+q.Name)
		}
	}
	return names
}

// elements returns the number of elements of a persistent tensor.
func (x *StagedExecutable) elements(name string) int {
	if rest, ok := strings.CutPrefix(name, slotPrefix); ok {
		_, name, _ = strings.Cut(rest, ".")
	}
	for _, t := range x.program.Tensors {
		if t.Name == name && (t.Role == plan.Parameter || t.Role == plan.State) {
			return t.Elements()
		}
	}
	return 0
}

// OptimizerBytes returns the size of the optimizer's state of this rank's stage, and of the
// whole network.
func (p *pipeline) OptimizerBytes(u optim.Update) (own, complete int64) {
	own, _ = p.shards.optimizerBytes(u)
	return own, int64(len(u.Slots())) * p.complete
}

// TakeBubble returns the bubble of this rank's stage in the steps since the previous call.
func (p *pipeline) TakeBubble() Bubble {
	b := p.bubble
	p.bubble = Bubble{}
	return b
}

// Close cancels operations in progress and ends all goroutines.
func (p *pipeline) Close() error {
	err := p.queue.Close()
	for _, s := range p.senders {
		if s != nil {
			s.close()
		}
	}
	return err
}
