package kernels_test

import (
	"bytes"
	"math"
	"testing"

	"lockstep/pkg/engine/cuda/kernels"
	"lockstep/pkg/optim"
)

// layered is the memory of parameters in flat buffers, beside optim.Apply64.
type layered struct {
	*optimizer
	tables *tensor
	layers kernels.LayerSet
	list   []kernels.LayerRange
	slots  int
}

// newLayered has a weight of several chunks, one that fills none, a bias, a weight of
// zeros, and gradients in another order than weights.
func newLayered(d *device, slots int) *layered {
	list := []kernels.LayerRange{
		{Weight: 0, Gradient: 128, Size: 3 * 8192, Vector: false},
		{Weight: 3 * 8192, Gradient: 0, Size: 64, Vector: true},
		{Weight: 3*8192 + 64, Gradient: 3*8192 + 128, Size: 8200},
		{Weight: 4*8192 + 72, Gradient: 64, Size: 64},
	}
	const n = 4*8192 + 136
	l := &layered{optimizer: newOptimizer(d, n, 0), list: list, slots: slots}
	clear(l.w.mem.F32()[list[3].Weight:])
	clear(l.wantW[list[3].Weight:])
	var err error
	if l.layers, err = kernels.NewLayerSet(list); err != nil {
		d.Fatal(err)
	}
	l.tables = d.alloc("tables", l.layers.Bytes)
	copy(l.tables.mem.Bytes(), l.layers.Table)
	l.layers.Memory = l.tables.pointer()
	return l
}

// tensors are the parameters as optim takes them, with gradients g of the flat buffer.
func (l *layered) tensors(g []float64) []optim.Tensor64 {
	var all []optim.Tensor64
	for _, p := range l.list {
		t := optim.Tensor64{Weights: l.wantW[p.Weight:][:p.Size], Gradient: g[p.Gradient:][:p.Size], Vector: p.Vector}
		for _, s := range [][]float64{l.wantM, l.wantV}[:l.slots] {
			t.Slots = append(t.Slots, s[p.Weight:][:p.Size])
		}
		all = append(all, t)
	}
	return all
}

// TestRules follows optim.Apply64 over steps of every rule that Adam and SGD do not
// cover, with clipping and without, one step left out because of an infinite gradient.
func TestRules(t *testing.T) {
	base := optim.Update{LearningRate: 0.01, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.02, Trust: 0.05}
	for _, c := range []struct {
		name   string
		change func(u *optim.Update)
		layers bool // one launch for each layer
	}{
		{"adamw", func(u *optim.Update) { u.Rule = optim.RuleAdamW }, false},
		{"adamw clipped", func(u *optim.Update) { u.Rule, u.ClipNorm = optim.RuleAdamW, 3 }, false},
		{"adam clipped", func(u *optim.Update) { u.Rule, u.ClipNorm = optim.RuleAdam, 3 }, false},
		{"sgd clipped beyond the norm", func(u *optim.Update) { u.Rule, u.ClipNorm = optim.RuleSGD, 1e6 }, false},
		{"nesterov", func(u *optim.Update) { u.Rule, u.Momentum, u.Nesterov = optim.RuleSGD, 0.9, true }, false},
		{"lars", func(u *optim.Update) { u.Rule, u.Momentum = optim.RuleLARS, 0.9 }, false},
		{"lars plain, clipped", func(u *optim.Update) { u.Rule, u.ClipNorm = optim.RuleLARS, 0.5 }, true},
		{"lamb", func(u *optim.Update) { u.Rule = optim.RuleLAMB }, true},
		{"lamb clipped", func(u *optim.Update) { u.Rule, u.ClipNorm = optim.RuleLAMB, 0.5 }, false},
	} {
		u := base
		c.change(&u)
		t.Run(c.name, func(t *testing.T) {
			eachDevice(t, func(d *device) { rules(newLayered(d, len(u.Slots())), u, c.layers) })
		})
	}
}

