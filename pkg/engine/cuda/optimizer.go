package cuda

import (
	"errors"
	"fmt"

	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/optim"
)

// parameterSegment is a part of the flat parameter buffer, with the corresponding part of the
// gradient buffer. Positions and sizes are in elements.
type parameterSegment struct {
	param, grad, size int
	vector            bool // the parameter has one dimension; meaningless for a run of several parameters
}

type parameterSegments struct {
	runs  []parameterSegment // merged segments that are contiguous in both buffers
	parts []parameterSegment // one segment per parameter
}

// add appends p, a parameter's segment, to s.parts and s.runs, or extends the last run if p
// follows it directly in both buffers.
func (s *parameterSegments) add(p parameterSegment) {
	s.parts = append(s.parts, p)
	if n := len(s.runs); n > 0 {
		if l := &s.runs[n-1]; l.param+l.size == p.param && l.grad+l.size == p.grad {
			l.size += p.size
			return
		}
	}
	s.runs = append(s.runs, p)
}

// Settings of loss scaling in fp16, as in torch.amp.GradScaler: the loss scale doubles after
// 2000 finite steps in a row, and is halved if a gradient is not finite.
const (
	scaleGrowth   = 2
	scaleBackoff  = 0.5
	scaleInterval = 2000
)

// withoutStepValues returns u without the values that change from step to step. If u is nil,
// the result has an empty Rule.
func withoutStepValues(u *optim.Update) optim.Update {
	if u == nil {
		return optim.Update{}
	}
	r := *u
	r.LearningRate, r.Step = 0, 0
	return r
}

// checkUpdate returns an error if u is invalid or the program has no gradients; u may be
// nil.
func (x *executable) checkUpdate(u *optim.Update) error {
	if u == nil {
		return nil
	}
	if err := u.Validate(); err != nil {
		return fmt.Errorf("update parameters: %w", err)
	}
	if len(x.update.segments.runs) == 0 {
		return errors.New("update parameters: the program computes no gradients; pass a nil update")
	}
	return nil
}

type callCollector struct {
	gpu  *gpu
	list []command
	err  error
}

func (l *callCollector) addLaunches(launches []kernels.Launch, err error) {
	if err == nil {
		var calls []command
		calls, err = l.gpu.newKernelCalls(launches, nil)
		l.list = append(l.list, calls...)
	}
	l.err = errors.Join(l.err, err)
}

// optimizerCommands returns the commands that update the parameters by r. The formulas are in
// optim.Apply64.
func (x *executable) optimizerCommands(r optim.Update) ([]command, error) {
	control := kernels.Pointer(x.memory.control.ptr)
	l := callCollector{gpu: x.gpu}
	l.addLaunches(kernels.BeginStep(control, r.Beta1, r.Beta2))
	// In fp16 all gradients are checked, otherwise only the loss, which is stored after
	// them. If one is not finite, the update is skipped.
	if x.low == device.F16 {
		l.addLaunches(kernels.CheckGradients(kernels.Pointer(x.memory.grads.ptr), x.exchange.lossAt+1, control))
	} else {
		l.addLaunches(kernels.CheckGradients(kernels.Pointer(x.exchangedLossAddress()), 1, control))
	}
	if err := x.allocateUpdateNorms(r); err != nil {
		return nil, err
	}
	if r.ClipNorm > 0 || r.Rule == optim.RuleLARS {
		weights := kernels.Pointer(0)
		if r.Rule == optim.RuleLARS {
			weights = kernels.Pointer(x.store.masters.ptr)
		}
		l.addLaunches(x.update.layers.SumSquares(weights, kernels.Pointer(x.memory.grads.ptr)))
	}
	if r.ClipNorm > 0 {
		l.addLaunches(x.update.layers.Clip(r.ClipNorm, control))
	}
	slots := map[string]driver.Ptr{}
	for _, name := range r.Slots() {
		b, err := x.store.ensureOptimizerSlot(name)
		if err != nil {
			return nil, err
		}
		slots[name] = b.ptr
	}
	whole := kernels.Update{
		W: kernels.Pointer(x.store.masters.ptr), G: kernels.Pointer(x.memory.grads.ptr), Low: kernels.Pointer(x.store.copies.ptr),
		M: kernels.Pointer(slots["m"]), V: kernels.Pointer(slots["v"]), Buffer: kernels.Pointer(slots["momentum"]), Control: control,
		Beta1: r.Beta1, Beta2: r.Beta2, Epsilon: r.Epsilon, Momentum: r.Momentum, Nesterov: r.Nesterov,
		WeightDecay: r.WeightDecay, Decoupled: r.Rule == optim.RuleAdamW,
	}
	if needsLayerwiseNorms(r.Rule) {
		x.addLayerwiseUpdate(&l, r, whole)
	} else {
		x.addFlatUpdate(&l, r, whole)
	}
	if x.low == device.F16 {
		l.addLaunches(kernels.UpdateLossScale(control, scaleGrowth, scaleBackoff, scaleInterval))
	}
	return l.list, l.err
}

