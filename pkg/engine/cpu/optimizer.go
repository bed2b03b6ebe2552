package cpu

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/threads"
	"lockstep/pkg/engine/cpu/internal/workspace"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/optim"
)

// parameterSegment is a range of the flat parameter buffer and the corresponding range of the
// flat gradient buffer: the two offsets and the common size, in floats.
type parameterSegment struct{ param, grad, size int }

const (
	clipPieceFloats   = 16 * 1024 // of gradients whose squares are summed in one piece
	updatePieceFloats = 4 * 1024  // of parameters that are updated in one piece: a few microseconds
)

// optimizer updates the parameters of an executable.
type optimizer struct {
	runs      []parameterSegment       // contiguous parameters whose gradients are contiguous too
	clipped   []parameterSegment       // runs, cut into pieces
	pieces    []parameterSegment       // of the update, in the order in which the backward pass allows them
	allowed   []int                    // by kernel: number of pieces whose weights and gradients no later kernel uses
	constants [kernel.Lanes]float32    // of this step, for the kernels to read
	keep      []float32                // constants by which AdamW's weight decay multiplies the weights; nil for other rules
	ahead     [kernel.Lanes]float32    // constants of Nesterov's step along the momentum buffer; 0 without it
	squares   []float64                // by piece of clipped
	rule      string                   // of the current update
	apply     func(s parameterSegment) // updates a piece by this rule; nil for a rule that needs whole parameters
	adam, sgd func(s parameterSegment) // values of apply, made once so that a step allocates nothing
	update    threads.BackgroundWork
}

// addParameterRun appends a segment to o.runs. If the segment directly follows the last run in
// both buffers, it extends that run instead.
func (o *optimizer) addParameterRun(param, grad, size int) {
	if n := len(o.runs); n > 0 {
		if l := &o.runs[n-1]; l.param+l.size == param && l.grad+l.size == grad {
			l.size += size
			return
		}
	}
	o.runs = append(o.runs, parameterSegment{param, grad, size})
}

// appendPieces appends segments of at most size floats to list.
func (s parameterSegment) appendPieces(list []parameterSegment, size int) []parameterSegment {
	for at := 0; at < s.size; at += size {
		list = append(list, parameterSegment{s.param + at, s.grad + at, min(size, s.size-at)})
	}
	return list
}

// prepareOptimizer divides the parameters into pieces. For each piece it finds the kernel of
// the backward pass after which the piece can be updated.
func (l *loader) prepareOptimizer() {
	x, p := l.x, l.program
	o := &x.optimizer
	for _, r := range o.runs {
		o.clipped = r.appendPieces(o.clipped, clipPieceFloats)
	}
	byKernel := make([][]parameterSegment, len(p.Kernels)+1)
	for _, j := range paramOrder(p) {
		q := p.Params[j]
		if q.Grad < 0 {
			continue
		}
		name := p.Tensors[q.Tensor].Name
		at, grad := x.store.paramAt[name], x.gradients.at[name]
		i := l.lastKernelUsing(q)
		byKernel[i] = append(byKernel[i], parameterSegment{at.offset, grad.offset, tensor.RoundUp(at.size(), tensor.AlignmentFloats)})
	}
	for _, list := range byKernel {
		for _, s := range list {
			o.pieces = s.appendPieces(o.pieces, updatePieceFloats)
		}
		o.allowed = append(o.allowed, len(o.pieces))
	}
	o.adam, o.sgd, o.update.Run = x.applyAdam, x.applySGD, x.updateParameterPiece
}

// lastKernelUsing returns the index of the last kernel that uses parameter q or its gradient.
// If any of these kernels is not a convolution, a fully connected layer or a gradient of one,
// it returns the number of kernels.
func (l *loader) lastKernelUsing(q plan.Param) int {
	last := 0
	for i, k := range l.program.Kernels {
		if !slices.Contains(k.In, q.Tensor) && !slices.Contains(k.In, q.Grad) && !slices.Contains(k.Out, q.Grad) {
			continue
		}
		switch k.Op {
		case plan.OpConv, plan.OpConvTranspose, plan.OpLinear,
			plan.OpConvBackwardData, plan.OpConvTransposeBackwardData, plan.OpLinearBackwardData,
			plan.OpConvBackwardWeights, plan.OpConvTransposeBackwardWeights, plan.OpLinearBackwardWeights:
			last = i
		default:
			return len(l.program.Kernels)
		}
	}
	return last
}

