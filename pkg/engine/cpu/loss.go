package cpu

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
)

// lossElements cuts a tensor's logical elements for a loss: run i holds count
// elements that are stride floats apart.
type lossElements struct {
	runs   []lossRun
	stride int
}

type lossRun struct{ at, count int }

// lossRunElements is the most elements of a run.
const lossRunElements = 4096

// lossElementsOf cuts the elements of o, without its padding.
func lossElementsOf(o operand) lossElements {
	var e lossElements
	o.layout.runs(o.Shape, func(_, at, count, stride int) {
		e.stride = stride
		for done := 0; done < count; done += lossRunElements {
			e.runs = append(e.runs, lossRun{at + done*stride, min(lossRunElements, count-done)})
		}
	})
	return e
}

// lossScratch is the number of floats of a worker's scratch memory where a run's
// logits and targets lie next to each other, and the logits' gradients.
const lossScratch = 3 * lossRunElements

// gather copies run i of o to dst and fills it up to whole vectors.
func (e *lossElements) gather(dst []float32, o operand, i int, fill float32) {
	r := e.runs[i]
	at := r.at
	for j := range r.count {
		dst[j] = o.data[at]
		at += e.stride
	}
	for j := r.count; j%kernel.Lanes != 0; j++ {
		dst[j] = fill
	}
}

// farLogit is a logit whose loss against the target 0 is 0.
const farLogit = -1000

// bce is the mean binary cross-entropy of logits z and targets t:
// max(z,0) − z·t + log(1+e^−|z|), which never overflows. Runs are added up in
// float32, eight sums each, and the runs' sums in float64.
func (x *builder) bce(c call) ([]task, error) {
	z, t, loss := c.in[0], c.in[1], c.out[0]
	if !slices.Equal(z.Shape, t.Shape) || z.layout != t.layout || z.layout == weightLayout || !loss.vector(1) {
		return nil, c.errorf("it takes logits and targets of one shape and writes [1]")
	}
	e := lossElementsOf(z)
	parts := make([]float64, len(e.runs))
	x.needScratch(lossScratch)
	return []task{{len(e.runs), func(w *worker, lo, hi int) {
		logits, targets, out := w.scratch[:lossRunElements], w.scratch[lossRunElements:], w.scratch[2*lossRunElements:]
		for i := lo; i < hi; i++ {
			e.gather(logits, z, i, farLogit)
			e.gather(targets, t, i, 0)
			x.set.BCE(&logits[0], &targets[0], &out[0], roundUp(e.runs[i].count, kernel.Lanes))
			parts[i] = 0
			for _, v := range out[:kernel.Lanes] {
				parts[i] += float64(v)
			}
		}
	}}, {1, func(*worker, int, int) {
		sum := 0.0
		for _, v := range parts {
			sum += v
		}
		loss.data[0] = float32(sum / float64(z.Elements()))
	}}}, nil
}

// bceGradient is dz = dloss·(σ(z) − t)/elements.
func (x *builder) bceGradient(c call) ([]task, error) {
	z, t, dloss, dz := c.in[0], c.in[1], c.in[2], c.out[0]
	if !slices.Equal(z.Shape, t.Shape) || !slices.Equal(z.Shape, dz.Shape) ||
		z.layout != t.layout || z.layout != dz.layout || z.layout == weightLayout || !dloss.vector(1) {
		return nil, c.errorf("it takes logits, targets of one shape and the loss's gradient [1], and writes a tensor of the logits' shape")
	}
	e := lossElementsOf(z)
	size := z.layout.size(z.Shape)
	x.needScratch(lossScratch + kernel.Lanes)
	return []task{{ceilDiv(size, pieceFloats), func(_ *worker, lo, hi int) {
		clear(dz.data[lo*pieceFloats : min(size, hi*pieceFloats)]) // padding
	}}, {len(e.runs), func(w *worker, lo, hi int) {
		logits, targets, grads := w.scratch[:lossRunElements], w.scratch[lossRunElements:], w.scratch[2*lossRunElements:lossScratch]
		scale := w.scratch[lossScratch:]
		scale[0] = float32(float64(dloss.data[0]) / float64(z.Elements()))
		for i := lo; i < hi; i++ {
			e.gather(logits, z, i, farLogit)
			e.gather(targets, t, i, 0)
			x.set.BCEGrad(&logits[0], &targets[0], &grads[0], &scale[0], roundUp(e.runs[i].count, kernel.Lanes))
			at := e.runs[i].at
			for j := range e.runs[i].count {
				dz.data[at] = grads[j]
				at += e.stride
			}
		}
	}}}, nil
}
