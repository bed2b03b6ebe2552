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

// CompressionPrefix is the prefix of the names of the tensors that gradient_compression needs to
// continue, after RankPrefix and before the name of the parameter. They have no other shape than
// their length.
const CompressionPrefix = "compression."

// The tensors of each parameter: a worker's rest, and with powersgd the factor of the last step.
const (
	restPrefix   = CompressionPrefix + "rest."
	factorPrefix = CompressionPrefix + "factor."
)

// compressedDDP is a DDP whose workers exchange compressed gradients. Each worker keeps the rest
// of its gradients that it has not sent, and adds it to the next ones.
type compressedDDP struct {
	*DDP
	method  compress.Method
	memory  engine.HostMemory
	buckets []compressedBucket
	forgets bool // in a test: the rest is dropped
}

// compressedBucket is the state of one bucket.
type compressedBucket struct {
	parameters []engine.ParameterMemory
	rest       device.Buffer               // like the gradients
	matrices   map[string]*compress.Matrix // by parameter: those that powersgd compresses
}

// newCompressedDDP creates the strategy of one worker.
func newCompressedDDP(ctx context.Context, c Config, group collective.Group) (*compressedDDP, error) {
	method, err := compress.Parse(c.GradientCompression)
	if err != nil {
		return nil, fmt.Errorf("strategy.gradient_compression: %w", err)
	}
	d := &compressedDDP{method: method}
	q := newNegotiatingQueue(ctx, group, func(q *queue) ([]exchange, error) { return exchangeFirst(q, d.exchangeBucket) })
	d.DDP = &DDP{queue: q, replicas: replicas{group}, broadcasts: c.BroadcastBuffers}
	return d, nil
}

// Start implements Strategy. Each worker of a resumed run also restores the rest of its gradients.
func (d *compressedDDP) Start(ctx context.Context, exe engine.Executable, saved map[string][]float64) error {
	memory, err := shard.MemoryOf(exe)
	if err != nil {
		return err
	}
	d.memory, d.buckets = memory, nil
	for i, b := range memory.BucketMemory() {
		own := compressedBucket{parameters: b.Parameters, rest: shard.NewStaging([]engine.BucketMemory{b})}
		if d.method.Name == compress.PowerSGD {
			own.matrices = newMatrices(exe, b, d.method.Rank, i)
		}
		d.buckets = append(d.buckets, own)
	}
	if err := d.restore(saved); err != nil {
		return err
	}
	return d.replicas.Start(ctx, exe, saved)
}

// newMatrices returns the parameters of a bucket whose gradients powersgd compresses: those with
// two or more dimensions, unless the factors of rank r would be larger than the gradient.
func newMatrices(exe engine.Executable, b engine.BucketMemory, r, bucket int) map[string]*compress.Matrix {
	shapes := map[string][]int{}
	p := exe.Program()
	for _, param := range p.Params {
		shapes[param.Name] = p.Tensors[param.Tensor].Shape
	}
	matrices := map[string]*compress.Matrix{}
	for k, param := range b.Parameters {
		shape := shapes[param.Name]
		if param.Vector || len(shape) < 2 {
			continue
		}
		columns := 1
		for _, n := range shape[1:] {
			columns *= n
		}
		if compress.IsSmaller(shape[0], columns, r) {
			matrices[param.Name] = &compress.Matrix{Rows: shape[0], Columns: columns, Factor: compress.InitialFactor(columns, r, bucket<<16+k)}
		}
	}
	return matrices
}

// exchangeBucket replaces one bucket by the mean of all workers' compressed gradients, and returns
// the number of bytes that this worker contributes.
func (d *compressedDDP) exchangeBucket(q *queue, b bucket) (sent int, err error) {
	if b.index >= len(d.buckets) {
		return 0, fmt.Errorf("got bucket %d of %d: call Start first", b.index, len(d.buckets))
	}
	own := &d.buckets[b.index]
	if b.buffer.F64 != nil {
		sent, err = exchangeCompressed(q.ctx, d, own, b.buffer.F64, own.rest.F64)
	} else {
		sent, err = exchangeCompressed(q.ctx, d, own, b.buffer.F32, own.rest.F32)
	}
	if d.forgets {
		clear(own.rest.F32)
		clear(own.rest.F64)
	}
	return sent, err
}

// exchangeCompressed exchanges the gradients of bucket b.
func exchangeCompressed[T float32 | float64](ctx context.Context, d *compressedDDP, b *compressedBucket, gradient, rest []T) (int, error) {
	switch d.method.Name {
	case compress.TopK:
		return compress.Largest(ctx, d.queue.group, d.method.Ratio, gradient, rest)
	case compress.PowerSGD:
		return exchangeFactors(ctx, d, b, gradient, rest)
	}
	return compress.Half(ctx, d.queue.group, d.method.Name, gradient, rest)
}

