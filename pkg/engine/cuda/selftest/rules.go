package selftest

import (
	"errors"
	"math"

	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/optim"
)

// optimizerRuleChecks compares clipping and the optimizer rules with optim.Apply64.
func optimizerRuleChecks() []launchCheck {
	base := optim.Update{LearningRate: 0.01, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.02, Trust: 0.05}
	var all []launchCheck
	for _, c := range []struct {
		name   string
		change func(u *optim.Update)
	}{
		{"adamw", func(u *optim.Update) { u.Rule = optim.RuleAdamW }},
		{"adam, clipped by the norm", func(u *optim.Update) { u.Rule, u.ClipNorm = optim.RuleAdam, 3 }},
		{"sgd with nesterov's momentum", func(u *optim.Update) { u.Rule, u.Momentum, u.Nesterov = optim.RuleSGD, 0.9, true }},
		{"lars", func(u *optim.Update) { u.Rule, u.Momentum = optim.RuleLARS, 0.9 }},
		{"lars without momentum, clipped", func(u *optim.Update) { u.Rule, u.ClipNorm = optim.RuleLARS, 0.5 }},
		{"lamb", func(u *optim.Update) { u.Rule = optim.RuleLAMB }},
		{"lamb, clipped", func(u *optim.Update) { u.Rule, u.ClipNorm = optim.RuleLAMB, 0.5 }},
	} {
		u := base
		c.change(&u)
		all = append(all, launchCheck{c.name, "4 layers of 33144 weights, 4 steps, one left out", 1e-5, func(p *sandbox) float64 { return measureRuleMismatch(p, u) }})
	}
	return append(all, launchCheck{"sums of gradients", "4124 elements of 3 batches", 0, measureGradientMeanMismatch})
}

// newRuleTestLayers returns a weight with several chunks, a bias, a weight smaller than a
// chunk, and a weight that is zero. Their order in the buffer of gradients differs from
// their order in the buffer of weights. n is the size of either buffer in elements.
func newRuleTestLayers() (list []kernels.LayerRange, n int) {
	const big = 3 * 8192
	return []kernels.LayerRange{
		{Weight: 0, Gradient: 128, Size: big},
		{Weight: big, Gradient: 0, Size: 64, Vector: true},
		{Weight: big + 64, Gradient: big + 128, Size: 8392},
		{Weight: big + 8456, Gradient: 64, Size: 64},
	}, big + 8520
}

