package cpu

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
	"lockstep/pkg/optim"
)

// segment is a range of the parameters and the range of their gradients, which have the
// same order and size.
type segment struct{ param, grad, size int }

// updateItemFloats is the number of floats that an item of the optimizer's tasks processes.
const updateItemFloats = 16 * 1024

// optimizer updates the parameters of an executable.
type optimizer struct {
	runs      []segment             // contiguous parameters whose gradients are contiguous too
	pieces    []segment             // runs, cut into slices
	constants [kernel.Lanes]float32 // of this step, for the kernels to read
	keep      []float32             // constants by which AdamW's weight decay multiplies the weights; nil for other rules
	ahead     [kernel.Lanes]float32 // constants of Nesterov's step along the momentum buffer; 0 without it
	squares   []float64             // by piece
	adam, sgd threads.Task
}

// addRun adds a range to the runs. If both its parameters and its gradients directly follow
// the last run, addRun extends that run.
func (o *optimizer) addRun(param, grad, size int) {
	if n := len(o.runs); n > 0 {
		if l := &o.runs[n-1]; l.param+l.size == param && l.grad+l.size == grad {
			l.size += size
			return
		}
	}
	o.runs = append(o.runs, segment{param, grad, size})
}

// prepareOptimizer divides the contiguous ranges of parameters into pieces and prepares the
// tasks that update the pieces.
func (x *executable) prepareOptimizer() {
	o := &x.optimizer
	for _, r := range o.runs {
		for at := 0; at < r.size; at += updateItemFloats {
			o.pieces = append(o.pieces, segment{r.param + at, r.grad + at, min(updateItemFloats, r.size-at)})
		}
	}
	k := x.work.Set
	o.adam = threads.Task{Items: len(o.pieces), Run: func(_ *threads.Worker, lo, hi int) {
		m, v := x.store.slots[slotM], x.store.slots[slotV]
		for _, s := range o.pieces[lo:hi] {
			if w := &x.store.params[s.param]; o.keep != nil {
				k.Normalize(w, w, &o.keep[0], s.size/kernel.Lanes)
			}
			k.Adam(&x.store.params[s.param], &x.gradients.flat[s.grad], &m[s.param], &v[s.param], &o.constants[0], s.size)
		}
	}}
	o.sgd = threads.Task{Items: len(o.pieces), Run: func(_ *threads.Worker, lo, hi int) {
		buf := x.store.slots[slotMomentum]
		for _, s := range o.pieces[lo:hi] {
			w, g := &x.store.params[s.param], &x.gradients.flat[s.grad]
			switch {
			case o.constants[1] == 0:
				k.SGD(w, g, &o.constants[0], s.size)
			case o.ahead[2] != 0:
				// w − lr·(d + μ·buf), d being the gradient with the decay: the buffer
				// first, with a rate of 0, then the two steps.
				still := o.constants
				still[2] = 0
				k.Momentum(w, g, &buf[s.param], &still[0], s.size)
				k.SGD(w, g, &o.constants[0], s.size)
				k.SGD(w, &buf[s.param], &o.ahead[0], s.size)
			default:
				k.Momentum(w, g, &buf[s.param], &o.constants[0], s.size)
			}
		}
	}}
}

// checkUpdate returns an error if u is invalid or the program computes no gradients.
func (x *executable) checkUpdate(u *optim.Update) error {
	if err := u.Validate(); err != nil {
		return fmt.Errorf("update parameters: %w", err)
	}
	if len(x.optimizer.pieces) == 0 {
		return errors.New("update parameters: the program computes no gradients: pass a nil update")
	}
	return nil
}

// clipGradients scales the gradients so that their norm is at most maxNorm, as optim.Clip32
// does. The squares are summed in pieces that do not depend on the number of threads.
func (x *executable) clipGradients(maxNorm float64) {
	o, k := &x.optimizer, x.work.Set
	o.squares = slices.Grow(o.squares[:0], len(o.pieces))[:len(o.pieces)]
	x.runTask("clip", partOptimizer, threads.Task{Items: len(o.pieces), Run: func(_ *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			var sums [kernel.DeviationFloats]float32
			o.squares[i] = 0
			s := o.pieces[i]
			for at := 0; at < s.size; at += workspace.MaxChunkPixels * kernel.Lanes {
				clear(sums[:])
				k.Deviations(&x.gradients.flat[s.grad+at], min(workspace.MaxChunkPixels, (s.size-at)/kernel.Lanes), &sums[0])
				for _, v := range sums[2*kernel.Lanes:] {
					o.squares[i] += float64(v)
				}
			}
		}
	}})
	sum := 0.0
	for _, v := range o.squares {
		sum += v
	}
	const slack = 1e-6 // keeps the quotient finite where all gradients are 0
	if f := maxNorm / (math.Sqrt(sum) + slack); f < 1 {
		x.runTask("clip", partOptimizer, x.newScalingTask(x.gradients.flat, float32(f), func(s segment) int { return s.grad }))
	}
}

