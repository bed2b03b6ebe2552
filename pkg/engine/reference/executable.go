package reference

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/optim"
)

type executable[T number] struct {
	engine   *referenceEngine
	source   *plan.Program // the program passed to Load
	program  *plan.Program // the program in the precision of the engine
	scaler   lossScaler
	store    *tensorStore[T]
	tensors  [][]T // by tensor ID
	buckets  [][]T // the gradients of each bucket
	before   [][]T // copies of the states before the step
	norms    engine.NormExchange
	loss     float64
	elements int64 // allocated values, without the store
}

func (x *executable[T]) Program() *plan.Program { return x.source }
func (x *executable[T]) Loss() float64          { return x.loss }
func (x *executable[T]) Names() []string        { return x.store.allNames() }
func (x *executable[T]) Close() error           { return nil }

func (x *executable[T]) Get(name string) ([]float64, error) { return x.store.get(name) }
func (x *executable[T]) Set(name string, v []float64) error { return x.store.set(name, v) }
func (x *executable[T]) MemoryBytes() int64 {
	return (x.elements + x.store.elementCount()) * bytesPerValue[T]()
}

func (x *executable[T]) SetInput(name string, v []float32) error { return setInput(x, name, v) }

func (x *executable[T]) NextBatch(s engine.Source) (bool, error) { return engine.SetInputs(x, s) }

func (x *executable[T]) Output(name string, dst []float32) error { return readOutput(x, name, dst) }

func (x *executable[T]) setInputBuffer(name string, v device.Buffer) error {
	if v.F64 != nil {
		return setInput(x, name, v.F64)
	}
	return setInput(x, name, v.F32)
}

func (x *executable[T]) outputBuffer(name string, dst device.Buffer) error {
	if dst.F64 != nil {
		return readOutput(x, name, dst.F64)
	}
	return readOutput(x, name, dst.F32)
}

func setInput[T, S number](x *executable[T], name string, v []S) error {
	id := x.program.FindTensor(plan.Input, name)
	if id < 0 || id == x.scaler.input {
		return fmt.Errorf("unknown input %q", name)
	}
	dst := x.tensors[id]
	if len(v) != len(dst) {
		return fmt.Errorf("set input %q: got %d values for shape %v", name, len(v), x.program.Tensors[id].Shape)
	}
	if err := plan.CheckClassIndexes(x.program, id, v); err != nil {
		return err
	}
	for i, f := range v {
		dst[i] = T(f)
	}
	roundTo(x.program.Tensors[id].Stored, dst)
	return nil
}

func readOutput[T, S number](x *executable[T], name string, dst []S) error {
	id := x.program.FindTensor(plan.Output, name)
	if id < 0 {
		return fmt.Errorf("unknown output %q", name)
	}
	src := x.tensors[id]
	if len(dst) != len(src) {
		return fmt.Errorf("read output %q: got a slice of %d values for shape %v", name, len(dst), x.program.Tensors[id].Shape)
	}
	for i, f := range src {
		dst[i] = S(f)
	}
	return nil
}

func (x *executable[T]) Gradient(param string) ([]float64, error) {
	for _, p := range x.program.Params {
		if p.Name == param && p.Grad >= 0 {
			g := toFloat64(x.tensors[p.Grad])
			for i := range g {
				g[i] /= x.scaler.used
			}
			return g, nil
		}
	}
	return nil, fmt.Errorf("read gradient of %q: the program has no such gradient", param)
}

func (x *executable[T]) Step(ctx context.Context, sync engine.GradSync, update *optim.Update) (engine.Timing, error) {
	var t engine.Timing
	apply, err := x.prepareUpdate(x.scaler.subtractSkippedUpdates(update))
	if err != nil {
		return t, fmt.Errorf("step: %w", err)
	}
	for i, id := range x.program.States {
		copy(x.before[i], x.tensors[id])
	}
	if x.program.HasSyncBatchNorm() {
		if err := x.norms.BeginStep(sync); err != nil {
			return t, fmt.Errorf("step: %w", err)
		}
	}
	start := time.Now()
	x.setLossScale()
	if err := x.forward(ctx); err != nil {
		for i, id := range x.program.States {
			copy(x.tensors[id], x.before[i])
		}
		return t, fmt.Errorf("step: %w", err)
	}
	exposed := x.norms.TakeExchangeTime()
	t.Forward, t.Wait = time.Since(start)-exposed, exposed

	start = time.Now()
	if err := x.backward(ctx, sync); err != nil {
		return t, fmt.Errorf("step: %w", err)
	}
	exposed = x.norms.TakeExchangeTime()
	t.Backward, t.Wait = time.Since(start)-exposed, t.Wait+exposed

	if sync != nil && len(x.buckets) > 0 {
		start = time.Now()
		if err := sync.Wait(); err != nil {
			return t, fmt.Errorf("run step: reduce gradients: %w", err)
		}
		t.Wait += time.Since(start)
	}
	start = time.Now()
	if update != nil && x.unscaleGradients() {
		if err := apply(); err != nil {
			return t, fmt.Errorf("step: %w", err)
		}
	}
	t.Optimizer = time.Since(start)
	return t, nil
}

// forward runs the forward pass and sets x.loss. It returns an error that wraps ErrNonFinite if
// the loss is not finite.
func (x *executable[T]) forward(ctx context.Context) error {
	for _, k := range x.program.Kernels[:x.program.Forward] {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := x.runKernel(k); err != nil {
			return err
		}
	}
	if x.program.Loss < 0 {
		return nil
	}
	x.loss = float64(x.tensors[x.program.Loss][0])
	if math.IsNaN(x.loss) || math.IsInf(x.loss, 0) {
		return fmt.Errorf("%w: %v", engine.ErrNonFinite, x.loss)
	}
	return nil
}

// backward runs the backward pass and passes each bucket of gradients to sync: as soon as
// the bucket is final if Options.Overlap is set, else after the backward pass.
func (x *executable[T]) backward(ctx context.Context, sync engine.GradSync) (err error) {
	next := 0 // bucket
	reduceReady := func(at int) error {
		for ; sync != nil && next < len(x.buckets) && x.program.Buckets[next].Ready <= at; next++ {
			if err := sync.ReduceBucket(next, asBuffer(x.buckets[next]), device.Stream{}); err != nil {
				return fmt.Errorf("reduce gradient bucket %d: %w", next, err)
			}
		}
		return nil
	}
	defer func() {
		// A reduction in flight writes to its bucket: wait before returning.
		if err != nil && next > 0 {
			if w := sync.Wait(); !errors.Is(err, w) {
				err = errors.Join(err, w)
			}
		}
	}()
	for at := x.program.Forward; at < len(x.program.Kernels); at++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := x.runKernel(x.program.Kernels[at]); err != nil {
			return err
		}
		if x.engine.options.Overlap {
			if err := reduceReady(at); err != nil {
				return err
			}
		}
	}
	return reduceReady(len(x.program.Kernels))
}

func asBuffer[T number](v []T) device.Buffer {
	switch v := any(v).(type) {
	case []float32:
		return device.Buffer{F32: v}
	case []float64:
		return device.Buffer{F64: v}
	}
	return device.Buffer{}
}

func bytesPerValue[T number]() int64 {
	var b [1]T
	return int64(asBuffer(b[:]).Bytes())
}
