package cuda

import (
	"errors"
	"fmt"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/number"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/plan"
)

// firstScale is the loss scale of fp16 before the first step, the same as in
// torch.amp.GradScaler.
const firstScale = 65536

// load builds the executable of p. Like all functions below it runs on the engine's thread.
func (e *Engine) load(p *plan.Program, share engine.Executable) (x *executable, err error) {
	if p == nil {
		return nil, errors.New("it is nil")
	}
	if err := plan.Validate(p); err != nil {
		return nil, err
	}
	if e.gpu.lost != nil {
		return nil, e.gpu.lost
	}
	low := number.Low(e.options.Precision)
	l, err := lower(p, low, e.options)
	if err != nil {
		return nil, err
	}
	x = &executable{engine: e, gpu: e.gpu, program: p, lowered: l, low: low}
	x.exchange.gradAt, x.schedule.picks, x.schedule.replays = map[string]region{}, map[int]chosen{}, map[replayKey]*replay{}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.close())
			x = nil
		}
	}()
	if err := x.shareStore(share); err != nil {
		return x, err
	}
	x.layOutGradients()
	x.layOutActivations()
	if err := x.allocate(); err != nil {
		return x, err
	}
	if err := x.prepareInputs(); err != nil {
		return x, err
	}
	if err := x.build(); err != nil {
		return x, err
	}
	if err := x.prepareNormSync(); err != nil {
		return x, err
	}
	return x, x.gpu.synchronize()
}

// shareStore uses the store of share, or creates a new one if share is nil.
func (x *executable) shareStore(share engine.Executable) (err error) {
	if share == nil {
		x.store, err = newStore(x.gpu, x.program, x.layouts, x.low)
		return err
	}
	other, ok := share.(*executable)
	switch {
	case !ok || other.engine != x.engine:
		return errors.New("the executable to share with belongs to another engine")
	case other.closed:
		return errClosed
	}
	if err := other.store.covers(x.program, x.layouts); err != nil {
		return err
	}
	x.store = other.store
	x.store.users++
	return nil
}

// build creates all commands, chooses the convolutions' algorithms, and allocates the
// largest workspace that any of them needs.
func (x *executable) build() error {
	if err := x.fillWithNoise(); err != nil {
		return err
	}
	// While a convolution is timed, kernels after it update the running statistics, which
	// other executables may share. So these are saved first and restored later.
	if err := x.copyStates(x.memory.backup.ptr, x.store.states.ptr); err != nil {
		return err
	}
	if err := x.reservePacked(); err != nil {
		return err
	}
	if err := x.chooseAll(); err != nil {
		return err
	}
	if err := x.releasePacked(); err != nil {
		return err
	}
	if err := x.copyStates(x.store.states.ptr, x.memory.backup.ptr); err != nil {
		return err
	}
	if err := x.gpu.free(x.memory.cacheFlush); err != nil {
		return err
	}
	x.memory.cacheFlush = block{}
	workspace := int64(0)
	for _, c := range x.schedule.picks {
		workspace = max(workspace, c.plan.Workspace)
	}
	// Tuning has left arbitrary numbers in the memory: set it to zero.
	if err := x.clear(); err != nil {
		return err
	}
	if err := x.resizeWorkspace(workspace); err != nil {
		return x.explainOutOfMemory(err)
	}
	for i, t := range x.tasks {
		c, ok := x.schedule.picks[i]
		if !ok {
			list, err := x.compile(t)
			if err != nil {
				return err
			}
			x.schedule.commands = append(x.schedule.commands, x.named(i, list))
			continue
		}
		pack, err := x.gpu.cudnn.NewPack(c.pointers, x.memory.workspace.ptr)
		if err != nil {
			return fmt.Errorf("kernel %s %q: %w", t.op, t.name, err)
		}
		x.schedule.packs = append(x.schedule.packs, pack)
		call := &planCall{string(t.op), c.plan, pack}
		x.schedule.commands = append(x.schedule.commands, x.named(i, c.around(call)))
	}
	for x.schedule.forward = 0; x.schedule.forward < len(x.tasks) && x.tasks[x.schedule.forward].kernel < x.program.Forward; x.schedule.forward++ {
	}
	// If the cache cannot be written, the next start has to tune again; nothing else
	// depends on it.
	_ = x.engine.cache.Save()
	return nil
}

// reservePacked allocates the memory for gapless copies of the convolutions' operands, if
// any operand has gaps. If the memory is not available, these variants are left out.
func (x *executable) reservePacked() error {
	for _, t := range x.tasks {
		if c, ok := x.asConvolution(t); ok {
			x.memory.packed.bytes = max(x.memory.packed.bytes, int64(c.gaps()))
		}
	}
	if err := x.gpu.allocate(&x.memory.packed); err != nil {
		x.memory.packed = block{}
		if x.gpu.lost != nil {
			return err
		}
	}
	return nil
}

// releasePacked frees the memory of reservePacked unless a chosen variant uses it.
func (x *executable) releasePacked() error {
	for i, c := range x.schedule.picks {
		if conv, ok := x.asConvolution(x.tasks[i]); ok && conv.gaps() > 0 && c.copies(x.memory.packed.ptr, x.memory.packed.bytes) {
			return nil
		}
	}
	p := x.memory.packed
	x.memory.packed = block{}
	return x.gpu.free(p)
}

// copies reports whether v's graph reads or writes memory of [p, p+bytes).
func (v variant) copies(p driver.Ptr, bytes int64) bool {
	for _, at := range v.pointers {
		if at >= p && at < p.Add(bytes) {
			return true
		}
	}
	return false
}

// copyStates copies the states to where they are kept, or back.
func (x *executable) copyStates(to, from driver.Ptr) error {
	if x.memory.backup.bytes == 0 {
		return nil
	}
	return x.gpu.failed(x.gpu.driver.MemcpyDtoDAsync(to, from, x.memory.backup.bytes, x.gpu.compute))
}

// chooseAll chooses the algorithm of each convolution separately, and then which batch
// norms are applied by the convolutions that read their results.
func (x *executable) chooseAll() error {
	for i, t := range x.tasks {
		c, ok := x.asConvolution(t)
		if !ok {
			continue
		}
		pick, err := x.choose(t, c)
		if err != nil {
			return fmt.Errorf("kernel %s %q: %w", t.op, t.name, err)
		}
		x.schedule.picks[i] = pick
	}
	for _, p := range x.prologues {
		if err := x.decide(p); err != nil {
			return fmt.Errorf("kernel %s %q: %w", x.tasks[p.norm].op, x.tasks[p.norm].name, err)
		}
	}
	return nil
}

// named returns the commands marked with the task and its layer.
func (x *executable) named(task int, list []command) []command {
	out := make([]command, len(list))
	for i, c := range list {
		out[i] = &named{c, x.tasks[task].name, task}
	}
	return out
}
