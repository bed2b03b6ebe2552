package cuda

import (
	"errors"
	"fmt"

	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/optim"
)

// segment is a run of parameters whose gradients lie in the same order.
type segment struct{ param, grad, size int }

// segments are the parameters that are updated.
type segments struct {
	runs  []segment // where parameters and gradients are both contiguous
	parts []segment // one a parameter
}

// add adds a region, joined to the last run where both buffers go on without a
// gap.
func (s *segments) add(param, grad, size int) {
	s.parts = append(s.parts, segment{param, grad, size})
	if n := len(s.runs); n > 0 {
		if l := &s.runs[n-1]; l.param+l.size == param && l.grad+l.size == grad {
			l.size += size
			return
		}
	}
	s.runs = append(s.runs, segment{param, grad, size})
}

// The loss scale of fp16 grows by 2 after 2000 good steps and is halved when a
// gradient is not finite, as in torch.amp.GradScaler.
const (
	scaleGrowth   = 2
	scaleBackoff  = 0.5
	scaleInterval = 2000
)

// rule is what of an update stays the same from step to step.
type rule struct {
	name                  string // "": no update
	beta1, beta2, epsilon float64
	momentum, decay       float64
}

func ruleOf(u *optim.Update) rule {
	switch {
	case u == nil:
		return rule{}
	case u.Rule == optim.RuleAdam:
		return rule{name: u.Rule, beta1: u.Beta1, beta2: u.Beta2, epsilon: u.Epsilon, decay: u.WeightDecay}
	}
	return rule{name: u.Rule, momentum: u.Momentum, decay: u.WeightDecay}
}

// canUpdate says whether an update of this kind is possible here.
func (x *executable) canUpdate(u *optim.Update) error {
	switch {
	case u == nil:
		return nil
	case u.Rule != optim.RuleAdam && u.Rule != optim.RuleSGD:
		return fmt.Errorf("update parameters: this engine has no rule %q: use adam or sgd", u.Rule)
	case !u.Simple():
		return errors.New("update parameters: this engine neither clips gradients nor has Nesterov's momentum: set optimizer.clip_norm to 0 and optimizer.nesterov to false")
	case u.Rule == optim.RuleAdam && u.Step < 1:
		return fmt.Errorf("update parameters: adam's step is %d: count from 1", u.Step)
	case len(x.runs.runs) == 0:
		return errors.New("update parameters: the program computes no gradients: give no update")
	}
	return nil
}

// optimize are the launches of an update: Adam after Kingma and Ba
// (arXiv:1412.6980, algorithm 1), SGD with momentum, over the flat buffers.
func (x *executable) optimize(r rule) ([]command, error) {
	control := kernels.Pointer(x.control.ptr)
	var list []command
	var first error
	add := func(launches []kernels.Launch, err error) {
		if err == nil {
			var calls []command
			calls, err = x.gpu.calls(launches, nil)
			list = append(list, calls...)
		}
		first = errors.Join(first, err)
	}
	add(kernels.StepBegin(control, r.beta1, r.beta2))
	// In fp16 every gradient is looked at; else the loss alone, which lies behind
	// them. What is not finite leaves the update out.
	if x.low == device.F16 {
		add(kernels.GradCheck(kernels.Pointer(x.grads.ptr), x.lossAt+1, control))
	} else {
		add(kernels.GradCheck(kernels.Pointer(x.lossTail()), 1, control))
	}
	pieces := x.runs.parts
	if x.engine.options.FusedOptimizer {
		pieces = x.runs.runs
	}
	slots := map[string]driver.Ptr{}
	for _, name := range (optim.Update{Rule: r.name, Momentum: r.momentum}).Slots() {
		b, err := x.store.slot(name)
		if err != nil {
			return nil, err
		}
		slots[name] = b.ptr
	}
	at := func(flat driver.Ptr, elements, size int) kernels.Pointer {
		if flat == 0 {
			return 0
		}
		return kernels.Pointer(flat.Add(int64(elements * size)))
	}
	for _, s := range pieces {
		u := kernels.Update{
			N: s.size, W: at(x.store.masters.ptr, s.param, 4), G: at(x.grads.ptr, s.grad, 4),
			M: at(slots["m"], s.param, 4), V: at(slots["v"], s.param, 4), Buffer: at(slots["momentum"], s.param, 4),
			Low: at(x.store.copies.ptr, s.param, x.low.Size()), Control: control,
			Beta1: r.beta1, Beta2: r.beta2, Epsilon: r.epsilon, Momentum: r.momentum, WeightDecay: r.decay,
		}
		if r.name == optim.RuleAdam {
			add(u.Adam(kernelType(x.low)))
		} else {
			add(u.SGD(kernelType(x.low)))
		}
	}
	if x.low == device.F16 {
		add(kernels.ScaleUpdate(control, scaleGrowth, scaleBackoff, scaleInterval))
	}
	return list, first
}

// lossTail is where the loss lies behind the gradients.
func (x *executable) lossTail() driver.Ptr { return x.grads.ptr.Add(int64(4 * x.lossAt)) }

// refresh writes the low-precision copies of the weights anew, where somebody
// has set these.
func (x *executable) refresh() error {
	s := x.store
	if !s.stale || s.copies.ptr == 0 || s.elements == 0 {
		return nil
	}
	list, err := x.gpu.calls(kernels.CastFromF32(kernelType(x.low), kernels.Pointer(s.masters.ptr), kernels.Pointer(s.copies.ptr), s.elements))
	if err != nil {
		return err
	}
	s.stale = false
	return x.gpu.runAll(list, x.gpu.compute)
}
