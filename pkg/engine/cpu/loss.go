package cpu

import (
	"math"
	"slices"
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

// bce is the mean binary cross-entropy of logits z and targets t, summed in
// float64: max(z,0) − z·t + log(1+e^−|z|), which never overflows.
func (x *executable) bce(c call) ([]task, error) {
	z, t, loss := c.in[0], c.in[1], c.out[0]
	if !slices.Equal(z.Shape, t.Shape) || z.layout != t.layout || z.layout == weightLayout || !loss.vector(1) {
		return nil, c.errorf("it takes logits and targets of one shape and writes [1]")
	}
	e := lossElementsOf(z)
	parts := make([]float64, len(e.runs))
	return []task{{len(e.runs), func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			sum, at := 0.0, e.runs[i].at
			for range e.runs[i].count {
				v := float64(z.data[at])
				sum += max(v, 0) - v*float64(t.data[at]) + math.Log1p(math.Exp(-math.Abs(v)))
				at += e.stride
			}
			parts[i] = sum
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
func (x *executable) bceGradient(c call) ([]task, error) {
	z, t, dloss, dz := c.in[0], c.in[1], c.in[2], c.out[0]
	if !slices.Equal(z.Shape, t.Shape) || !slices.Equal(z.Shape, dz.Shape) ||
		z.layout != t.layout || z.layout != dz.layout || z.layout == weightLayout || !dloss.vector(1) {
		return nil, c.errorf("it takes logits, targets of one shape and the loss's gradient [1], and writes a tensor of the logits' shape")
	}
	e := lossElementsOf(z)
	size := z.layout.size(z.Shape)
	return []task{{ceilDiv(size, pieceFloats), func(_ *worker, lo, hi int) {
		clear(dz.data[lo*pieceFloats : min(size, hi*pieceFloats)]) // padding
	}}, {len(e.runs), func(_ *worker, lo, hi int) {
		scale := float64(dloss.data[0]) / float64(z.Elements())
		for i := lo; i < hi; i++ {
			at := e.runs[i].at
			for range e.runs[i].count {
				sigma := 1 / (1 + math.Exp(-float64(z.data[at])))
				dz.data[at] = float32(scale * (sigma - float64(t.data[at])))
				at += e.stride
			}
		}
	}}}, nil
}