// measureRuleMismatch compares several steps of the kernels for u with optim.Apply64. The third
// step has an infinite gradient, so it must skip the update.
func measureRuleMismatch(p *sandbox, u optim.Update) float64 {
	list, n := newRuleTestLayers()
	w := make([]float32, n)
	for i := range list[3].Weight {
		w[i] = float32(p.random.NormFloat64())
	}
	const scale = 1024
	zero := make([]byte, 4*n)
	layers, err := kernels.NewLayerSet(list)
	if err != nil {
		p.err = errors.Join(p.err, err)
		return 0
	}
	layers.Memory = p.uploadInOut(append(layers.Table, make([]byte, layers.Bytes-len(layers.Table))...))
	control := p.uploadInOut((kernels.ControlBlock{LossScale: scale}).Bytes())
	a := kernels.Update{
		W: p.uploadInOut(number.Encode(device.F32, w)), G: p.uploadInOut(zero), M: p.uploadInOut(zero), V: p.uploadInOut(zero), Low: p.newNaNOutput(n * p.low.Size()), Control: control,
		Beta1: u.Beta1, Beta2: u.Beta2, Epsilon: u.Epsilon, WeightDecay: u.WeightDecay,
		Momentum: u.Momentum, Nesterov: u.Nesterov, Decoupled: u.Rule == optim.RuleAdamW,
	}
	if u.Momentum != 0 {
		a.Buffer = a.M
	}
	want, slots := number.ToFloat64(w), [2][]float64{make([]float64, n), make([]float64, n)}
	for step := 1; step <= 4 && p.err == nil; step++ {
		g, scaled := make([]float64, n), make([]float32, n)
		for i := range g {
			scaled[i] = float32(p.random.NormFloat64()) * scale
			g[i] = float64(scaled[i]) / scale
		}
		if step == 3 {
			scaled[7] = float32(math.Inf(1))
		}
		c := kernels.DecodeControl(p.readBytes(control, kernels.ControlBytes))
		c.LearningRate, c.Step = float32(u.LearningRate), int32(step)
		p.err = errors.Join(p.err, p.gpu.Write(driver.Ptr(control), c.Bytes()))
		p.err = errors.Join(p.err, p.gpu.Write(driver.Ptr(a.G), number.Encode(device.F32, scaled)))
		p.launch(kernels.BeginStep(control, u.Beta1, u.Beta2))
		p.launch(kernels.CheckGradients(a.G, n, control))
		runUpdateKernels(p, layers, list, a, u)
		p.launch(kernels.UpdateLossScale(control, 1, 1, 2000))
		if step == 3 {
			continue
		}
		u.Step++
		var tensors []optim.Tensor64
		for _, l := range list {
			t := optim.Tensor64{Weights: want[l.Weight:][:l.Size], Gradient: g[l.Gradient:][:l.Size], Vector: l.Vector}
			for i := range u.Slots() {
				t.Slots = append(t.Slots, slots[i][l.Weight:][:l.Size])
			}
			tensors = append(tensors, t)
		}
		p.err = errors.Join(p.err, optim.Apply64(u, tensors))
	}
	s := optimizerMemory{n: n, w: a.W, update: a, want: want}
	return s.weightsMismatch(p)
}

func runUpdateKernels(p *sandbox, layers kernels.LayerSet, list []kernels.LayerRange, a kernels.Update, u optim.Update) {
	if u.ClipNorm > 0 || u.Rule == optim.RuleLARS {
		p.launch(layers.SumSquares(a.W, a.G))
	}
	if u.ClipNorm > 0 {
		p.launch(layers.Clip(u.ClipNorm, a.Control))
	}
	switch u.Rule {
	case optim.RuleLARS:
		p.launch(layers.LARS(p.typ, a, u.Trust, 0, len(list)))
		return
	case optim.RuleLAMB:
		p.launch(layers.LAMB(p.typ, a, 0, len(list)))
		return
	}
	at := func(flat kernels.Pointer, i, size int) kernels.Pointer {
		if flat == 0 {
			return 0
		}
		return flat + kernels.Pointer(i*size)
	}
	for _, l := range list {
		b := a
		b.N, b.W, b.G, b.Low = l.Size, at(a.W, l.Weight, 4), at(a.G, l.Gradient, 4), at(a.Low, l.Weight, p.low.Size())
		b.M, b.V, b.Buffer = at(a.M, l.Weight, 4), at(a.V, l.Weight, 4), at(a.Buffer, l.Weight, 4)
		if u.Rule == optim.RuleSGD {
			p.launch(b.SGD(p.typ))
		} else {
			p.launch(b.Adam(p.typ))
		}
	}
}

func measureGradientMeanMismatch(p *sandbox) float64 {
	const n = 4124
	var batches [3][]float32
	for i := range batches {
		batches[i] = make([]float32, n)
		for j := range batches[i] {
			batches[i][j] = float32(p.random.NormFloat64())
		}
	}
	sum, last := p.uploadInOut(number.Encode(device.F32, batches[0])), p.uploadInOut(number.Encode(device.F32, batches[2]))
	p.launch(kernels.AddGradients(sum, p.uploadFloat32(batches[1]), n))
	p.launch(kernels.AverageGradients(last, sum, n, len(batches)))
	want := make([]float64, n)
	for i := range want {
		want[i] = float64((batches[2][i] + (batches[0][i] + batches[1][i])) / 3)
	}
	return maxRelativeError(p.readElements(last, device.F32, n), want)
}
