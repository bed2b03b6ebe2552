package cpu

import (
	"errors"
	"fmt"
	"math"

	"lockstep/pkg/optim"
)

// segment is a run of parameters whose gradients lie in the same order.
type segment struct{ param, grad, size int }

// sliceFloats is the number of floats of an item of the optimiser's work.
const sliceFloats = 16 * 1024

// optimizer is the prepared update of an executable's parameters.
type optimizer struct {
	runs      []segment      // where parameters and gradients are both contiguous
	pieces    []segment      // runs, cut in slices
	constants [lanes]float32 // of this step, for the kernels to read
	adam, sgd task
}

// add adds a region to the runs, joined to the last one where both
// buffers go on without a gap.
func (o *optimizer) add(param, grad, size int) {
	if n := len(o.runs); n > 0 {
		if l := &o.runs[n-1]; l.param+l.size == param && l.grad+l.size == grad {
			l.size += size
			return
		}
	}
	o.runs = append(o.runs, segment{param, grad, size})
}

// prepareOptimizer cuts the runs in pieces that the workers share.
func (x *executable) prepareOptimizer() {
	o := &x.optimizer
	for _, r := range o.runs {
		for at := 0; at < r.size; at += sliceFloats {
			o.pieces = append(o.pieces, segment{r.param + at, r.grad + at, min(sliceFloats, r.size-at)})
		}
	}
	k := x.engine.kernels
	o.adam = task{len(o.pieces), func(_ *worker, lo, hi int) {
		m, v := x.store.slots[slotM], x.store.slots[slotV]
		for _, s := range o.pieces[lo:hi] {
			k.adam(&x.store.params[s.param], &x.grads[s.grad], &m[s.param], &v[s.param], &o.constants[0], s.size)
		}
	}}
	o.sgd = task{len(o.pieces), func(_ *worker, lo, hi int) {
		buf := x.store.slots[slotMomentum]
		for _, s := range o.pieces[lo:hi] {
			w, g := &x.store.params[s.param], &x.grads[s.grad]
			if o.constants[1] == 0 {
				k.sgd(w, g, &o.constants[0], s.size)
			} else {
				k.momentum(w, g, &buf[s.param], &o.constants[0], s.size)
			}
		}
	}}
}

// canUpdate says whether an update of this kind is possible here.
func (x *executable) canUpdate(u *optim.Update) error {
	switch {
	case u.Rule != "adam" && u.Rule != "sgd":
		return fmt.Errorf("update parameters: rule %q is not known: use adam or sgd", u.Rule)
	case u.Rule == "adam" && u.Step < 1:
		return fmt.Errorf("update parameters: adam's step is %d: count from 1", u.Step)
	case len(x.optimizer.pieces) == 0:
		return errors.New("update parameters: the program computes no gradients: give no update")
	}
	return nil
}

// optimize applies u to the parameters: one pass over the flat buffers.
func (x *executable) optimize(u *optim.Update) {
	o := &x.optimizer
	if u.Rule == "adam" {
		// Kingma and Ba, Adam (arXiv:1412.6980), algorithm 1, with the bias
		// corrections 1−β^t drawn out of the loop.
		x.store.slot(slotM)
		x.store.slot(slotV)
		t := float64(u.Step)
		o.constants = [lanes]float32{
			float32(u.WeightDecay), float32(u.Beta1), float32(1 - u.Beta1), float32(u.Beta2), float32(1 - u.Beta2),
			float32(1 / math.Sqrt(1-math.Pow(u.Beta2, t))), float32(u.Epsilon), float32(u.LearningRate / (1 - math.Pow(u.Beta1, t))),
		}
		x.engine.pool.run(o.adam, x.workers)
		return
	}
	if u.Momentum != 0 {
		x.store.slot(slotMomentum)
	}
	o.constants = [lanes]float32{float32(u.WeightDecay), float32(u.Momentum), float32(u.LearningRate)}
	x.engine.pool.run(o.sgd, x.workers)
}