// exchangeFactors exchanges the gradients of bucket b by powersgd.
func exchangeFactors[T float32 | float64](ctx context.Context, d *compressedDDP, b *compressedBucket, gradient, rest []T) (int, error) {
	for i := range gradient {
		gradient[i] += rest[i]
	}
	clear(rest)
	var matrices []*compress.Matrix
	var small []T
	for _, p := range b.parameters {
		part := gradient[p.Offset:][:p.Weights.Len()]
		m := b.matrices[p.Name]
		if m == nil {
			small = append(small, part...)
			continue
		}
		var err error
		if m.Values, err = d.memory.Unpack(p.Name, compress.AsBuffer(part)); err != nil {
			return 0, err
		}
		matrices = append(matrices, m)
	}
	sent, err := compress.FactorGradients(ctx, d.queue.group, d.method.Rank, matrices, small)
	if err != nil {
		return 0, err
	}
	for _, p := range b.parameters {
		part := gradient[p.Offset:][:p.Weights.Len()]
		m := b.matrices[p.Name]
		if m == nil {
			small = small[copy(part, small):]
			continue
		}
		if err := d.memory.Pack(p.Name, m.Values, compress.AsBuffer(part)); err != nil {
			return 0, err
		}
		if err := d.memory.Pack(p.Name, m.Rest, compress.AsBuffer(rest[p.Offset:][:p.Weights.Len()])); err != nil {
			return 0, err
		}
		m.Values, m.Rest = nil, nil
	}
	return sent, nil
}

// forEachRest calls f with the name, the parameter and the rest of each parameter's gradient.
func (d *compressedDDP) forEachRest(f func(name, param string, rest device.Buffer) error) error {
	for _, b := range d.buckets {
		for _, p := range b.parameters {
			if err := f(restPrefix+p.Name, p.Name, b.rest.Slice(p.Offset, p.Offset+p.Weights.Len())); err != nil {
				return err
			}
		}
	}
	return nil
}

// restore restores this worker's rest and the factors from a checkpoint, if it has them.
func (d *compressedDDP) restore(saved map[string][]float64) error {
	for _, b := range d.buckets {
		for name, m := range b.matrices {
			v, ok := saved[RankPrefix(0)+factorPrefix+name]
			if ok && len(v) != len(m.Factor) {
				return fmt.Errorf("restore gradient compression of %s: got %d values, want %d: use the rank of the run that wrote the checkpoint", name, len(v), len(m.Factor))
			}
			if ok {
				copy(m.Factor, v)
			}
		}
	}
	return d.forEachRest(func(name, param string, rest device.Buffer) error {
		v, ok := saved[RankPrefix(d.queue.group.Rank())+name]
		if !ok {
			return nil
		}
		if err := d.memory.Pack(param, v, rest); err != nil {
			return fmt.Errorf("restore gradient compression: %w", err)
		}
		return nil
	})
}

// State returns, on rank 0, the rest of every worker and the factors, which are equal on all.
func (d *compressedDDP) State(context.Context, engine.Executable) (map[string][]float64, error) {
	n, rank := d.queue.group.Size(), d.queue.group.Rank()
	if n == 1 {
		return nil, nil
	}
	all := map[string][]float64{}
	err := d.operate(0, func(ctx context.Context) error {
		return d.forEachRest(func(name, param string, rest device.Buffer) error {
			own, err := d.memory.Unpack(param, rest)
			if err != nil {
				return err
			}
			values := make([]float64, n*len(own))
			copy(values[rank*len(own):], own)
			if err := d.queue.group.AllGather(ctx, device.Buffer{F64: values}); err != nil {
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
	for _, b := range d.buckets {
		for name, m := range b.matrices {
			all[RankPrefix(0)+factorPrefix+name] = append([]float64(nil), m.Factor...)
		}
	}
	return all, nil
}

// SentBytes implements SentEstimator. The number of batches of a step does not matter, because the
// workers exchange their mean gradient.
func (d *compressedDDP) SentBytes(float64) float64 {
	n, sum := d.queue.group.Size(), 0.0
	for _, b := range d.buckets {
		elements := b.rest.Len()
		if elements == 0 {
			continue
		}
		size := b.rest.Bytes() / elements
		switch d.method.Name {
		case compress.TopK:
			sum += float64((n - 1) * 2 * compress.KeptElements(d.method.Ratio, elements) * size)
		case compress.PowerSGD:
			factors := 0
			for _, p := range b.parameters {
				if m := b.matrices[p.Name]; m != nil {
					factors += d.method.Rank * (m.Rows + m.Columns)
				} else {
					factors += p.Weights.Len()
				}
			}
			sum += allReduceBytes(n, float64(factors*size))
		default:
			sum += allReduceBytes(n, float64(compress.HalfBytes(elements)))
		}
	}
	return sum
}
