package cuda

import (
	"errors"
	"fmt"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/number"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/plan"
)

// initialLossScale is the loss scale of fp16 at the first step, the same as in
// torch.amp.GradScaler.
const initialLossScale = 65536

// checkProgram returns an error if p has an operation that this engine cannot run on any GPU. It
// needs no GPU.
func checkProgram(p *plan.Program) error {
	for _, k := range p.Kernels {
		if k.Op == plan.OpPixelCrossEntropy || k.Op == plan.OpPixelCrossEntropyBackward {
			return fmt.Errorf("device cuda does not support operation %s (layer %q), the loss over several classes per pixel: use device cpu", k.Op, k.Name)
		}
	}
	return nil
}

// load does the work of Load. It must run on the engine's thread, as must all functions below.
func (e *Engine) load(p *plan.Program, share engine.Executable) (x *executable, err error) {
	if p == nil {
		return nil, errors.New("the program is nil")
	}
	if err := plan.Validate(p); err != nil {
		return nil, err
	}
	if err := checkProgram(p); err != nil {
		return nil, err
	}
	if e.gpu.lost != nil {
		return nil, e.gpu.lost
	}
	low := number.ActivationType(e.options.Precision)
	l, err := lowerProgram(p, low, e.options)
	if err != nil {
		return nil, err
	}
	x = &executable{engine: e, gpu: e.gpu, program: p, loweredProgram: l, low: low}
	x.exchange.gradAt, x.schedule.picks, x.schedule.replays = map[string]region{}, map[int]chosenPlan{}, map[replayKey]*stepReplay{}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.close())
			x = nil
		}
	}()
	if err := x.setStore(share); err != nil {
		return x, err
	}
	x.layOutGradients()
	x.layOutActivations()
	if err := x.allocateMemory(); err != nil {
		return x, err
	}
	if err := x.prepareInputs(); err != nil {
		return x, err
	}
	if err := x.buildCommands(); err != nil {
		return x, err
	}
	if err := x.prepareNormSync(); err != nil {
		return x, err
	}
	return x, x.gpu.synchronize()
}

// setStore sets x.store to the store of share, or to a new store if share is nil.
func (x *executable) setStore(share engine.Executable) (err error) {
	if share == nil {
		x.store, err = newTensorStore(x.gpu, x.program, x.layouts, x.low)
		return err
	}
	other, ok := share.(*executable)
	switch {
	case !ok || other.engine != x.engine:
		return errors.New("the shared executable belongs to another engine")
	case other.closed:
		return errClosed
	}
	if err := other.store.checkContains(x.program, x.layouts); err != nil {
		return err
	}
	x.store = other.store
	x.store.users++
	return nil
}

