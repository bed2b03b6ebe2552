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

// PlannedWork returns the work of the tasks of a training step of p, like StepWork, without
// a GPU. It assumes that cuDNN supports every graph that the engine requests with options
// o, and chooses the variants with the least memory traffic. The result is therefore a
// lower bound for the work on a GPU.
func PlannedWork(p *plan.Program, o engine.Options, update *optim.Update) ([]Work, error) {
	x, err := newPlannedExecutable(p, o)
	if err != nil {
		return nil, fmt.Errorf("estimate work of a step: %w", err)
	}
	return x.stepWork(update), nil
}

// newPlannedExecutable returns an executable without a GPU. It has no memory: its addresses
// are not valid.
func newPlannedExecutable(p *plan.Program, o engine.Options) (*executable, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := plan.Validate(p); err != nil {
		return nil, err
	}
	low := number.ActivationType(o.Precision)
	l, err := lowerProgram(p, low, o)
	if err != nil {
		return nil, err
	}
	g := &gpu{functions: map[string]driver.Function{}}
	for _, k := range kernels.ListKernels(kernels.F32, number.KernelType(low)) {
		g.functions[k.Name] = 0
	}
	x := &executable{engine: &Engine{options: o, gpu: g}, gpu: g, program: p, loweredProgram: l, low: low}
	x.exchange.gradAt, x.schedule.picks = map[string]region{}, map[int]chosenPlan{}
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
				return nil, fmt.Errorf("plan kernel %s %q: %w", t.op, t.name, err)
			}
			x.schedule.picks[i] = selectLeastTraffic(list)
		}
	}
	for _, s := range x.prologues {
		if err := x.decidePrologueByBytes(s); err != nil {
			return nil, fmt.Errorf("plan kernel %s %q: %w", x.tasks[s.norm].op, x.tasks[s.norm].name, err)
		}
	}
	return x, nil
}

// selectLeastTraffic returns the variant that moves the fewest bytes.
func selectLeastTraffic(list []variant) chosenPlan {
	best := 0
	for i, v := range list {
		if v.bytes() < list[best].bytes() {
			best = i
		}
	}
	return chosenPlan{variant: list[best]}
}

// decidePrologueByBytes decides, by memory traffic alone, whether the convolutions that
// read a batch norm's result apply the batch norm.
func (x *executable) decidePrologueByBytes(p *prologue) error {
	fused := map[int]chosenPlan{}
	var with, without cost
	for _, r := range p.readers {
		c, _ := x.asConvolution(x.tasks[r])
		list, err := x.prologueVariants(x.tasks[r], c)
		if err != nil {
			return err
		}
		fused[r] = selectLeastTraffic(list)
		with.add(fused[r])
		without.add(x.schedule.picks[r])
	}
	if err := x.addNormCosts(p, false, &with, &without); err != nil {
		return err
	}
	if p.applied = with.bytes < without.bytes; p.applied {
		for _, r := range p.readers {
			x.schedule.picks[r] = fused[r]
		}
	}
	return nil
}