func (x *executable) updateParameterPiece(thread, piece int) {
	if !x.trace.on {
		x.optimizer.apply(x.optimizer.pieces[piece])
		return
	}
	start := time.Now()
	x.optimizer.apply(x.optimizer.pieces[piece])
	list := &x.trace.threads[thread]
	if n := len(*list); n > 0 && (*list)[n-1].part == partOptimizer && (*list)[n-1].name == x.optimizer.rule {
		if last := &(*list)[n-1]; start.Sub(last.start.Add(last.took)) < time.Microsecond {
			last.took = time.Since(last.start)
			return
		}
	}
	*list = append(*list, traceSpan{name: x.optimizer.rule, part: partOptimizer, row: thread, start: start, took: time.Since(start)})
}

func (x *executable) applyAdam(s parameterSegment) {
	o, k := &x.optimizer, x.work.Set
	if w := &x.store.params[s.param]; o.keep != nil {
		k.Normalize(w, w, &o.keep[0], s.size/kernel.Lanes)
	}
	k.Adam(&x.store.params[s.param], &x.gradients.flat[s.grad], &x.store.slots[slotM][s.param], &x.store.slots[slotV][s.param], &o.constants[0], s.size)
}

func (x *executable) applySGD(s parameterSegment) {
	o, k := &x.optimizer, x.work.Set
	w, g := &x.store.params[s.param], &x.gradients.flat[s.grad]
	if o.constants[1] == 0 {
		k.SGD(w, g, &o.constants[0], s.size)
		return
	}
	momentum := &x.store.slots[slotMomentum][s.param]
	if o.ahead[2] == 0 {
		k.Momentum(w, g, momentum, &o.constants[0], s.size)
		return
	}
	// Nesterov: w − lr·(d + μ·buf), d being the gradient with the decay. The buffer is
	// updated first, with a rate of 0, then the two steps.
	still := o.constants
	still[2] = 0
	k.Momentum(w, g, momentum, &still[0], s.size)
	k.SGD(w, g, &o.constants[0], s.size)
	k.SGD(w, momentum, &o.ahead[0], s.size)
}

func (x *executable) checkUpdate(u *optim.Update) error {
	if err := u.Validate(); err != nil {
		return fmt.Errorf("update parameters: %w", err)
	}
	if len(x.optimizer.clipped) == 0 {
		return errors.New("update parameters: the program computes no gradients: pass a nil update")
	}
	return nil
}

