package cuda

import (
	"fmt"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/optim"
)

// PlannedWork lists the tasks of a training step of p, like StepWork, without a GPU. It
// assumes that cuDNN has every graph that this engine would request with options o, and
// always chooses the variant that moves the fewest bytes. So it is a lower bound for the
// work of p on a GPU.
func PlannedWork(p *plan.Program, o engine.Options, update *optim.Update) ([]Work, error) {
	x, err := planned(p, o)
	if err != nil {
		return nil, fmt.Errorf("plan a step: %w", err)
	}
	return x.stepWork(update), nil
}

// planned returns an executable without memory and without a GPU. Its addresses are not
// valid.
func planned(p *plan.Program, o engine.Options) (*executable, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := plan.Validate(p); err != nil {
		return nil, err
	}
	low := number.Low(o.Precision)
	l, err := lower(p, low, o)
	if err != nil {
		return nil, err
	}
	g := &gpu{functions: map[string]driver.Function{}}
	for _, k := range kernels.List(kernels.F32, number.KernelType(low)) {
		g.functions[k.Name] = 0
	}
	x := &executable{engine: &Engine{options: o, gpu: g}, gpu: g, program: p, lowered: l, low: low}
	x.exchange.gradAt, x.schedule.picks = map[string]region{}, map[int]chosen{}
	if x.store, err = newStore(g, p, l.layouts, low); err != nil {
		return nil, err
	}
	x.layOutGradients()
	x.layOutActivations()
	for i := range x.memory.bases {
		x.memory.bases[i] = driver.Ptr(i+1) << 44 // far apart, and aligned
	}
	x.memory.scratch.ptr = driver.Ptr(len(x.memory.bases)+1) << 44
	for i, t := range x.tasks {
		if c, ok := x.asConvolution(t); ok {
			list, err := x.variants(t, c)
			if err != nil {
				return nil, fmt.Errorf("kernel %s %q: %w", t.op, t.name, err)
			}
			x.schedule.picks[i] = lightest(list)
		}
	}
	for _, s := range x.prologues {
		if err := x.plan(s); err != nil {
			return nil, fmt.Errorf("kernel %s %q: %w", x.tasks[s.norm].op, x.tasks[s.norm].name, err)
		}
	}
	return x, nil
}

// lightest returns the variant that moves the fewest bytes.
func lightest(list []variant) chosen {
	best := 0
	for i, v := range list {
		if v.bytes() < list[best].bytes() {
			best = i
		}
	}
	return chosen{variant: list[best]}
}

// plan decides by bytes moved whether the convolutions that read a batch norm's result
// apply the batch norm.
func (x *executable) plan(p *prologue) error {
	fused := map[int]chosen{}
	var with, without cost
	for _, r := range p.readers {
		c, _ := x.asConvolution(x.tasks[r])
		list, err := x.withPrologue(x.tasks[r], c)
		if err != nil {
			return err
		}
		fused[r] = lightest(list)
		with.add(fused[r])
		without.add(x.schedule.picks[r])
	}
	if err := x.normCosts(p, false, &with, &without); err != nil {
		return err
	}
	if p.applied = with.bytes < without.bytes; p.applied {
		for _, r := range p.readers {
			x.schedule.picks[r] = fused[r]
		}
	}
	return nil
}
