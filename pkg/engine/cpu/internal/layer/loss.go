package layer

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
)

// lossElements divides the logical elements of a tensor into runs. The elements of a
// run are stride floats apart.
type lossElements struct {
	runs   []lossRun
	stride int
}

// lossRun is count elements, the first at index at.
type lossRun struct{ at, count int }

// lossRunElements is the greatest number of elements of a run.
const lossRunElements = 4096

// lossElementsOf divides the elements of o, without its padding, into runs.
func lossElementsOf(o tensor.Operand) lossElements {
	var e lossElements
	o.Layout.Runs(o.Shape, func(_, at, count, stride int) {
		e.stride = stride
		for done := 0; done < count; done += lossRunElements {
			e.runs = append(e.runs, lossRun{at + done*stride, min(lossRunElements, count-done)})
		}
	})
	return e
}

// lossScratch is the number of floats that a run takes in a worker's scratch memory:
// logits, targets, and the gradients of the logits.
const lossScratch = 3 * lossRunElements

// gather copies run i of o to dst and fills the last vector with the value fill.
func (e *lossElements) gather(dst []float32, o tensor.Operand, i int, fill float32) {
	r := e.runs[i]
	at := r.at
	for j := range r.count {
		dst[j] = o.Data[at]
		at += e.stride
	}
	for j := r.count; j%lanes != 0; j++ {
		dst[j] = fill
	}
}

// farLogit is a logit whose loss against the target 0 is 0.
const farLogit = -1000

// bce prepares the mean binary cross-entropy of logits z and targets t:
// max(z,0) − z·t + log(1+e^−|z|), which never overflows. Each run is added up in
// float32, in eight sums; the sums of all runs are added in float64.
func (x *Builder) bce(c Call) ([]threads.Task, error) {
	z, t, loss := c.Inputs[0], c.Inputs[1], c.Outputs[0]
	if !slices.Equal(z.Shape, t.Shape) || z.Layout != t.Layout || z.Layout == tensor.WeightLayout || !loss.IsVector(1) {
		return nil, c.errorf("it takes logits and targets of one shape and writes [1]")
	}
	e := lossElementsOf(z)
	parts := make([]float64, len(e.runs))
	x.NeedScratch(lossScratch)
	return []threads.Task{{Items: len(e.runs), Run: func(w *threads.Worker, lo, hi int) {
		logits, targets, out := w.Scratch[:lossRunElements], w.Scratch[lossRunElements:], w.Scratch[2*lossRunElements:]
		for i := lo; i < hi; i++ {
			e.gather(logits, z, i, farLogit)
			e.gather(targets, t, i, 0)
			x.Set.BCE(&logits[0], &targets[0], &out[0], tensor.RoundUp(e.runs[i].count, lanes))
			parts[i] = 0
			for _, v := range out[:lanes] {
				parts[i] += float64(v)
			}
		}
	}}, {Items: 1, Run: func(*threads.Worker, int, int) {
		sum := 0.0
		for _, v := range parts {
			sum += v
		}
		loss.Data[0] = float32(sum / float64(z.Elements()))
	}}}, nil
}

// bceGradient prepares dz = dloss·(σ(z) − t)/elements.
func (x *Builder) bceGradient(c Call) ([]threads.Task, error) {
	z, t, dloss, dz := c.Inputs[0], c.Inputs[1], c.Inputs[2], c.Outputs[0]
	if !slices.Equal(z.Shape, t.Shape) || !slices.Equal(z.Shape, dz.Shape) ||
		z.Layout != t.Layout || z.Layout != dz.Layout || z.Layout == tensor.WeightLayout || !dloss.IsVector(1) {
		return nil, c.errorf("it takes logits, targets of one shape and the loss's gradient [1], and writes a tensor of the logits' shape")
	}
	e := lossElementsOf(z)
	size := z.Layout.Size(z.Shape)
	x.NeedScratch(lossScratch + lanes)
	return []threads.Task{{Items: tensor.CeilDiv(size, workspace.PieceFloats), Run: func(_ *threads.Worker, lo, hi int) {
		clear(dz.Data[lo*workspace.PieceFloats : min(size, hi*workspace.PieceFloats)]) // padding
	}}, {Items: len(e.runs), Run: func(w *threads.Worker, lo, hi int) {
		logits, targets, grads := w.Scratch[:lossRunElements], w.Scratch[lossRunElements:], w.Scratch[2*lossRunElements:lossScratch]
		scale := w.Scratch[lossScratch:]
		scale[0] = float32(float64(dloss.Data[0]) / float64(z.Elements()))
		for i := lo; i < hi; i++ {
			e.gather(logits, z, i, farLogit)
			e.gather(targets, t, i, 0)
			x.Set.BCEGrad(&logits[0], &targets[0], &grads[0], &scale[0], tensor.RoundUp(e.runs[i].count, lanes))
			at := e.runs[i].at
			for j := range e.runs[i].count {
				dz.Data[at] = grads[j]
				at += e.stride
			}
		}
	}}}, nil
}
