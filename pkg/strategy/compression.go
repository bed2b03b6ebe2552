package strategy

import (
	"context"
	"fmt"

	"lockstep/pkg/collective"
	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/strategy/internal/compress"
	"lockstep/pkg/strategy/internal/shard"
)

// CompressionPrefix is the prefix of the names of tensors in which gradient_compression keeps its
// state. It follows RankPrefix and precedes the name of the parameter. The tensors have one
// dimension.
const CompressionPrefix = "compression."

// residualPrefix is the prefix of the names of a worker's residuals, before the name of the
// parameter. A residual is the part of a gradient that was not sent yet.
const residualPrefix = CompressionPrefix + "rest."

// compressedDDP is a DDP whose workers exchange compressed gradients. Each worker keeps the
// residual of its gradients, which compression has left out, and adds it to the next gradients.
type compressedDDP struct {
	*DDP
	method  string // compress.FP16 or compress.BF16
	memory  *engine.HostMemory
	buckets []compressedBucket
	forgets bool // in a test: the rest is dropped
}

// compressedBucket contains the residual of one bucket.
type compressedBucket struct {
	parameters []engine.ParameterMemory
	rest       device.Buffer // like the gradients
}

func newCompressedDDP(ctx context.Context, c Config, group collective.Group) *compressedDDP {
	d := &compressedDDP{method: c.GradientCompression}
	q := newNegotiatingQueue(ctx, group, func(q *bucketQueue) ([]completedExchange, error) { return exchangeFirstBucket(q, d.exchangeBucket) })
	d.DDP = &DDP{bucketQueue: q, equalReplicas: equalReplicas{group}, broadcasts: c.BroadcastBuffers}
	return d
}

// Start implements Strategy. Each worker of a resumed run also restores the residuals of its
// gradients.
func (d *compressedDDP) Start(ctx context.Context, exe engine.Executable, saved map[string][]float64) error {
	memory, err := shard.HostMemoryOf(exe)
	if err != nil {
		return err
	}
	d.memory, d.buckets = memory, nil
	for _, b := range memory.Buckets() {
		d.buckets = append(d.buckets, compressedBucket{b.Parameters, shard.NewStagingBuffer([]engine.BucketMemory{b})})
	}
	if err := d.restoreResiduals(saved); err != nil {
		return err
	}
	return d.equalReplicas.Start(ctx, exe, saved)
}

// exchangeBucket replaces the gradients in one bucket by the mean of all workers' compressed
// gradients. It returns the number of bytes that this worker contributes.
func (d *compressedDDP) exchangeBucket(q *bucketQueue, b gradientBucket) (sent int, err error) {
	if b.index >= len(d.buckets) {
		return 0, fmt.Errorf("got bucket %d of %d: call Start first", b.index, len(d.buckets))
	}
	own := &d.buckets[b.index]
	if b.buffer.F64 != nil {
		sent, err = compress.AverageHalfPrecision(q.ctx, q.group, d.method, b.buffer.F64, own.rest.F64)
	} else {
		sent, err = compress.AverageHalfPrecision(q.ctx, q.group, d.method, b.buffer.F32, own.rest.F32)
	}
	if d.forgets {
		clear(own.rest.F32)
		clear(own.rest.F64)
	}
	return sent, err
}

// forEachResidual calls f for each parameter, with the name of the residual, the name of the
// parameter and the residual of its gradient.
func (d *compressedDDP) forEachResidual(f func(name, param string, rest device.Buffer) error) error {
	for _, b := range d.buckets {
		for _, p := range b.parameters {
			if err := f(residualPrefix+p.Name, p.Name, b.rest.Slice(p.Offset, p.Offset+p.Weights.Len())); err != nil {
				return err
			}
		}
	}
	return nil
}

// restoreResiduals restores this worker's residuals, if the checkpoint contains them.
func (d *compressedDDP) restoreResiduals(saved map[string][]float64) error {
	return d.forEachResidual(func(name, param string, rest device.Buffer) error {
		v, ok := saved[RankPrefix(d.bucketQueue.group.Rank())+name]
		if !ok {
			return nil
		}
		if err := d.memory.Pack(param, v, rest); err != nil {
			return fmt.Errorf("restore gradient compression: %w", err)
		}
		return nil
	})
}

// State returns, on rank 0, the residuals of all workers.
func (d *compressedDDP) State(context.Context, engine.Executable) (map[string][]float64, error) {
	n, rank := d.bucketQueue.group.Size(), d.bucketQueue.group.Rank()
	if n == 1 {
		return nil, nil
	}
	all := map[string][]float64{}
	err := d.exchangeBetweenSteps(0, func(ctx context.Context) error {
		return d.forEachResidual(func(name, param string, rest device.Buffer) error {
			own, err := d.memory.Unpack(param, rest)
			if err != nil {
				return err
			}
			values := make([]float64, n*len(own))
			copy(values[rank*len(own):], own)
			if err := d.bucketQueue.group.AllGather(ctx, device.Buffer{F64: values}); err != nil {
				return fmt.Errorf("collect %s: %w", name, err)
			}
			for r := range n {
				all[RankPrefix(r)+name] = values[r*len(own) : (r+1)*len(own)]
			}
			return nil
		})
	})
	if err != nil || rank != 0 {
		return nil, err
	}
	return all, nil
}

// SentBytes implements SentEstimator. It ignores the number of batches per step, because the
// workers exchange the mean gradient over the batches.
func (d *compressedDDP) SentBytes(float64) float64 {
	sum := 0.0
	for _, b := range d.buckets {
		sum += allReduceBytes(d.bucketQueue.group.Size(), float64(compress.HalfPrecisionBytes(b.rest.Len())))
	}
	return sum
}
