package cuda

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"lockstep/pkg/engine/cuda/autotune"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/internal/probe"
	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/plan"
)

// Probe gives package selftest access to the engine's GPU.
func (e *Engine) Probe() probe.GPU { return gpuProbe{e.gpu} }

// gpuProbe implements probe.GPU.
type gpuProbe struct{ *gpu }

func (g gpuProbe) Allocate(bytes int64) (driver.Ptr, error) {
	b := memoryBlock{bytes: bytes}
	if err := g.allocate(&b); err != nil {
		return 0, err
	}
	return b.ptr, g.explainLostGPU(g.driver.MemsetD8Async(b.ptr, 0xff, bytes, g.compute))
}

func (g gpuProbe) Free(p driver.Ptr, bytes int64) error { return g.free(memoryBlock{p, bytes}) }

func (g gpuProbe) Write(p driver.Ptr, data []byte) error { return g.writeMemory(p, data) }

func (g gpuProbe) Read(p driver.Ptr, bytes int64) ([]byte, error) { return g.readMemory(p, bytes) }

func (g gpuProbe) Launch(list []kernels.Launch) error {
	calls, err := g.newKernelCalls(list, nil)
	if err != nil {
		return err
	}
	return g.enqueueCommands(calls, g.compute)
}

func (g gpuProbe) Lost() error { return g.lost }

var _ probe.Executable = (*executable)(nil)

// TaskCount implements probe.Executable.
func (x *executable) TaskCount() int { return len(x.tasks) }

// GradientScale implements probe.Executable.
func (x *executable) GradientScale() float64 { return x.last.scale }

// LaunchedKernels returns the names of the engine's own kernels in all kinds of steps that have
// run.
func (x *executable) LaunchedKernels() []string { return kernelNames(x.stepCommands()...) }

// stepCommands returns the command lists of the steps that have run, one or more for each kind
// of step.
func (x *executable) stepCommands() (lists [][]command) {
	for _, p := range x.schedule.replays {
		for _, s := range p.sections {
			for _, part := range s.phases {
				lists = append(lists, part.commands)
			}
		}
	}
	return lists
}

