package enginetest

import (
	"math"
	"math/rand/v2"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
)

// Operation describes a program with a single kernel, see SingleKernelProgram.
type Operation struct {
	Op      plan.Op
	Attr    plan.KernelAttr
	In, Out [][]int
	State   []int // indexes of the operands that are states
	// Fill changes v, the normally distributed values of operand i. If Fill is nil, they are
	// not changed.
	Fill func(rng *rand.Rand, i int, v []float32)
}

// OperationHooks give Operation.Run access to the engine under test.
type OperationHooks struct {
	FillNaN      func(t testing.TB, x engine.Executable) // see Engine
	CheckPadding func(x engine.Executable) error         // see Engine
	// Round rounds feature maps and weights to the engine's precision. It is nil for fp32.
	Round func(v []float32)
	// Scale returns the factor by which the engine multiplies the outputs. If Scale is nil, the
	// factor is 1.
	Scale func(x engine.Executable) float64
}

// Run runs o on e twice, each time with other random values from seed, and returns the
// outputs and states of both runs. The second run detects kernels that read values which
// the first run left in memory.
func (o Operation) Run(t testing.TB, e engine.Engine, seed uint64, h OperationHooks) (all [][]float64) {
	t.Helper()
	p := SingleKernelProgram(o.Op, o.Attr, o.In, o.Out, o.State)
	x, err := e.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.FillNaN(t, x)
	for run := range uint64(2) {
		o.setInputs(t, x, rand.New(rand.NewPCG(seed, run)), h.Round)
		if _, err := x.Step(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
		scale := 1.0
		if h.Scale != nil {
			scale = h.Scale(x)
		}
		for _, id := range p.Outputs {
			v := make([]float32, p.Tensors[id].Elements())
			if err := x.Output(p.Tensors[id].Name, v); err != nil {
				t.Fatal(err)
			}
			wide := make([]float64, len(v))
			for j, f := range v {
				wide[j] = float64(f) / scale
			}
			all = append(all, wide)
		}
		for _, id := range p.States {
			v, err := x.Get(p.Tensors[id].Name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, v)
		}
	}
	if err := h.CheckPadding(x); err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

func (o Operation) setInputs(t testing.TB, x engine.Executable, rng *rand.Rand, round func(v []float32)) {
	t.Helper()
	p := x.Program()
	for i, shape := range o.In {
		id := p.Kernels[0].In[i]
		v := make([]float32, p.Tensors[id].Elements())
		for j := range v {
			v[j] = float32(rng.NormFloat64())
		}
		if o.Fill != nil {
			o.Fill(rng, i, v)
		}
		if round != nil && len(shape) > 1 {
			round(v)
		}
		var err error
		if p.Tensors[id].Role == plan.State {
			wide := make([]float64, len(v))
			for j := range v {
				wide[j] = math.Abs(float64(v[j])) // one may be a variance
			}
			err = x.Set(p.Tensors[id].Name, wide)
		} else {
			err = x.SetInput(p.Tensors[id].Name, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// ReferenceMaxPool computes a max pooling without padding of x, which has the shape s, and writes it
// to out, which has the shape y. Both are in row-major order.
func ReferenceMaxPool(x, out []float32, s, y []int, window, stride int) {
	for i := range out {
		plane, r, c := i/(y[2]*y[3]), i/y[3]%y[2]*stride, i%y[3]*stride
		out[i] = x[(plane*s[2]+r)*s[3]+c]
		for a := range window {
			for b := range window {
				out[i] = max(out[i], x[(plane*s[2]+r+a)*s[3]+c+b])
			}
		}
	}
}
