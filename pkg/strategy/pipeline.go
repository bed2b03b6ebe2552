package strategy

import (
	"context"
	"fmt"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/optim"
	"lockstep/pkg/strategy/internal/shard"
	"lockstep/pkg/strategy/stage"
)

// NamePipeline is the name of the strategy that divides the network's layers among the
// workers.
const NamePipeline = "pipeline"

// pipeline is pipeline parallelism with one update per optimizer step. Each rank has one stage of
// the network. The batches of an optimizer step, its micro-batches, pass through the stages one
// after another. Stages send activations to later stages and gradients to earlier ones. Each rank
// updates the parameters of its own stage.
type pipeline struct {
	*bucketQueue
	runner   *stage.Runner
	shard    shard.Shard
	failed   error // the error that ended the training
	differ   bool  // other ranks' stages were updated since the last Equalize
	complete int64 // size of all parameters in bytes
	perBatch int   // bytes that all stages send for one micro-batch
	bubble   Bubble
}

// Bubble is the time in which a stage of a pipeline was idle because it waited for other stages.
type Bubble struct {
	Idle, Total time.Duration // waiting, and in steps altogether
	// Formula is the fraction of a step that is idle if all stages take the same time and messages
	// take none: (S−1)/(M+S−1) for S stages, and M micro-batches in the largest optimizer step.
	Formula float64
}

// BubbleMeasurer is a Strategy that measures how long pipeline stages wait for each other.
type BubbleMeasurer interface {
	Strategy
	// TakeBubble returns the bubble of this rank's stage in the steps since the previous call.
	TakeBubble() Bubble
}

func newPipeline(ctx context.Context, c Config, _ *engine.Accelerator, group collective.Group) (Strategy, error) {
	p := &pipeline{bucketQueue: newBucketQueue(ctx, group, nil)}
	p.accumulator = NewAccumulator(p.bucketQueue)
	p.runner = stage.NewRunner(p.ctx, p.cancel, group, c.pipelineSchedule(), p.accumulator, p.countMessage)
	return p, nil
}

// Load loads p, the training program of a network, on e for the given rank of a group of workers.
// With strategy pipeline, it loads only the stage of this rank. share is as in engine.Engine.Load;
// with strategy pipeline, it must contain the whole network.
func Load(c Config, e engine.Engine, p *plan.Program, share engine.Executable, workers, rank int) (engine.Executable, error) {
	if !c.Staged() {
		return e.Load(p, share)
	}
	x, err := stage.Load(e, p, share, workers, rank)
	if err != nil { // not a nil *stage.Executable in an interface
		return nil, err
	}
	return x, nil
}

// countMessage adds a message sent to another stage to the statistics. size is in bytes.
func (p *pipeline) countMessage(size int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.markQueued()
	p.stats.Bytes += size
}

func (p *pipeline) stageOf(exe engine.Executable) (*stage.Executable, error) {
	if x, ok := exe.(*stage.Executable); ok {
		if stages, own := x.Stages(); stages == p.group.Size() && own == p.group.Rank() {
			return x, nil
		}
	}
	return nil, fmt.Errorf("strategy %s: the executable is not stage %d of %d: load it with strategy.Load", NamePipeline, p.group.Rank(), p.group.Size())
}

// Start copies rank 0's parameters and running statistics to all ranks, and restores the
// optimizer's slots of this rank's stage.
func (p *pipeline) Start(ctx context.Context, exe engine.Executable, saved map[string][]float64) error {
	x, err := p.stageOf(exe)
	if err != nil {
		return err
	}
	names := namesWithoutSlots(exe)
	if err := restoreTensors(exe, saved, names); err != nil {
		return err
	}
	if err := BroadcastTensors(ctx, exe, p.group, names); err != nil {
		return err
	}
	if err := p.shard.StartStage(x.Backward(), x.Program()); err != nil {
		return err
	}
	if err := p.shard.RestoreSlots(saved); err != nil {
		return err
	}
	p.runner.Start(x)
	p.perBatch = x.SentBytes()
	own, _ := p.shard.OwnedBytes()
	bytes := []float64{float64(own)}
	err = p.sumFloat64s(bytes)
	p.complete = int64(bytes[0])
	return err
}

// Step runs the forward pass of one micro-batch, and the backward passes that the schedule places
// before the next forward pass. After the last micro-batch, it updates the parameters of this
// rank's stage.
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
		p.runner.Begin(x, s.Batches)
		p.accumulator.Begin(s.Batches)
		if f := stage.Bubble(p.group.Size(), s.Batches); p.bubble.Total == 0 || f < p.bubble.Formula {
			p.bubble.Formula = f
		}
	}
	err = p.runner.RunNext(ctx, x, &t)
	p.mu.Lock()
	p.stats.AllReduce += t.Wait
	p.mu.Unlock()
	if err != nil {
		return t, err
	}
	if s.isLast() {
		err = p.finishStep(x, s.Update, &t)
	}
	p.bubble.Idle += t.Wait
	p.bubble.Total += time.Since(begin)
	return t, err
}

// finishStep waits until the messages are sent, exchanges the losses and updates this stage.
func (p *pipeline) finishStep(x *stage.Executable, u optim.Update, t *engine.Timing) error {
	begin := time.Now()
	end := p.runner.BeginFinalWait()
	defer end() // after an error
	if err := p.runner.Flush(); err != nil {
		return err
	}
	loss := []float64{x.OwnLoss()}
	if err := p.sumFloat64s(loss); err != nil {
		return fmt.Errorf("exchange losses: %w", err)
	}
	x.SetLoss(loss[0])
	t.Wait += time.Since(begin)
	end()
	begin = time.Now()
	if err := p.shard.ApplyUpdate(u, p.sumFloat64s); err != nil {
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
	return p.exchangeBetweenSteps(0, func(ctx context.Context) error {
		for stage := range p.group.Size() {
			for _, name := range x.TensorsOf(stage) {
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

// State returns, on rank 0, the parameters and running statistics of the other stages and the
// optimizer's slots of all stages.
func (p *pipeline) State(_ context.Context, exe engine.Executable) (map[string][]float64, error) {
	x, err := p.stageOf(exe)
	if err != nil {
		return nil, err
	}
	own, err := p.shard.CollectSlots(func(device.Buffer) error { return nil })
	if err != nil || p.group.Size() == 1 {
		return own, err
	}
	rank, all := p.group.Rank(), own
	err = p.exchangeBetweenSteps(0, func(ctx context.Context) error {
		for stage := 1; stage < p.group.Size(); stage++ {
			for _, name := range x.CheckpointNames(stage, p.shard.SlotNames()) {
				var err error
				switch v, ok := own[name]; {
				case rank == 0:
					all[name] = make([]float64, x.Elements(name))
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

// OptimizerBytes implements OptimizerSharder.
func (p *pipeline) OptimizerBytes(u optim.Update) (own, complete int64) {
	own, _ = p.shard.OptimizerBytes(u)
	return own, int64(len(u.Slots())) * p.complete
}

func (p *pipeline) SentBytes(batches float64) float64 {
	return batches * float64(p.perBatch) / float64(p.group.Size())
}

func (p *pipeline) TakeBubble() Bubble {
	b := p.bubble
	p.bubble = Bubble{}
	return b
}

func (p *pipeline) Close() error {
	err := p.bucketQueue.Close()
	p.runner.Close()
	return err
}