func needsLayerwiseNorms(rule string) bool { return rule == optim.RuleLARS || rule == optim.RuleLAMB }

// addFlatUpdate adds a rule without norms: one launch per contiguous run of weights, or,
// without FusedOptimizer, per parameter.
func (x *executable) addFlatUpdate(l *callCollector, r optim.Update, whole kernels.Update) {
	updated := x.update.segments.parts
	if x.engine.options.FusedOptimizer {
		updated = x.update.segments.runs
	}
	at := func(flat kernels.Pointer, elements, size int) kernels.Pointer {
		if flat == 0 {
			return 0
		}
		return flat + kernels.Pointer(elements*size)
	}
	for _, s := range updated {
		u := whole
		u.N, u.W, u.G, u.Low = s.size, at(whole.W, s.param, 4), at(whole.G, s.grad, 4), at(whole.Low, s.param, x.low.Size())
		u.M, u.V, u.Buffer = at(whole.M, s.param, 4), at(whole.V, s.param, 4), at(whole.Buffer, s.param, 4)
		if r.Rule == optim.RuleSGD {
			l.addLaunches(u.SGD(number.KernelType(x.low)))
		} else {
			l.addLaunches(u.Adam(number.KernelType(x.low)))
		}
	}
}

// addLayerwiseUpdate adds LARS or LAMB: launches for all parameters together, or, without
// FusedOptimizer, for each.
func (x *executable) addLayerwiseUpdate(l *callCollector, r optim.Update, whole kernels.Update) {
	step := len(x.update.segments.parts)
	if !x.engine.options.FusedOptimizer {
		step = 1
	}
	for first := 0; first < len(x.update.segments.parts); first += step {
		if r.Rule == optim.RuleLARS {
			l.addLaunches(x.update.layers.LARS(number.KernelType(x.low), whole, r.Trust, first, first+step))
		} else {
			l.addLaunches(x.update.layers.LAMB(number.KernelType(x.low), whole, first, first+step))
		}
	}
}

// allocateUpdateNorms allocates the memory for norms if r needs it and it is not allocated yet.
func (x *executable) allocateUpdateNorms(r optim.Update) error {
	if x.update.norms.ptr != 0 || r.ClipNorm == 0 && !needsLayerwiseNorms(r.Rule) {
		return nil
	}
	var list []kernels.LayerRange
	for _, s := range x.update.segments.parts {
		list = append(list, kernels.LayerRange{Weight: s.param, Gradient: s.grad, Size: s.size, Vector: s.vector})
	}
	layers, err := kernels.NewLayerSet(list)
	if err != nil {
		return err
	}
	x.update.norms.bytes = int64(layers.Bytes)
	if err := x.gpu.allocate(&x.update.norms); err != nil {
		return err
	}
	layers.Memory = kernels.Pointer(x.update.norms.ptr)
	x.update.layers = layers
	return x.gpu.writeMemory(x.update.norms.ptr, layers.Table)
}

func (x *executable) exchangedLossAddress() driver.Ptr {
	return x.memory.grads.ptr.Add(int64(4 * x.exchange.lossAt))
}

// refreshWeightCopies updates the low-precision copies of the weights, if the weights have been
// set since the last step.
func (x *executable) refreshWeightCopies() error {
	s := x.store
	if !s.stale || s.copies.ptr == 0 || s.elements == 0 {
		return nil
	}
	list, err := x.gpu.newKernelCalls(kernels.CastFromF32(number.KernelType(x.low), kernels.Pointer(s.masters.ptr), kernels.Pointer(s.copies.ptr), s.elements))
	if err != nil {
		return err
	}
	s.stale = false
	return x.gpu.enqueueCommands(list, x.gpu.compute)
}
