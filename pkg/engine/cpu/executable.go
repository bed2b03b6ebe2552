package cpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu/internal/layer"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/optim"
)

// executable is a loaded program with its memory.
type executable struct {
	engine  *Engine
	program *plan.Program
	layouts []tensor.Layout  // by tensor
	data    [][]float32      // by tensor: a part of arena, inputs, gradients or store; nil if it has no memory
	steps   [][]threads.Task // by kernel

	store     *tensorStore // parameters, states and the optimizer's slots
	backup    []float32    // states before the step
	inputs    []float32    // and the program's constants
	arena     []float32    // activations
	constants int          // number of floats with which readers normalize tensors
	work      *workspace.Workspace
	workers   []threads.Worker
	gradients gradientBuffers
	optimizer optimizer

	notices []string

	norms  *layer.SyncNormState
	loss   float64
	closed bool
	trace  stepTrace
}

// gradientBuffers contains the gradients of the parameters, one bucket after another.
type gradientBuffers struct {
	flat    []float32
	at      map[string]tensorRegion // by parameter
	buckets [][]float32
}

var _ engine.Executable = (*executable)(nil)

var errClosed = errors.New("the executable or its engine is closed")

func (x *executable) Program() *plan.Program { return x.program }

// Capabilities returns the features of this executable and of its engine.
func (x *executable) Capabilities() engine.Capabilities {
	return engine.Capabilities{
		Notices:    slices.Clone(x.notices),
		HostMemory: &engine.HostMemory{Buckets: x.bucketMemory, Unpack: x.unpackParameter, Pack: x.packParameter},
		PeakFLOPS:  x.engine.PeakFLOPS,
		Profile:    x.engine.Profile, RecordWait: x.engine.RecordWait, BeginPass: x.engine.BeginPass,
	}
}

// NextBatch sets the inputs to the values of the next batch of s.
func (x *executable) NextBatch(s engine.Source) (bool, error) { return engine.SetInputs(x, s) }

// SetInput copies v, which is in logical order, to an input.
func (x *executable) SetInput(name string, v []float32) error {
	if x.closed {
		return fmt.Errorf("set input %q: %w", name, errClosed)
	}
	for _, id := range x.program.Inputs {
		t := x.program.Tensors[id]
		if t.Name != name {
			continue
		}
		if len(v) != t.Elements() {
			return fmt.Errorf("set input %q: got %d values, want %d for shape %v", name, len(v), t.Elements(), t.Shape)
		}
		if err := plan.CheckClassIndexes(x.program, id, v); err != nil {
			return err
		}
		start := time.Now()
		tensor.Pack(x.layouts[id], t.Shape, x.data[id], v)
		x.recordSpan(name, partInput, rowInput, start)
		return nil
	}
	return fmt.Errorf("set input %q: the program has no such input", name)
}

// Output copies an output of the last Step to dst, in logical order.
func (x *executable) Output(name string, dst []float32) error {
	if x.closed {
		return fmt.Errorf("read output %q: %w", name, errClosed)
	}
	for _, id := range x.program.Outputs {
		t := x.program.Tensors[id]
		if t.Name != name {
			continue
		}
		if len(dst) != t.Elements() {
			return fmt.Errorf("read output %q: got a slice of %d values, want %d for shape %v", name, len(dst), t.Elements(), t.Shape)
		}
		tensor.Unpack(x.layouts[id], t.Shape, dst, x.data[id])
		return nil
	}
	return fmt.Errorf("read output %q: the program has no such output", name)
}

func (x *executable) Loss() float64 { return x.loss }

// Step runs one step. If it returns an error, parameters, states and optimizer slots
// have the values from before the step.
func (x *executable) Step(ctx context.Context, sync engine.GradSync, update *optim.Update) (engine.Timing, error) {
	var t engine.Timing
	if x.closed || x.engine.threads.Closed() {
		return t, fmt.Errorf("step: %w", errClosed)
	}
	if update != nil {
		if err := x.checkUpdate(update); err != nil {
			return t, fmt.Errorf("step: %w", err)
		}
	}
	x.norms.Failed = nil
	if x.program.HasSyncBatchNorm() {
		if err := x.norms.Statistics.BeginStep(sync); err != nil {
			return t, fmt.Errorf("step: %w", err)
		}
	}
	copy(x.backup, x.store.states)
	x.beginTrace()
	if err := x.step(ctx, sync, update, &t); err != nil {
		copy(x.store.states, x.backup)
		return t, fmt.Errorf("step: %w", errors.Join(err, x.endTrace()))
	}
	if err := x.endTrace(); err != nil {
		return t, fmt.Errorf("step: %w", err)
	}
	return t, nil
}