// clipGradients scales the gradients so that their norm is at most maxNorm, as optim.Clip32
// does. The squares are summed in pieces that do not depend on the number of threads.
func (x *executable) clipGradients(maxNorm float64) {
	o, k := &x.optimizer, x.work.Set
	o.squares = slices.Grow(o.squares[:0], len(o.clipped))[:len(o.clipped)]
	x.runTask("clip", partOptimizer, threads.Task{Items: len(o.clipped), Run: func(_ *threads.Worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			var sums [kernel.DeviationSumFloats]float32
			o.squares[i] = 0
			s := o.clipped[i]
			for at := 0; at < s.size; at += workspace.MaxFloat32SumPixels * kernel.Lanes {
				clear(sums[:])
				k.Deviations(&x.gradients.flat[s.grad+at], min(workspace.MaxFloat32SumPixels, (s.size-at)/kernel.Lanes), &sums[0])
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
		x.runTask("clip", partOptimizer, x.newScalingTask(x.gradients.flat, float32(f), func(s parameterSegment) int { return s.grad }))
	}
}

// newScalingTask returns a task that multiplies the pieces of flat by f. start returns the
// index in flat where piece s begins.
func (x *executable) newScalingTask(flat []float32, f float32, start func(s parameterSegment) int) threads.Task {
	scale := newScaleNormConstants(f)
	return threads.Task{Items: len(x.optimizer.clipped), Run: func(_ *threads.Worker, lo, hi int) {
		for _, s := range x.optimizer.clipped[lo:hi] {
			x.work.Set.Normalize(&flat[start(s)], &flat[start(s)], &scale[0], s.size/kernel.Lanes)
		}
	}}
}

// newScaleNormConstants returns constants for kernel.Set.Normalize that multiply by f.
func newScaleNormConstants(f float32) []float32 {
	scale := kernel.NewAlignedFloats(kernel.NormConstantFloats)
	for i := range kernel.Lanes {
		kernel.SetNormConstants(scale, i, f, 0, float32(math.Inf(-1)))
	}
	return scale
}

// updateByLayer applies rules that need the norm of each parameter, such as LARS. Padding
// is zero, so that it adds nothing to a norm and remains zero.
func (x *executable) updateByLayer(u optim.Update) error {
	u.ClipNorm = 0 // the gradients are clipped already
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
			t.Slots = append(t.Slots, r.view(x.store.ensureOptimizerSlot(slot)))
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

// prepareUpdate sets the optimizer's constants for u. It also sets apply, unless u's rule needs
// whole parameters.
func (x *executable) prepareUpdate(u *optim.Update) {
	o := &x.optimizer
	o.rule, o.apply = u.Rule, nil
	switch u.Rule {
	case optim.RuleAdam, optim.RuleAdamW:
		// Kingma and Ba, Adam (arXiv:1412.6980), algorithm 1, with the bias
		// corrections 1−β^t drawn out of the loop.
		x.store.ensureOptimizerSlot(slotM)
		x.store.ensureOptimizerSlot(slotV)
		t := float64(u.Step)
		o.constants = [kernel.Lanes]float32{
			float32(u.WeightDecay), float32(u.Beta1), float32(1 - u.Beta1), float32(u.Beta2), float32(1 - u.Beta2),
			float32(1 / math.Sqrt(1-math.Pow(u.Beta2, t))), float32(u.Epsilon), float32(u.LearningRate / (1 - math.Pow(u.Beta1, t))),
		}
		o.keep = nil
		if u.Rule == optim.RuleAdamW { // the decay applies to the weights, not to the gradients
			o.constants[0] = 0
			if u.WeightDecay != 0 {
				o.keep = newScaleNormConstants(float32(1 - u.LearningRate*u.WeightDecay))
			}
		}
		o.apply = o.adam
	case optim.RuleSGD:
		if u.Momentum != 0 {
			x.store.ensureOptimizerSlot(slotMomentum)
		}
		o.constants = [kernel.Lanes]float32{float32(u.WeightDecay), float32(u.Momentum), float32(u.LearningRate)}
		o.ahead = [kernel.Lanes]float32{}
		if u.Nesterov {
			o.ahead[2] = float32(u.LearningRate * u.Momentum)
		}
		o.apply = o.sgd
	}
}

// canUpdateEarly reports whether u may update parameters during the backward pass. This
// requires that neither an exchange nor clipping changes the gradients, and that the rule can
// update a part of a parameter.
func (x *executable) canUpdateEarly(sync engine.GradSync, u *optim.Update) bool {
	return sync == nil && u.ClipNorm == 0 && x.optimizer.apply != nil
}

// updateParameters applies u to all pieces that the backward pass has not updated. If early is
// false, the backward pass has updated none. If gradients are clipped, updateParameters first
// reads them to compute their norm, and may scale them.
func (x *executable) updateParameters(u *optim.Update, early bool) error {
	o := &x.optimizer
	if u.ClipNorm > 0 {
		x.clipGradients(u.ClipNorm)
	}
	if o.apply == nil {
		return x.updateByLayer(*u)
	}
	if !early {
		x.engine.threads.StartBackgroundWork(&o.update)
	}
	x.engine.threads.FinishBackgroundWork(&o.update, len(o.pieces), x.workers)
	return nil
}
