package layer

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
	"lockstep/pkg/internal/plan"
)

// diceLoss computes the weighted sum of soft Dice loss and binary cross-entropy, or its
// gradient.
type diceLoss struct {
	ws       *workspace.Workspace
	z, t     tensor.Operand
	weight   float64 // of the Dice term
	elements elementRuns
	perMap   int        // runs per channel of a sample
	sums     []diceSums // by run
	zeros    []float32
}

// diceSums contains sums over the elements of a run, where p = σ(z).
type diceSums struct {
	entropy float64 // of the cross-entropy
	product float64 // of p·t
	sum     float64 // of p+t
}

func (x *Builder) buildDiceBCE(c Operation) ([]threads.Task, error) {
	z, t := c.Inputs[0], c.Inputs[1]
	if !slices.Equal(z.Logical, t.Logical) || z.Layout != tensor.ActivationLayout || t.Layout != tensor.ActivationLayout {
		return nil, c.errorf("want logits and targets [n,c,…] of the same shape")
	}
	d := &diceLoss{ws: x.Workspace, z: z, t: t, weight: c.Attr.DiceWeight, elements: newElementRuns(z), zeros: kernel.NewAlignedFloats(maxElementsPerRun)}
	d.perMap = len(d.elements.runs) / (z.Shape[0] * z.Shape[1])
	d.sums = make([]diceSums, len(d.elements.runs))
	x.ReserveScratch(runScratchFloats + lanes)
	add := threads.Task{Items: len(d.elements.runs), Run: d.sumElementRuns}
	if c.Op == plan.OpDiceBCE {
		loss := c.Outputs[0]
		if !loss.IsVector(1) {
			return nil, c.errorf("want a result of shape [1]")
		}
		return []threads.Task{add, {Items: 1, Run: func(*threads.Worker, int, int) { loss.Data[0] = float32(d.totalLoss()) }}}, nil
	}
	dloss, dz := c.Inputs[2], c.Outputs[0]
	if !dloss.IsVector(1) || !slices.Equal(dz.Logical, z.Logical) || dz.Layout != tensor.ActivationLayout {
		return nil, c.errorf("want a gradient of the loss of shape [1] and a result with the shape of the logits")
	}
	size := z.Layout.FloatCount(z.Shape)
	return []threads.Task{add, {Items: tensor.CeilDiv(size, workspace.TaskItemFloats), Run: func(_ *threads.Worker, lo, hi int) {
		clear(dz.Data[lo*workspace.TaskItemFloats : min(size, hi*workspace.TaskItemFloats)]) // padding
	}}, {Items: len(d.elements.runs), Run: func(w *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			d.writeGradient(w, i, float64(dloss.Data[0]), dz)
		}
	}}}, nil
}

// computeProbabilities returns the logits and targets of run i and the probabilities p =
// σ(logits). All three are in the worker's scratch memory.
func (d *diceLoss) computeProbabilities(w *threads.Worker, i int) (logits, targets, p []float32) {
	logits, targets, p = w.Scratch[:maxElementsPerRun], w.Scratch[maxElementsPerRun:2*maxElementsPerRun], w.Scratch[2*maxElementsPerRun:runScratchFloats]
	one := w.Scratch[runScratchFloats:]
	one[0] = 1
	d.elements.gatherRun(logits, d.z, i, zeroLossLogit)
	d.elements.gatherRun(targets, d.t, i, 0)
	d.ws.Set.BCEGrad(&logits[0], &d.zeros[0], &p[0], &one[0], tensor.RoundUp(d.elements.runs[i].count, lanes))
	return logits, targets, p
}

func (d *diceLoss) sumElementRuns(w *threads.Worker, lo, hi int) {
	for i := lo; i < hi; i++ {
		logits, targets, p := d.computeProbabilities(w, i)
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

// diceCoefficient returns numerator and denominator of the smoothed Dice coefficient (2·Σ
// p·t + 1)/(Σ (p+t) + 1) of the map that contains run i.
func (d *diceLoss) diceCoefficient(i int) (numerator, denominator float64) {
	numerator, denominator = 1, 1
	for _, s := range d.sums[i/d.perMap*d.perMap:][:d.perMap] {
		numerator += 2 * s.product
		denominator += s.sum
	}
	return numerator, denominator
}

func (d *diceLoss) totalLoss() float64 {
	entropy, lost := 0.0, 0.0
	for i, s := range d.sums {
		entropy += s.entropy
		if i%d.perMap == 0 {
			numerator, denominator := d.diceCoefficient(i)
			lost += 1 - numerator/denominator
		}
	}
	maps := float64(len(d.sums) / d.perMap)
	return d.weight*lost/maps + (1-d.weight)*entropy/float64(d.z.Elements())
}

func (d *diceLoss) writeGradient(w *threads.Worker, i int, dloss float64, dz tensor.Operand) {
	_, targets, probabilities := d.computeProbabilities(w, i)
	numerator, denominator := d.diceCoefficient(i)
	maps, all := float64(len(d.sums)/d.perMap), float64(d.z.Elements())
	r := d.elements.runs[i]
	at := r.offset
	for j := range r.count {
		p, t := float64(probabilities[j]), float64(targets[j])
		overlap := -p * (1 - p) * (2*t*denominator - numerator) / (denominator * denominator * maps)
		dz.Data[at] = float32(dloss * (d.weight*overlap + (1-d.weight)*(p-t)/all))
		at += d.elements.stride
	}
}
