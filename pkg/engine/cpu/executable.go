package cpu

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

// executable is a loaded program with its memory.
type executable struct {
	engine  *Engine
	program *plan.Program
	store   *store
	layouts []layout    // by tensor
	origins []origin    // by tensor
	data    [][]float32 // by tensor with memory: in arena, inputs, gradients or store
	inPlace []bool      // by kernel: a pooling's gradient that is added to what is there, and the sum that this is
	pooling []int       // by kernel: whose index a pooling's gradient goes by
	index   [][]byte    // by kernel: which element of its window each maximum of a pooling is
	steps   [][]task    // by kernel
	arena   []float32
	inputs  []float32 // and constants
	grads   []float32
	gradAt  map[string]region // by parameter
	buckets [][]float32
	backup  []float32 // states before the step
	workers []worker
	shared  []float32 // scratch of the kernel that runs
	tallies []float32 // statistics of the output of the kernel that runs, for the next
	zeros   []float32 // maxBlocks blocks
	same    []float32 // constants that normalise to the same value
	scratch int       // floats that a worker needs
	sharing int       // floats that the shared scratch needs
	counted int       // floats that the statistics need
	tally   *tally    // at Load: the statistics that the kernel before takes
	loss    float64
	closed  bool
	watch   bool   // the step is of the profile's window
	spans   []span // of the step, beside the workers'

	norms   engine.Statistics // of synchronised batch norms
	moments []float64         // what these exchange
	failed  error             // of an exchange in the step

	optimizer optimizer
}

var _ engine.Executable = (*executable)(nil)

// errClosed is what a closed executable answers.
var errClosed = errors.New("the executable or its engine is closed")

// needScratch asks for n floats of scratch memory for each worker.
func (x *executable) needScratch(n int) { x.scratch = max(x.scratch, n) }

// needTallies asks for n floats for the statistics of one kernel's output.
func (x *executable) needTallies(n int) { x.counted = max(x.counted, n) }

// needMoments asks for n numbers for the statistics of one batch norm.
func (x *executable) needMoments(n int) {
	x.moments = append(x.moments, make([]float64, max(0, n-len(x.moments)))...)
}

// needShared asks for n floats of scratch memory for a kernel as a whole.
func (x *executable) needShared(n int) { x.sharing = max(x.sharing, n) }

// Program is the program that was loaded.
func (x *executable) Program() *plan.Program { return x.program }

// SetInput copies v, in the logical order of the input's shape.
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
			return fmt.Errorf("set input %q: %d values for shape %v, which has %d", name, len(v), t.Shape, t.Elements())
		}
		if classes := x.program.Classes(id); classes > 0 {
			if err := plan.CheckClasses(name, v, classes); err != nil {
				return err
			}
		}
		start := time.Now()
		pack(x.layouts[id], t.Shape, x.data[id], v)
		x.spent(name, partInput, rowInput, start)
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
			return fmt.Errorf("read output %q: room for %d values, shape %v has %d", name, len(dst), t.Shape, t.Elements())
		}
		unpack(x.layouts[id], t.Shape, dst, x.data[id])
		return nil
	}
	return fmt.Errorf("read output %q: the program has no such output", name)
}

// Loss is the loss of the last Step.
func (x *executable) Loss() float64 { return x.loss }

// Step runs one step. When it returns an error, parameters, states and
// optimiser slots are as they were before.
func (x *executable) Step(ctx context.Context, sync engine.GradSync, update *optim.Update) (engine.Timing, error) {
	var t engine.Timing
	if x.closed || x.engine.pool.closed.Load() {
		return t, fmt.Errorf("step: %w", errClosed)
	}
	if update != nil {
		if err := x.canUpdate(update); err != nil {
			return t, fmt.Errorf("step: %w", err)
		}
	}
	x.failed = nil
	if x.program.Synchronised() {
		if err := x.norms.Begin(sync); err != nil {
			return t, fmt.Errorf("step: %w", err)
		}
	}
	copy(x.backup, x.store.states)
	x.watched()
	if err := x.step(ctx, sync, update, &t); err != nil {
		copy(x.store.states, x.backup)
		return t, fmt.Errorf("step: %w", errors.Join(err, x.unwatched()))
	}
	if err := x.unwatched(); err != nil {
		return t, fmt.Errorf("step: %w", err)
	}
	return t, nil
}

