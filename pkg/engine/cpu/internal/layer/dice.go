package layer

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
	"lockstep/pkg/internal/plan"
)

// dice is a prepared sum of soft Dice loss and binary cross-entropy, or its gradient.
type dice struct {
	ws       *workspace.Workspace
	z, t     tensor.Operand
	weight   float64 // of the Dice term
	elements lossElements
	perMap   int        // runs per channel of a sample
	sums     []diceSums // by run
	zeros    []float32
}

// diceSums holds sums over the elements of a run, with p = σ(z).
type diceSums struct {
	entropy float64 // of the cross-entropy
	product float64 // of p·t
	sum     float64 // of p+t
}

// diceBCE prepares the loss, or its gradient.
func (x *Builder) diceBCE(c Call) ([]threads.Task, error) {
	z, t := c.Inputs[0], c.Inputs[1]
	if !slices.Equal(z.Logical, t.Logical) || z.Layout != tensor.ActivationLayout || t.Layout != tensor.ActivationLayout {
		return nil, c.errorf("it takes logits and targets [n,c,…] of one shape")
	}
	d := &dice{ws: x.Workspace, z: z, t: t, weight: c.Attr.DiceWeight, elements: lossElementsOf(z), zeros: kernel.AlignedFloats(lossRunElements)}
	d.perMap = len(d.elements.runs) / (z.Shape[0] * z.Shape[1])
	d.sums = make([]diceSums, len(d.elements.runs))
	x.NeedScratch(lossScratch + lanes)
	add := threads.Task{Items: len(d.elements.runs), Run: d.add}
	if c.Op == plan.OpDiceBCE {
		loss := c.Outputs[0]
		if !loss.IsVector(1) {
			return nil, c.errorf("it writes [1]")
		}
		return []threads.Task{add, {Items: 1, Run: func(*threads.Worker, int, int) { loss.Data[0] = float32(d.loss()) }}}, nil
	}
	dloss, dz := c.Inputs[2], c.Outputs[0]
	if !dloss.IsVector(1) || !slices.Equal(dz.Logical, z.Logical) || dz.Layout != tensor.ActivationLayout {
		return nil, c.errorf("it takes the loss's gradient [1] too and writes a tensor of the logits' shape")
	}
	size := z.Layout.Size(z.Shape)
	return []threads.Task{add, {Items: tensor.CeilDiv(size, workspace.PieceFloats), Run: func(_ *threads.Worker, lo, hi int) {
		clear(dz.Data[lo*workspace.PieceFloats : min(size, hi*workspace.PieceFloats)]) // padding
	}}, {Items: len(d.elements.runs), Run: func(w *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			d.gradient(w, i, float64(dloss.Data[0]), dz)
		}
	}}}, nil
}

// probabilities writes run i's logits z, targets and probabilities σ(z) to a worker's
// scratch memory.
func (d *dice) probabilities(w *threads.Worker, i int) (logits, targets, p []float32) {
	logits, targets, p = w.Scratch[:lossRunElements], w.Scratch[lossRunElements:2*lossRunElements], w.Scratch[2*lossRunElements:lossScratch]
	one := w.Scratch[lossScratch:]
	one[0] = 1
	d.elements.gather(logits, d.z, i, farLogit)
	d.elements.gather(targets, d.t, i, 0)
	d.ws.Set.BCEGrad(&logits[0], &d.zeros[0], &p[0], &one[0], tensor.RoundUp(d.elements.runs[i].count, lanes))
	return logits, targets, p
}

// add computes the sums of runs [lo, hi).
func (d *dice) add(w *threads.Worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		logits, targets, p := d.probabilities(w, i)
		n := d.elements.runs[i].count
		var s diceSums
		for j, v := range p[:n] {
			s.product += float64(v) * float64(targets[j])
			s.sum += float64(v) + float64(targets[j])
		}
		d.ws.Set.BCE(&logits[0], &targets[0], &p[0], tensor.RoundUp(n, lanes))
		for _, v := range p[:lanes] {
			s.entropy += float64(v)
		}
		d.sums[i] = s
	}
}

// fraction returns numerator and denominator of the smoothed Dice coefficient
// (2·Σ p·t + 1)/(Σ (p+t) + 1) of the map that run i belongs to.
func (d *dice) fraction(i int) (above, below float64) {
	above, below = 1, 1
	for _, s := range d.sums[i/d.perMap*d.perMap:][:d.perMap] {
		above += 2 * s.product
		below += s.sum
	}
	return above, below
}

// loss returns the loss of all runs.
func (d *dice) loss() float64 {
	entropy, lost := 0.0, 0.0
	for i, s := range d.sums {
		entropy += s.entropy
		if i%d.perMap == 0 {
			above, below := d.fraction(i)
			lost += 1 - above/below
		}
	}
	maps := float64(len(d.sums) / d.perMap)
	return d.weight*lost/maps + (1-d.weight)*entropy/float64(d.z.Elements())
}

// gradient writes run i of the gradient dz.
func (d *dice) gradient(w *threads.Worker, i int, dloss float64, dz tensor.Operand) {
	_, targets, probabilities := d.probabilities(w, i)
	above, below := d.fraction(i)
	maps, all := float64(len(d.sums)/d.perMap), float64(d.z.Elements())
	r := d.elements.runs[i]
	at := r.at
	for j := range r.count {
		p, t := float64(probabilities[j]), float64(targets[j])
		overlap := -p * (1 - p) * (2*t*below - above) / (below * below * maps)
		dz.Data[at] = float32(dloss * (d.weight*overlap + (1-d.weight)*(p-t)/all))
		at += d.elements.stride
	}
}