// buildCommands chooses the algorithms of the convolutions, allocates the largest workspace that
// any of them needs, and creates the commands of all tasks.
func (x *executable) buildCommands() error {
	if err := x.fillOperandsWithNoise(); err != nil {
		return err
	}
	// Timed variants update the running statistics, which other executables may share. So
	// the statistics are saved first and restored after tuning.
	if err := x.copyRunningStatistics(x.memory.backup.ptr, x.store.states.ptr); err != nil {
		return err
	}
	if err := x.allocateGaplessCopies(); err != nil {
		return err
	}
	if err := x.chooseConvolutionAlgorithms(); err != nil {
		return err
	}
	if err := x.freeUnusedGaplessCopies(); err != nil {
		return err
	}
	if err := x.copyRunningStatistics(x.store.states.ptr, x.memory.backup.ptr); err != nil {
		return err
	}
	if err := x.gpu.free(x.memory.cacheFlush); err != nil {
		return err
	}
	x.memory.cacheFlush = memoryBlock{}
	workspace := int64(0)
	for _, c := range x.schedule.picks {
		workspace = max(workspace, c.plan.Workspace)
	}
	// Tuning has written arbitrary numbers to the memory, so set the memory to zero.
	if err := x.clearMemoryAfterTuning(); err != nil {
		return err
	}
	if err := x.resizeCUDNNWorkspace(workspace); err != nil {
		return x.explainOutOfMemory(err)
	}
	for i, t := range x.tasks {
		c, ok := x.schedule.picks[i]
		if !ok {
			list, err := x.compileTask(t)
			if err != nil {
				return err
			}
			x.schedule.commands = append(x.schedule.commands, x.tagCommands(i, list))
			continue
		}
		pack, err := x.gpu.cudnn.NewVariantPack(c.pointers, x.memory.workspace.ptr)
		if err != nil {
			return fmt.Errorf("prepare kernel %s %q: %w", t.op, t.name, err)
		}
		x.schedule.packs = append(x.schedule.packs, pack)
		call := &cudnnPlanCall{string(t.op), c.plan, pack}
		x.schedule.commands = append(x.schedule.commands, x.tagCommands(i, c.commandsWith(call)))
	}
	for x.schedule.forward = 0; x.schedule.forward < len(x.tasks) && x.tasks[x.schedule.forward].kernel < x.program.Forward; x.schedule.forward++ {
	}
	// If the cache cannot be written, only the next start is affected: it has to tune
	// again.
	_ = x.engine.cache.Save()
	return nil
}

// allocateGaplessCopies allocates memory for gapless copies of operands that have gaps between
// their pixels, if a convolution has any. If there is not enough memory, variants with such
// copies are left out.
func (x *executable) allocateGaplessCopies() error {
	for _, t := range x.tasks {
		if c, ok := x.asConvolution(t); ok {
			x.memory.gapless.bytes = max(x.memory.gapless.bytes, int64(c.gaplessBytes()))
		}
	}
	if err := x.gpu.allocate(&x.memory.gapless); err != nil {
		x.memory.gapless = memoryBlock{}
		if x.gpu.lost != nil {
			return err
		}
	}
	return nil
}

// freeUnusedGaplessCopies frees the memory of allocateGaplessCopies unless a chosen variant
// uses it.
func (x *executable) freeUnusedGaplessCopies() error {
	for i, c := range x.schedule.picks {
		if conv, ok := x.asConvolution(x.tasks[i]); ok && conv.gaplessBytes() > 0 && c.usesMemory(x.memory.gapless.ptr, x.memory.gapless.bytes) {
			return nil
		}
	}
	p := x.memory.gapless
	x.memory.gapless = memoryBlock{}
	return x.gpu.free(p)
}

// usesMemory reports whether v's graph reads or writes memory in [p, p+bytes).
func (v variant) usesMemory(p driver.Ptr, bytes int64) bool {
	for _, at := range v.pointers {
		if at >= p && at < p.Add(bytes) {
			return true
		}
	}
	return false
}

// copyRunningStatistics copies the running statistics from their memory to the backup or back.
func (x *executable) copyRunningStatistics(to, from driver.Ptr) error {
	if x.memory.backup.bytes == 0 {
		return nil
	}
	return x.gpu.explainLostGPU(x.gpu.driver.MemcpyDtoDAsync(to, from, x.memory.backup.bytes, x.gpu.compute))
}

func (x *executable) chooseConvolutionAlgorithms() error {
	for i, t := range x.tasks {
		c, ok := x.asConvolution(t)
		if !ok {
			continue
		}
		pick, err := x.choosePlan(t, c)
		if err != nil {
			return fmt.Errorf("choose algorithm for kernel %s %q: %w", t.op, t.name, err)
		}
		x.schedule.picks[i] = pick
	}
	return nil
}

// tagCommands returns the commands tagged with the task and its layer.
func (x *executable) tagCommands(task int, list []command) []command {
	out := make([]command, len(list))
	for i, c := range list {
		out[i] = &taskCommand{c, x.tasks[task].name, task}
	}
	return out
}
