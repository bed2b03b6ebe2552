package strategy

import (
	"context"
	"errors"
	"time"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/strategy/internal/vector"
)

// DDP is data parallelism with replicated parameters. It replaces each gradient bucket by its mean
// over all ranks while the backward pass continues, and every worker's optimizer applies the same
// update. It is also an engine.GradSync, for callers that run an executable themselves.
type DDP struct {
	*bucketQueue
	equalReplicas
	broadcasts bool // copy rank 0's running statistics to all ranks before each batch
}

// NewDDP returns a DDP that exchanges through group. If ctx is canceled, operations in
// progress are canceled too. In a group of one rank, DDP exchanges nothing.
func NewDDP(ctx context.Context, group collective.Group) *DDP {
	return &DDP{bucketQueue: newBucketQueue(ctx, group, averageBucket), equalReplicas: equalReplicas{group}}
}

// Step implements Strategy. The executable updates its parameters by the mean gradient.
func (d *DDP) Step(ctx context.Context, exe engine.Executable, s Step) (engine.Timing, error) {
	var broadcast time.Duration
	if d.broadcasts {
		begin := time.Now()
		if err := d.broadcastRunningStatistics(exe); err != nil {
			return engine.Timing{}, err
		}
		broadcast = time.Since(begin)
	}
	if d.bucketQueue.group.Size() == 1 && s.Batches <= 1 && !exe.Program().HasSyncBatchNorm() {
		return exe.Step(ctx, nil, &s.Update) // without an exchange, engines can update weights during the backward pass
	}
	t, err := d.runBatch(ctx, exe, d.bucketQueue, s, &s.Update)
	t.Wait += broadcast
	return t, err
}

func (d *DDP) broadcastRunningStatistics(exe engine.Executable) error {
	p := exe.Program()
	if d.bucketQueue.group.Size() == 1 || len(p.States) == 0 {
		return nil
	}
	names, size := make([]string, len(p.States)), 0
	for i, id := range p.States {
		names[i] = p.Tensors[id].Name
		size += 8 * p.Tensors[id].Elements()
	}
	return d.exchangeBetweenSteps(size, func(ctx context.Context) error { return BroadcastTensors(ctx, exe, d.bucketQueue.group, names) })
}

// newDDPOrNCCL returns an *NCCL if every rank has its own GPU and the NCCL library. Otherwise it
// returns a *DDP, which exchanges gradients through the host. All ranks get the same type.
func newDDPOrNCCL(ctx context.Context, c Config, gpu *engine.Accelerator, group collective.Group) (Strategy, error) {
	switch {
	case c.NoCommunication:
		return newNoCommunication(ctx, group), nil
	case c.Lossy():
		return newCompressedDDP(ctx, c, group), nil
	case c.BroadcastBuffers:
		d := NewDDP(ctx, group)
		d.broadcasts = true
		return d, nil
	}
	if gpu == nil || group.Size() == 1 {
		return NewDDP(ctx, group), nil
	}
	n, err := NewNCCL(ctx, gpu, group, NCCLOptions{})
	if errors.Is(err, ErrSharedGPU) || errors.Is(err, ErrNoNCCL) {
		return NewDDP(ctx, group), nil
	}
	if err != nil {
		return nil, err
	}
	return n, nil
}

// equalReplicas implements Start and State for strategies in which all workers have equal
// parameters and optimizer slots after each step.
type equalReplicas struct{ group collective.Group }

// Start restores saved tensors and copies rank 0's persistent tensors to all ranks.
func (r equalReplicas) Start(ctx context.Context, exe engine.Executable, saved map[string][]float64) error {
	if err := restoreTensors(exe, saved, exe.Names()); err != nil {
		return err
	}
	return BroadcastState(ctx, exe, r.group)
}

func (equalReplicas) Equalize(context.Context, engine.Executable) error { return nil }

// State returns nil, because rank 0's executable has the complete state.
func (equalReplicas) State(context.Context, engine.Executable) (map[string][]float64, error) {
	return nil, nil
}

func averageBucket(q *bucketQueue, b gradientBucket) error {
	return averageBuffer(q.ctx, q.group, b.buffer)
}

func averageBuffer(ctx context.Context, group collective.Group, b device.Buffer) error {
	if err := group.AllReduce(ctx, b); err != nil {
		return err
	}
	vector.Divide(b, group.Size())
	return nil
}