// newScalingTask returns a task that multiplies the pieces of a flat buffer by f. start
// returns the index of a piece's first element in the buffer.
func (x *executable) newScalingTask(flat []float32, f float32, start func(s segment) int) threads.Task {
	scale := newScaleConstants(f)
	return threads.Task{Items: len(x.optimizer.pieces), Run: func(_ *threads.Worker, lo, hi int) {
		for _, s := range x.optimizer.pieces[lo:hi] {
			x.work.Set.Normalize(&flat[start(s)], &flat[start(s)], &scale[0], s.size/kernel.Lanes)
		}
	}}
}

// newScaleConstants returns the constants with which kernel.Set.Normalize multiplies by f.
func newScaleConstants(f float32) []float32 {
	scale := kernel.AlignedFloats(kernel.NormFloats)
	for i := range kernel.Lanes {
		kernel.SetNorm(scale, i, f, 0, float32(math.Inf(-1)))
	}
	return scale
}

// updateByLayer applies rules that need the norm of each parameter, such as LARS. Padding
// of weights, gradients and slots is zero, so that it adds nothing to a norm and remains
// zero.
func (x *executable) updateByLayer(u optim.Update) error {
	u.ClipNorm = 0 // done
	slots := u.Slots()
	var list []optim.Tensor32
	for _, name := range x.store.paramSeq {
		at, ok := x.gradients.at[name]
		if !ok {
			continue // no gradient was asked for
		}
		r := x.store.paramAt[name]
		t := optim.Tensor32{Weights: r.view(x.store.params), Gradient: at.view(x.gradients.flat), Vector: len(r.shape) == 1}
		for _, slot := range slots {
			t.Slots = append(t.Slots, r.view(x.store.slot(slot)))
		}
		list = append(list, t)
	}
	errs := make([]error, len(list))
	x.runTask(u.Rule, partOptimizer, threads.Task{Items: len(list), Run: func(_ *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			errs[i] = optim.Apply32(u, list[i:i+1])
		}
	}})
	return errors.Join(errs...)
}

// updateParameters applies u in one pass over the flat buffers of parameters and gradients.
// Clipping the gradients takes one or two more passes.
func (x *executable) updateParameters(u *optim.Update) error {
	o := &x.optimizer
	if u.ClipNorm > 0 {
		x.clipGradients(u.ClipNorm)
	}
	switch u.Rule {
	case optim.RuleAdam, optim.RuleAdamW:
		// Kingma and Ba, Adam (arXiv:1412.6980), algorithm 1, with the bias
		// corrections 1−β^t drawn out of the loop.
		x.store.slot(slotM)
		x.store.slot(slotV)
		t := float64(u.Step)
		o.constants = [kernel.Lanes]float32{
			float32(u.WeightDecay), float32(u.Beta1), float32(1 - u.Beta1), float32(u.Beta2), float32(1 - u.Beta2),
			float32(1 / math.Sqrt(1-math.Pow(u.Beta2, t))), float32(u.Epsilon), float32(u.LearningRate / (1 - math.Pow(u.Beta1, t))),
		}
		o.keep = nil
		if u.Rule == optim.RuleAdamW { // the decay applies to the weights, not to the gradients
			o.constants[0] = 0
			if u.WeightDecay != 0 {
				o.keep = newScaleConstants(float32(1 - u.LearningRate*u.WeightDecay))
			}
		}
		x.runTask(u.Rule, partOptimizer, o.adam)
	case optim.RuleSGD:
		if u.Momentum != 0 {
			x.store.slot(slotMomentum)
		}
		o.constants = [kernel.Lanes]float32{float32(u.WeightDecay), float32(u.Momentum), float32(u.LearningRate)}
		o.ahead = [kernel.Lanes]float32{}
		if u.Nesterov {
			o.ahead[2] = float32(u.LearningRate * u.Momentum)
		}
		x.runTask(u.Rule, partOptimizer, o.sgd)
	default:
		return x.updateByLayer(*u)
	}
	return nil
}
