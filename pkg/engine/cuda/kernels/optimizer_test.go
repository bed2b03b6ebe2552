package kernels_test

import (
	"bytes"
	"math"
	"testing"

	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/optim"
)

// optimizer is a simulated optimiser's memory beside optim.Apply in float64.
type optimizer struct {
	*device
	n                        int
	w, g, m, v, low, control *tensor
	wantW, wantM, wantV      []float64
	update                   kernels.Update
}

func (d *device) control(c kernels.ControlBlock) *tensor {
	x := d.alloc("control", kernels.ControlBytes)
	copy(x.mem.Bytes(), c.Bytes())
	return x
}

func newOptimizer(d *device, n, shift int) *optimizer {
	o := &optimizer{device: d, n: n}
	w := d.normal(kernels.F32, n, 0, 1)
	make0 := func(name string, typ kernels.ElementType, values []float32) *tensor {
		return d.flat(name, typ, n+shift, append(make([]float32, shift), values...)).inOut()
	}
	o.w, o.g, o.low = make0("w", kernels.F32, w), make0("g", kernels.F32, w), make0("low", d.typ, w)
	o.m, o.v = make0("m", kernels.F32, make([]float32, n)), make0("v", kernels.F32, make([]float32, n))
	o.wantW, o.wantM, o.wantV = int64Arg(w), make([]float64, n), make([]float64, n)
	o.control = d.control(kernels.ControlBlock{LossScale: 1024})
	at := func(x *tensor) kernels.Pointer { return x.pointer() + kernels.Pointer(shift*x.typ.Bytes()) }
	o.update = kernels.Update{N: n, W: at(o.w), G: at(o.g), M: at(o.m), V: at(o.v), Low: at(o.low), Control: o.control.pointer()}
	return o
}

// host copies what the host writes before a step.
func (o *optimizer) host(rate float64, step int) {
	c := kernels.ControlBlock{LearningRate: float32(rate), Step: int32(step), Seed: 5, Epoch: 6}
	copy(o.control.mem.Bytes(), c.Bytes()[:kernels.ControlHostBytes])
}

// gradients draws new ones, which carry the loss scale in memory.
func (o *optimizer) gradients() []float64 {
	scale := kernels.DecodeControl(o.control.mem.Bytes()).LossScale
	g, shift := make([]float64, o.n), len(o.g.mem.F32())-o.n
	for i := range g {
		v := float32(o.random.NormFloat64())
		g[i] = float64(v)
		o.g.mem.F32()[shift+i] = v * scale
	}
	return g
}

// TestAdam compares several steps with optim.Apply. One step has an infinite gradient: it
// may change only the loss scale and must not count as a step of Adam, as with PyTorch's
// GradScaler.
func TestAdam(t *testing.T) {
	for _, n := range []int{1, 13, 16, 4099} {
		for _, shift := range []int{0, 1} {
			for _, decay := range []float64{0, 0.01} {
				t.Run(name(n, "shift", shift, "decay", decay), func(t *testing.T) {
					eachDevice(t, func(d *device) { adam(newOptimizer(d, n, shift), decay) })
				})
			}
		}
	}
}

func adam(o *optimizer, decay float64) {
	u := optim.Update{Rule: optim.RuleAdam, LearningRate: 0.01, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: decay}
	a := o.update
	a.Beta1, a.Beta2, a.Epsilon, a.WeightDecay = u.Beta1, u.Beta2, u.Epsilon, decay
	for step := 1; step <= 6; step++ {
		o.host(u.LearningRate, step)
		g := o.gradients()
		bad := step == 4
		if bad {
			o.g.mem.F32()[len(o.g.mem.F32())-1] = float32(math.Inf(1))
		}
		before := o.snapshot()
		o.run(kernels.BeginStep(o.control.pointer(), u.Beta1, u.Beta2))
		if step%2 == 0 {
			o.run(kernels.CheckGradients(a.G, o.n, o.control.pointer()))
			a.Unscaled = false
		} else {
			o.run(kernels.UnscaleGradients(a.G, o.n, o.control.pointer()))
			a.Unscaled = true
		}
		o.run(a.Adam(o.typ))
		o.run(kernels.UpdateLossScale(o.control.pointer(), 2, 0.5, 2))
		// 1024 grows after steps 2 and 6 (with 5 the second good one in a row), and
		// halves after step 4, which also ends the row that step 3 began.
		scale := []float32{1024, 2048, 2048, 1024, 1024, 2048}[step-1]
		c := kernels.DecodeControl(o.control.mem.Bytes())
		if c.LossScale != scale || (c.FoundInf != 0) != bad || c.Step != int32(step) || c.Seed != 5 || c.Epoch != 6 {
			o.Fatalf("after step %d the control block is %+v, want scale %g, inf %v", step, c, scale, bad)
		}
		if bad {
			if c.Skipped != 1 || !bytes.Equal(before, o.snapshot()) {
				o.Fatalf("an update with an infinite gradient changed something; skipped %d", c.Skipped)
			}
			continue
		}
		u.Step++
		if err := optim.Apply(u, o.wantW, g, o.wantM, o.wantV); err != nil {
			o.Fatal(err)
		}
	}
	o.compare()
}

