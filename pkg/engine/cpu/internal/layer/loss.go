package layer

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
)

// elementRuns divides the elements of a tensor, without padding, into runs. The elements of
// a run are stride floats apart in memory.
type elementRuns struct {
	runs   []elementRun
	stride int
}

type elementRun struct{ offset, count int }

const maxElementsPerRun = 4096

func newElementRuns(o tensor.Operand) elementRuns {
	var e elementRuns
	o.Layout.ForEachStridedRun(o.Shape, func(_, at, count, stride int) {
		e.stride = stride
		for done := 0; done < count; done += maxElementsPerRun {
			e.runs = append(e.runs, elementRun{at + done*stride, min(maxElementsPerRun, count-done)})
		}
	})
	return e
}

// runScratchFloats is the size of the scratch memory that a worker needs for one run, in
// floats: for logits, for targets, and for probabilities or gradients.
const runScratchFloats = 3 * maxElementsPerRun

// gatherRun copies run i of o to dst, and fills dst up to a multiple of eight elements with the
// value fill.
func (e *elementRuns) gatherRun(dst []float32, o tensor.Operand, i int, fill float32) {
	r := e.runs[i]
	at := r.offset
	for j := range r.count {
		dst[j] = o.Data[at]
		at += e.stride
	}
	for j := r.count; j%lanes != 0; j++ {
		dst[j] = fill
	}
}

// zeroLossLogit is a logit that adds nothing to a loss: for the target 0, its binary
// cross-entropy is 0.
const zeroLossLogit = -1000

// buildBCE builds the mean binary cross-entropy of logits z and targets t. The formula max(z,0)
// − z·t + log(1+e^−|z|) never overflows. Each run is summed in float32, in eight lanes; the
// sums of all runs are added in float64.
func (x *Builder) buildBCE(c Operation) ([]threads.Task, error) {
	z, t, loss := c.Inputs[0], c.Inputs[1], c.Outputs[0]
	if !slices.Equal(z.Shape, t.Shape) || z.Layout != t.Layout || z.Layout == tensor.WeightLayout || !loss.IsVector(1) {
		return nil, c.errorf("want logits and targets of the same shape and a result of shape [1]")
	}
	e := newElementRuns(z)
	parts := make([]float64, len(e.runs))
	x.ReserveScratch(runScratchFloats)
	return []threads.Task{{Items: len(e.runs), Run: func(w *threads.Worker, lo, hi int) {
		logits, targets, out := w.Scratch[:maxElementsPerRun], w.Scratch[maxElementsPerRun:], w.Scratch[2*maxElementsPerRun:]
		for i := lo; i < hi; i++ {
			e.gatherRun(logits, z, i, zeroLossLogit)
			e.gatherRun(targets, t, i, 0)
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

// buildBCEGradient returns the tasks that compute dz = dloss·(σ(z) − t)/elements.
func (x *Builder) buildBCEGradient(c Operation) ([]threads.Task, error) {
	z, t, dloss, dz := c.Inputs[0], c.Inputs[1], c.Inputs[2], c.Outputs[0]
	if !slices.Equal(z.Shape, t.Shape) || !slices.Equal(z.Shape, dz.Shape) ||
		z.Layout != t.Layout || z.Layout != dz.Layout || z.Layout == tensor.WeightLayout || !dloss.IsVector(1) {
		return nil, c.errorf("want logits and targets of the same shape, a gradient of the loss of shape [1], and a result with the shape of the logits")
	}
	e := newElementRuns(z)
	size := z.Layout.FloatCount(z.Shape)
	x.ReserveScratch(runScratchFloats + lanes)
	return []threads.Task{{Items: tensor.CeilDiv(size, workspace.TaskItemFloats), Run: func(_ *threads.Worker, lo, hi int) {
		clear(dz.Data[lo*workspace.TaskItemFloats : min(size, hi*workspace.TaskItemFloats)]) // padding
	}}, {Items: len(e.runs), Run: func(w *threads.Worker, lo, hi int) {
		logits, targets, grads := w.Scratch[:maxElementsPerRun], w.Scratch[maxElementsPerRun:], w.Scratch[2*maxElementsPerRun:runScratchFloats]
		scale := w.Scratch[runScratchFloats:]
		scale[0] = float32(float64(dloss.Data[0]) / float64(z.Elements()))
		for i := lo; i < hi; i++ {
			e.gatherRun(logits, z, i, zeroLossLogit)
			e.gatherRun(targets, t, i, 0)
			x.Set.BCEGrad(&logits[0], &targets[0], &grads[0], &scale[0], tensor.RoundUp(e.runs[i].count, lanes))
			at := e.runs[i].offset
			for j := range e.runs[i].count {
				dz.Data[at] = grads[j]
				at += e.stride
			}
		}
	}}}, nil
}