// kernelNames returns the names of the engine's own kernels in lists of commands, sorted.
func kernelNames(lists ...[]command) []string {
	names := map[string]bool{}
	for _, list := range lists {
		for _, c := range list {
			if n, ok := c.(*taskCommand); ok {
				c = n.command
			}
			if k, ok := c.(*kernelCall); ok {
				names[k.Kernel] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// FillWithNaN fills activations, scratch memory, staging buffers and outputs with NaN.
func (x *executable) FillWithNaN() error {
	return x.do(func() error {
		for _, b := range []memoryBlock{x.memory.arena, x.memory.scratch, x.memory.workspace, x.memory.staging} {
			if err := x.fillBlockWithNaN(b); err != nil {
				return err
			}
		}
		for _, id := range x.program.Outputs {
			if err := x.fillOutputWithNaN(id); err != nil {
				return err
			}
		}
		return x.gpu.synchronize()
	})
}

// fillBlockWithNaN fills b with bytes of 0xff, which is NaN in every type.
func (x *executable) fillBlockWithNaN(b memoryBlock) error {
	if b.bytes == 0 {
		return nil
	}
	return x.gpu.explainLostGPU(x.gpu.driver.MemsetD8Async(b.ptr, 0xff, b.bytes, x.gpu.compute))
}

// fillOutputWithNaN fills the elements of an output with NaN. It does not change the
// padding, which must stay zero.
func (x *executable) fillOutputWithNaN(id int) error {
	p := x.memory.locations[id]
	if p.pitch != p.paddedChannels() {
		return nil // a view of another tensor
	}
	memory, err := x.gpu.readMemory(x.tensorAddress(id), int64(p.bytes()))
	if err != nil {
		return err
	}
	v := number.Decode(p.typ, memory)
	p.forEachStridedRun(func(_, at, count, stride int) {
		for range count {
			v[at] = float32(math.NaN())
			at += stride
		}
	})
	return x.gpu.writeMemory(x.tensorAddress(id), number.Encode(p.typ, v))
}

// CheckPadding implements probe.Executable.
func (x *executable) CheckPadding() error {
	return x.do(func() error {
		for _, id := range x.program.Outputs {
			if err := x.gpu.checkPadding(x.memory.locations[id], x.tensorAddress(id)); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkPadding returns an error for the first padding element of a tensor that is not zero.
func (g *gpu) checkPadding(p tensorLocation, at driver.Ptr) error {
	if p.pitch != p.paddedChannels() || p.form == vectorForm {
		return nil // the statistics of a channel of zeros are not zero
	}
	memory, err := g.readMemory(at, int64(p.bytes()))
	if err != nil {
		return err
	}
	v := number.Decode(p.typ, memory)
	p.forEachStridedRun(func(_, at, count, stride int) {
		for range count {
			v[at] = 0
			at += stride
		}
	})
	for i, f := range v {
		if f != 0 {
			return fmt.Errorf("padding element %d is %v, want 0", i, f)
		}
	}
	return nil
}

// RunPlans implements probe.Executable.
func (x *executable) RunPlans(op plan.Op, visit func(probe.PlanResult) error) (all probe.PlanSummary, err error) {
	err = x.do(func() error {
		for _, t := range x.tasks {
			if c, ok := x.asConvolution(t); ok && t.op == op {
				r := planRunner{x, t}
				all.Fusible = t.attr.ReLU || len(t.in) == 3 || t.acc >= 0
				return r.runAllPlans(c, &all, visit)
			}
		}
		return fmt.Errorf("the program has no convolution with operation %s", op)
	})
	return all, err
}

// planRunner runs the plans of one task for RunPlans.
type planRunner struct {
	x    *executable
	task loweredTask
}

// runAllPlans runs all cuDNN plans of r.task and calls visit with each result. c is r.task as a
// convolution.
func (r *planRunner) runAllPlans(c convolution, all *probe.PlanSummary, visit func(probe.PlanResult) error) (err error) {
	x := r.x
	list, err := x.listVariants(r.task, c)
	if err != nil {
		return err
	}
	candidates, missing, err := x.newTuner().NewCandidates(x.newTuningProblem(c, "", list))
	if err != nil {
		all.NoPlan = err
		return x.gpu.lost
	}
	all.Missing = missing
	defer func() { err = errors.Join(err, autotune.ClosePlans(candidates)) }()
	for _, one := range candidates {
		if one.Plan.Workspace > autotune.MaxWorkspaceBytes {
			continue
		}
		v := list[one.Graph]
		p := probe.PlanResult{
			Name: one.Plan.String(), Fused: len(v.ops) > 1, Kernels: kernelNames(v.before, v.after),
			Reduced: slices.Contains(one.Plan.Numerical, cudnn.NoteWinograd) || slices.Contains(one.Plan.Numerical, cudnn.NoteReducedPrecision),
		}
		if p.Err = r.runCandidate(one, v, &p); p.Err != nil && x.gpu.lost != nil {
			return p.Err
		}
		if err := visit(p); err != nil {
			return err
		}
	}
	return nil
}

// runCandidate runs the plan of candidate one in variant v. It stores the result and the
// further outputs in p.
func (r *planRunner) runCandidate(one autotune.Candidate, v variant, p *probe.PlanResult) error {
	x, t := r.x, r.task
	beside := map[string]int{}
	if t.stats != nil {
		beside["mean"], beside["invstd"] = t.stats.mean, t.stats.invstd
	}
	if t.sums != nil {
		beside["dgamma"], beside["dbeta"] = t.sums.dgamma, t.sums.dbeta
	}
	for _, id := range beside {
		if err := x.fillBlockWithNaN(memoryBlock{x.tensorAddress(id), int64(x.memory.locations[id].bytes())}); err != nil {
			return err
		}
	}
	result, err := x.runPlan(one, v, t.out[0])
	if err != nil {
		return err
	}
	p.FurtherOutputs = map[string][]float64{}
	for name, id := range beside {
		memory, err := x.gpu.readMemory(x.tensorAddress(id), int64(x.memory.locations[id].bytes()))
		if err != nil {
			return err
		}
		p.FurtherOutputs[name] = number.ToFloat64(number.Decode(x.memory.locations[id].typ, memory))[:x.memory.locations[id].channels()]
	}
	if t.sums != nil {
		// The result of the fused graph includes ReLU's gradient, so the comparison is made
		// after the batch norm's gradient.
		if p.FurtherOutputs["dx"], err = r.runNormGradients(); err != nil {
			return err
		}
	}
	p.Result = result
	return nil
}

// runNormGradients runs the gradients of all batch norms in the program, and returns dx of
// the last one.
func (r *planRunner) runNormGradients() (dx []float64, err error) {
	x := r.x
	for i, t := range x.tasks {
		if t.op != plan.OpBatchNormBackward {
			continue
		}
		if err := x.gpu.enqueueCommands(x.schedule.commands[i], x.gpu.compute); err != nil {
			return nil, err
		}
		if dx, err = x.readLogicalValues(t.out[0]); err != nil {
			return nil, err
		}
	}
	return dx, nil
}

// runPlan runs the plan c of variant v, whose result is tensor id, and returns the result in
// logical order. It fills the result with NaN first.
func (x *executable) runPlan(c autotune.Candidate, v variant, id int) ([]float64, error) {
	if err := x.growCUDNNWorkspace(c.Plan.Workspace); err != nil {
		return nil, err
	}
	p, to := x.memory.locations[id], x.tensorAddress(id)
	for _, b := range []memoryBlock{{to, int64(p.bytes())}, x.memory.scratch, x.memory.workspace} {
		if err := x.fillBlockWithNaN(b); err != nil {
			return nil, err
		}
	}
	pack, err := x.gpu.cudnn.NewVariantPack(v.pointers, x.memory.workspace.ptr)
	if err != nil {
		return nil, err
	}
	err = x.gpu.enqueueCommands(v.commandsWith(&cudnnPlanCall{c.Plan.String(), c.Plan, pack}), x.gpu.compute)
	if err == nil {
		err = x.gpu.synchronize()
	}
	if err := errors.Join(err, pack.Close()); err != nil {
		return nil, err
	}
	if err := x.gpu.checkPadding(p, to); err != nil {
		return nil, err
	}
	return x.readLogicalValues(id)
}

// readLogicalValues returns the elements of tensor id in logical order.
func (x *executable) readLogicalValues(id int) ([]float64, error) {
	p := x.memory.locations[id]
	memory, err := x.gpu.readMemory(x.tensorAddress(id), int64(p.bytes()))
	if err != nil {
		return nil, err
	}
	out := make([]float64, elementCount(p.shape))
	unpackFromLayout(p.layout, out, number.Decode(p.typ, memory))
	return out, nil
}
