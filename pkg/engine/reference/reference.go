// Package reference is the engine that is easy to read: plain Go, one goroutine, float32
// or float64. The fast engines are tested against it. It runs on every platform that Go
// supports.
//
// Every kernel is a loop over its definition in package plan. In fp32, tensors are
// float32, and statistics, losses and the sums of parameters' gradients are accumulated
// in float64. In fp64 everything is float64. In bf16 and fp16 the engine computes as in
// fp32 and rounds the tensors that plan.ConvertToMixedPrecision stores in 16 bits, like a GPU
// does; float32 represents all such numbers exactly. In fp16 the loss is scaled (see
// scaler).
//
// Options.Threads, Convolution and Fuse have no effect; fusing is done by package plan.
package reference

import (
	"fmt"
	"slices"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
)

type number interface{ float32 | float64 }

func init() { //nolint:gochecknoinits // see engine.Register
	engine.Register(engine.Kind{Device: "reference", Open: func(o engine.Options, _ int) (engine.Engine, error) { return New(o) }})
}

// New returns a reference engine with the precision fp32, fp64, bf16 or fp16. The engine
// uses one thread.
func New(o engine.Options) (engine.Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("open reference engine: %w", err)
	}
	if o.Device != "reference" {
		return nil, fmt.Errorf("open reference engine: got device %q, want reference", o.Device)
	}
	return &referenceEngine{options: o}, nil
}

// NewFaulty returns a reference engine with the deliberate fault f, for tests of comparisons.
func NewFaulty(o engine.Options, f LossFault) (engine.Engine, error) {
	e, err := New(o)
	if err != nil {
		return nil, err
	}
	e.(*referenceEngine).fault = f
	return e, nil
}

type referenceEngine struct {
	options engine.Options
	fault   LossFault
}

func (e *referenceEngine) Name() string            { return "reference" }
func (e *referenceEngine) Options() engine.Options { return e.options }
func (e *referenceEngine) Close() error            { return nil }

func (e *referenceEngine) Load(p *plan.Program, share engine.Executable) (engine.Executable, error) {
	if p == nil {
		return nil, fmt.Errorf("load program: the program is nil")
	}
	if err := plan.Validate(p); err != nil {
		return nil, fmt.Errorf("load program: %w", err)
	}
	run := p
	var err error
	switch e.options.Precision {
	case "bf16":
		run, err = plan.ConvertToMixedPrecision(p, device.BF16)
	case "fp16":
		run, err = plan.ConvertToMixedPrecision(p, device.F16)
	}
	if err != nil {
		return nil, fmt.Errorf("load program: %w", err)
	}
	var x engine.Executable
	if e.options.Precision == "fp64" {
		x, err = load[float64](e, p, run, share)
	} else {
		x, err = load[float32](e, p, run, share)
	}
	if err != nil {
		return nil, fmt.Errorf("load program: %w", err)
	}
	return x, nil
}

// load allocates the tensors of p. p is source, or the program that
// plan.ConvertToMixedPrecision has made from source.
func load[T number](e *referenceEngine, source, p *plan.Program, share engine.Executable) (engine.Executable, error) {
	x := &executable[T]{engine: e, source: source, program: p, scaler: newLossScaler(p), tensors: make([][]T, len(p.Tensors))}
	if share == nil {
		x.store = newTensorStore[T](p)
	} else {
		other, ok := share.(*executable[T])
		if !ok || other.engine != e {
			return nil, fmt.Errorf("share parameters: the other program was loaded by another engine")
		}
		x.store = other.store
	}
	for id, t := range p.Tensors {
		switch t.Role {
		case plan.Parameter, plan.State:
			v, err := x.store.findTensor(t)
			if err != nil {
				return nil, err
			}
			x.tensors[id] = v
		case plan.Input, plan.Output, plan.Constant:
			x.tensors[id] = x.allocateTensor(t.Elements())
		}
		if t.Role == plan.Constant {
			fill(x.tensors[id], T(t.Value))
		}
	}
	x.allocateGradients()
	x.allocateActivations()
	for _, id := range p.States {
		x.before = append(x.before, x.allocateTensor(p.Tensors[id].Elements()))
	}
	return x, nil
}

func (x *executable[T]) allocateGradients() {
	p := x.program
	for _, b := range p.Buckets {
		size := 0
		for _, i := range b.Params {
			size += p.Tensors[p.Params[i].Grad].Elements()
		}
		flat := x.allocateTensor(size)
		x.buckets = append(x.buckets, flat)
		for _, i := range b.Params {
			g := p.Params[i].Grad
			n := p.Tensors[g].Elements()
			x.tensors[g], flat = flat[:n:n], flat[n:]
		}
	}
}

// allocateActivations allocates the activations. It reuses the buffer of an activation after
// its last use for activations of the same size.
func (x *executable[T]) allocateActivations() {
	p := x.program
	free := map[int][][]T{}
	for at, k := range p.Kernels {
		for _, id := range k.Out {
			if id < 0 || p.Tensors[id].Role != plan.Activation {
				continue
			}
			n := p.Tensors[id].Elements()
			if spare := free[n]; len(spare) > 0 {
				x.tensors[id], free[n] = spare[len(spare)-1], spare[:len(spare)-1]
			} else {
				x.tensors[id] = x.allocateTensor(n)
			}
		}
		// After the outputs are allocated, so that a kernel's inputs and outputs do not overlap.
		touched := slices.Concat(k.In, k.Out)
		slices.Sort(touched)
		for _, id := range slices.Compact(touched) {
			if id >= 0 && p.Tensors[id].Role == plan.Activation && p.Tensors[id].Last == at {
				n := p.Tensors[id].Elements()
				free[n] = append(free[n], x.tensors[id])
			}
		}
	}
}

func (x *executable[T]) allocateTensor(n int) []T {
	x.elements += int64(n)
	return make([]T, n)
}