func (o *optimizer) snapshot() []byte {
	return bytes.Join([][]byte{o.w.mem.Bytes(), o.m.mem.Bytes(), o.v.mem.Bytes(), o.low.mem.Bytes()}, nil)
}

// compare allows some roundings of float32: β₂ = 0.999 is off by 2⁻²⁵ there, and
// 1−β₂ᵗ by 30 times as much relative, which the root halves.
func (o *optimizer) compare() {
	o.Helper()
	tail := func(x *tensor) []float64 {
		return x.values(len(x.mem.Bytes()) / x.typ.Bytes())[len(x.mem.Bytes())/x.typ.Bytes()-o.n:]
	}
	w := tail(o.w)
	o.near("w", kernels.F32, w, o.wantW, 4e-6, 1e-6)
	o.near("m", kernels.F32, tail(o.m), o.wantM, 1e-5, 1e-6)
	o.near("v", kernels.F32, tail(o.v), o.wantV, 6e-5, 1e-9)
	for i, v := range tail(o.low) {
		if want := float64(round(o.typ, float32(w[i]))); v != want {
			o.Fatalf("low-precision weight %d is %g, want %g", i, v, want)
		}
	}
}

func TestSGD(t *testing.T) {
	for _, n := range []int{1, 13, 4099} {
		for _, shift := range []int{0, 1} {
			for _, momentum := range []float64{0, 0.9} {
				t.Run(name(n, "shift", shift, "momentum", momentum), func(t *testing.T) {
					eachDevice(t, func(d *device) {
						o := newOptimizer(d, n, shift)
						u := optim.Update{Rule: optim.RuleSGD, LearningRate: 0.1, Momentum: momentum, WeightDecay: 0.02}
						a := o.update
						a.Momentum, a.WeightDecay = momentum, u.WeightDecay
						slots := [][]float64{}
						if momentum != 0 {
							a.Buffer, slots = a.M, [][]float64{o.wantM}
						}
						for step := 1; step <= 4; step++ {
							o.host(u.LearningRate, step)
							g := o.gradients()
							if step == 3 {
								o.g.mem.F32()[len(o.g.mem.F32())-n] = float32(math.NaN())
							}
							before := o.snapshot()
							o.run(kernels.BeginStep(o.control.pointer(), 0, 0))
							o.run(kernels.CheckGradients(a.G, n, o.control.pointer()))
							o.run(a.SGD(o.typ))
							if step == 3 {
								if !bytes.Equal(before, o.snapshot()) {
									o.Fatal("an update with a NaN in the gradient changed something")
								}
								continue
							}
							if err := optim.Apply(u, o.wantW, g, slots...); err != nil {
								o.Fatal(err)
							}
						}
						o.compare()
					})
				})
			}
		}
	}
}

// TestScaleLimits: a scale at the top of float32 stays finite.
func TestScaleLimits(t *testing.T) {
	d := &device{T: t, sim: openSimulator(t)}
	c := d.control(kernels.ControlBlock{LossScale: 0x1p127, GoodSteps: 1999})
	d.run(kernels.UpdateLossScale(c.pointer(), 2, 0.5, 2000))
	if got := kernels.DecodeControl(c.mem.Bytes()); got.LossScale != 0x1p127 || got.GoodSteps != 0 {
		t.Errorf("control block is %+v", got)
	}
	d.finish()
}