// step is Step without the restoring of states.
func (x *executable) step(ctx context.Context, sync engine.GradSync, update *optim.Update, t *engine.Timing) error {
	begin := time.Now()
	start := begin
	if err := x.forward(ctx); err != nil {
		return err
	}
	exposed := x.norms.Spent()
	t.Forward, t.Wait = time.Since(start)-exposed, exposed

	start = time.Now()
	if err := x.backward(ctx, sync); err != nil {
		return err
	}
	exposed = x.norms.Spent()
	t.Backward, t.Wait = time.Since(start)-exposed, t.Wait+exposed

	if sync != nil && len(x.buckets) > 0 {
		start = time.Now()
		if !x.engine.options.Overlap {
			for i, b := range x.buckets {
				if err := handOver(sync, i, b); err != nil {
					return err
				}
			}
		}
		if err := sync.Wait(); err != nil {
			return fmt.Errorf("wait for gradients: %w", err)
		}
		t.Wait += time.Since(start)
		x.spent("wait for gradients", partExchange, rowExchange, start)
		x.reduced(sync, begin)
	}
	if update != nil {
		start = time.Now()
		if err := x.optimize(update); err != nil {
			return fmt.Errorf("update parameters: %w", err)
		}
		t.Optimizer = time.Since(start)
	}
	return nil
}

// forward runs the forward kernels and reads the loss.
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

// backward runs the backward kernels and hands buckets over as they become final.
func (x *executable) backward(ctx context.Context, sync engine.GradSync) (err error) {
	next := 0
	defer func() {
		// A bucket that is under way is written to: wait before giving up.
		if err != nil && next > 0 {
			if w := sync.Wait(); !errors.Is(err, w) {
				err = errors.Join(err, w)
			}
		}
	}()
	ready := func(kernel int) error {
		for ; sync != nil && x.engine.options.Overlap && next < len(x.buckets) && x.program.Buckets[next].Ready <= kernel; next++ {
			start := time.Now()
			if err := handOver(sync, next, x.buckets[next]); err != nil {
				return err
			}
			if x.watch {
				x.spent(fmt.Sprint("hand over bucket ", next), partExchange, rowExchange, start)
			}
		}
		return nil
	}
	for i := x.program.Forward; i < len(x.steps); i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := x.runKernel(i); err != nil {
			return err
		}
		if err := ready(i); err != nil {
			return err
		}
	}
	return ready(math.MaxInt)
}

// handOver gives bucket i to sync.
func handOver(sync engine.GradSync, i int, b []float32) error {
	if err := sync.Bucket(i, device.Buffer{F32: b}, device.Stream{}); err != nil {
		return fmt.Errorf("hand over gradient bucket %d: %w", i, err)
	}
	return nil
}

// runKernel runs a kernel's tasks one after another.
func (x *executable) runKernel(i int) error {
	for _, t := range x.steps[i] {
		if x.watch && t.items > 0 {
			k, part := x.program.Kernels[i], partForward
			if k.Backward {
				part = partBackward
			}
			t = t.timed(string(k.Op), k.Name, part)
		}
		x.engine.pool.run(t, x.workers)
		if x.failed != nil {
			return x.failed
		}
	}
	return nil
}

// runTask runs a task that is no kernel of the program.
func (x *executable) runTask(name, part string, t task) {
	if x.watch {
		t = t.timed(name, "", part)
	}
	x.engine.pool.run(t, x.workers)
}

// MemoryBytes is what the executable holds, the parameters, states and slots
// that it may share included.
func (x *executable) MemoryBytes() int64 {
	n := len(x.arena) + len(x.inputs) + len(x.grads) + len(x.backup) + len(x.shared) + len(x.tallies) + len(x.zeros) + len(x.same)
	for _, w := range x.workers {
		n += len(w.scratch)
	}
	for _, o := range x.origins {
		n += len(o.norm)
	}
	return 4*int64(n) + 8*int64(len(x.moments)) + x.store.bytes()
}

// Close lets the executable's memory go; what it shares with others stays.
func (x *executable) Close() error {
	x.closed = true
	x.data, x.steps, x.arena, x.inputs, x.workers, x.shared, x.tallies = nil, nil, nil, nil, nil, nil, nil
	x.origins, x.index, x.moments = nil, nil, nil
	return nil
}