func rules(o *layered, u optim.Update, apart bool) {
	a := o.update
	a.Beta1, a.Beta2, a.Epsilon, a.WeightDecay, a.Momentum, a.Nesterov = u.Beta1, u.Beta2, u.Epsilon, u.WeightDecay, u.Momentum, u.Nesterov
	a.Decoupled = u.Rule == optim.RuleAdamW
	if u.Momentum != 0 {
		a.Buffer = a.M
	}
	control := o.control.pointer()
	for step := 1; step <= 4; step++ {
		o.host(u.LearningRate, step)
		g := o.gradients()
		for i := range o.g.mem.F32() { // the norms of different layers are far apart
			if i >= 128 {
				g[i] *= 0.01
				o.g.mem.F32()[i] *= 0.01
			}
		}
		for i := range g { // as float32 has them
			g[i] = float64(o.g.mem.F32()[i]) / 1024
		}
		bad := step == 3
		if bad {
			o.g.mem.F32()[7] = float32(math.Inf(-1))
		}
		before := o.snapshot()
		o.run(kernels.BeginStep(control, u.Beta1, u.Beta2))
		o.run(kernels.CheckGradients(a.G, o.n, control))
		if u.ClipNorm > 0 || u.Rule == optim.RuleLARS {
			w := kernels.Pointer(0)
			if u.Rule == optim.RuleLARS {
				w = a.W
			}
			o.run(o.layers.SumSquares(w, a.G))
		}
		if u.ClipNorm > 0 {
			o.run(o.layers.Clip(u.ClipNorm, control))
		}
		spans := [][2]int{{0, len(o.list)}}
		if apart {
			spans = [][2]int{{0, 1}, {1, 2}, {2, 3}, {3, 4}}
		}
		switch u.Rule {
		case optim.RuleAdam, optim.RuleAdamW:
			// The gradients lie in the weights' order for these.
			for _, p := range o.list {
				b := a
				at := func(p kernels.Pointer, i, size int) kernels.Pointer { return p + kernels.Pointer(i*size) }
				b.N, b.W, b.M, b.V, b.G = p.Size, at(a.W, p.Weight, 4), at(a.M, p.Weight, 4), at(a.V, p.Weight, 4), at(a.G, p.Gradient, 4)
				b.Low = at(a.Low, p.Weight, o.typ.Bytes())
				o.run(b.Adam(o.typ))
			}
		case optim.RuleSGD:
			for _, p := range o.list {
				b := a
				at := func(p kernels.Pointer, i, size int) kernels.Pointer { return p + kernels.Pointer(i*size) }
				b.N, b.W, b.G, b.Low = p.Size, at(a.W, p.Weight, 4), at(a.G, p.Gradient, 4), at(a.Low, p.Weight, o.typ.Bytes())
				if b.Buffer != 0 {
					b.Buffer = at(a.Buffer, p.Weight, 4)
				}
				o.run(b.SGD(o.typ))
			}
		case optim.RuleLARS:
			for _, s := range spans {
				o.run(o.layers.LARS(o.typ, a, u.Trust, s[0], s[1]))
			}
		case optim.RuleLAMB:
			for _, s := range spans {
				o.run(o.layers.LAMB(o.typ, a, s[0], s[1]))
			}
		}
		if bad {
			if !bytes.Equal(before, o.snapshot()) {
				o.Fatal("an update with an infinite gradient changed something")
			}
			c := kernels.DecodeControl(o.control.mem.Bytes())
			if c.Clip != 1 {
				o.Fatalf("the factor of clipping is %g", c.Clip)
			}
			c.Skipped++ // as scale_update counts
			copy(o.control.mem.Bytes(), c.Bytes())
			continue
		}
		u.Step++
		if err := optim.Apply64(u, o.tensors(g)); err != nil {
			o.Fatal(err)
		}
	}
	o.compare()
}

// TestGather: gradients of three steps become their mean, in float32 as on a host.
func TestGather(t *testing.T) {
	const n = 4 * 1031
	eachDevice(t, func(d *device) {
		a, b, c := d.normal(kernels.F32, n, 0, 1), d.normal(kernels.F32, n, 0, 1), d.normal(kernels.F32, n, 0, 1)
		sum, second, last := d.flat("sum", kernels.F32, n, a).inOut(), d.flat("second", kernels.F32, n, b), d.flat("last", kernels.F32, n, c).inOut()
		d.run(kernels.AddGradients(sum.pointer(), second.pointer(), n))
		d.run(kernels.AverageGradients(last.pointer(), sum.pointer(), n, 3))
		for i, v := range last.mem.F32() {
			if want := (c[i] + (a[i] + b[i])) / 3; v != want {
				d.Fatalf("element %d is %g, want %g", i, v, want)
			}
		}
	})
}

// TestTakeRows: rows come in any order, and several times.
func TestTakeRows(t *testing.T) {
	const width, batch = 3, 700
	eachDevice(t, func(d *device) {
		values := d.counting(40 * width)
		src, dst := d.flat("src", kernels.F32, len(values), values), d.flat("dst", kernels.F32, batch*width, nil)
		rows := make([]int, batch)
		for i := range rows {
			rows[i] = i * 7 % 40
		}
		d.run(kernels.GatherRows(src.pointer(), d.int32s("rows", rows).pointer(), dst.pointer(), batch, width))
		for i, v := range dst.mem.F32() {
			if want := values[rows[i/width]*width+i%width]; v != want {
				d.Fatalf("element %d is %g, want %g", i, v, want)
			}
		}
	})
}

// TestLayersRefusals: what the kernels would read beside is an error.
func TestLayersRefusals(t *testing.T) {
	if _, err := kernels.NewLayerSet([]kernels.LayerRange{{Weight: 4, Size: 8}}); err == nil {
		t.Error("a layer at 4 is taken")
	}
	if _, err := kernels.NewLayerSet(nil); err == nil {
		t.Error("no layers are taken")
	}
	l, err := kernels.NewLayerSet([]kernels.LayerRange{{Size: 8}})
	if err != nil {
		t.Fatal(err)
	}
	u := kernels.Update{W: 16, G: 16, M: 16, V: 16, Control: 16}
	if _, err := l.LAMB(kernels.F32, u, 0, 1); err == nil {
		t.Error("tables without memory are taken")
	}
	l.Memory = 16
	if _, err := l.LAMB(kernels.F32, u, 0, 2); err == nil {
		t.Error("a layer too many is taken")
	}
	if _, err := l.Clip(0, 16); err == nil {
		t.Error("a norm of 0 is taken")
	}
	u.Momentum = 0.5
	if _, err := l.LARS(kernels.F32, u, 0.1, 0, 1); err == nil {
		t.Error("momentum without buffer is taken")
	}
}