// step implements Step. If it fails, the caller must restore the states.
func (x *executable) step(ctx context.Context, sync engine.GradSync, update *optim.Update, t *engine.Timing) error {
	begin := time.Now()
	start := begin
	if err := x.forward(ctx); err != nil {
		return err
	}
	exposed := x.norms.Statistics.TakeExchangeTime()
	t.Forward, t.Wait = time.Since(start)-exposed, exposed

	start = time.Now()
	early := false // update weights as soon as the backward pass has read them for the last time
	if update != nil {
		x.prepareUpdate(update)
		early = x.canUpdateEarly(sync, update)
	}
	if early {
		x.engine.threads.StartBackgroundWork(&x.optimizer.update)
	}
	if err := x.backward(ctx, sync, early); err != nil {
		return err
	}
	exposed = x.norms.Statistics.TakeExchangeTime()
	t.Backward, t.Wait = time.Since(start)-exposed, t.Wait+exposed

	if sync != nil && len(x.gradients.buckets) > 0 {
		start = time.Now()
		if !x.engine.options.Overlap {
			for i, b := range x.gradients.buckets {
				if err := reduceBucket(sync, i, b); err != nil {
					return err
				}
			}
		}
		if err := sync.Wait(); err != nil {
			return fmt.Errorf("wait for gradients: %w", err)
		}
		t.Wait += time.Since(start)
		x.recordSpan("wait for gradients", partExchange, rowExchange, start)
		x.recordReductions(sync, begin)
	}
	if update != nil {
		start = time.Now()
		if err := x.updateParameters(update, early); err != nil {
			return fmt.Errorf("update parameters: %w", err)
		}
		t.Optimizer = time.Since(start)
	}
	return nil
}

// forward sets x.loss. It returns ErrNonFinite if the loss is not finite.
func (x *executable) forward(ctx context.Context) error {
	for i := range x.steps[:x.program.Forward] {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := x.runKernel(i); err != nil {
			return err
		}
	}
	if x.program.Loss < 0 {
		return nil
	}
	x.loss = float64(x.data[x.program.Loss][0])
	if math.IsNaN(x.loss) || math.IsInf(x.loss, 0) {
		return fmt.Errorf("loss is %v: %w", x.loss, engine.ErrNonFinite)
	}
	return nil
}

// backward runs the backward kernels. If Options.Overlap is set, it passes each bucket to
// sync as soon as the gradients of the bucket are final. If early is set, threads that wait
// update the weights that no further kernel uses, and the step is not canceled any more.
func (x *executable) backward(ctx context.Context, sync engine.GradSync, early bool) (err error) {
	next := 0
	defer func() {
		// Wait before giving up, since the exchange still writes to the buckets.
		if err != nil && next > 0 {
			if w := sync.Wait(); !errors.Is(err, w) {
				err = errors.Join(err, w)
			}
		}
	}()
	ready := func(kernel int) error {
		for ; sync != nil && x.engine.options.Overlap && next < len(x.gradients.buckets) && x.program.Buckets[next].Ready <= kernel; next++ {
			start := time.Now()
			if err := reduceBucket(sync, next, x.gradients.buckets[next]); err != nil {
				return err
			}
			if x.trace.on {
				x.recordSpan(fmt.Sprint("hand over bucket ", next), partExchange, rowExchange, start)
			}
		}
		return nil
	}
	for i := x.program.Forward; i < len(x.steps); i++ {
		if err := ctx.Err(); err != nil && !early {
			return err
		}
		if err := x.runKernel(i); err != nil {
			return err
		}
		if err := ready(i); err != nil {
			return err
		}
		if early {
			x.optimizer.update.AllowPieces(x.optimizer.allowed[i])
		}
	}
	return ready(math.MaxInt)
}

func reduceBucket(sync engine.GradSync, i int, b []float32) error {
	if err := sync.ReduceBucket(i, device.Buffer{F32: b}, device.Stream{}); err != nil {
		return fmt.Errorf("reduce gradient bucket %d: %w", i, err)
	}
	return nil
}

func (x *executable) runKernel(i int) error {
	for _, t := range x.steps[i] {
		if x.trace.on && t.Items > 0 {
			k, part := x.program.Kernels[i], partForward
			if k.Backward {
				part = partBackward
			}
			t = x.withTiming(t, string(k.Op), k.Name, part)
		}
		x.engine.threads.Run(t, x.workers)
		if x.norms.Failed != nil {
			return x.norms.Failed
		}
	}
	return nil
}

// runTask runs a task that belongs to no kernel of the program, such as an optimizer task.
// name and part identify it in traces.
func (x *executable) runTask(name, part string, t threads.Task) {
	if x.trace.on {
		t = x.withTiming(t, name, "", part)
	}
	x.engine.threads.Run(t, x.workers)
}

// MemoryBytes returns the size of the executable's memory, including parameters, states and
// optimizer slots that it may share with other executables.
func (x *executable) MemoryBytes() int64 {
	n := len(x.arena) + len(x.inputs) + len(x.gradients.flat) + len(x.backup) + x.constants
	for _, w := range x.workers {
		n += len(w.Scratch)
	}
	return 4*int64(n) + x.work.Bytes() + x.store.bytes()
}

// Close does not release the memory that is shared with other executables.
func (x *executable) Close() error {
	x.closed = true
	x.data, x.steps, x.arena, x.inputs, x.workers, x.constants = nil, nil, nil, nil, nil, 0
	x.work.Release()
	return nil
}
