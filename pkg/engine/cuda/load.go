package cuda

import (
	"errors"
	"fmt"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/engine/cuda/kernels"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
)

// firstScale is the loss scale of fp16 before the first step, as
// torch.amp.GradScaler has it.
const firstScale = 65536

// load builds the executable of p. It runs on the engine's thread, as all that
// follows.
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

// shareStore takes the store of share, or makes one.
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

// layOutGradients places the gradients bucket by bucket in one flat buffer of fp32.
//
// Gradients are fp32 whatever the precision: sums over ranks then lose nothing,
// any number of ranks makes the same rounding, and small gradients of biases and
// norms do not vanish. Against 16 bits this costs 2 bytes of traffic a parameter
// and step, and twice the bytes on the wire, as PyTorch's DDP with autocast has.
func (x *executable) layOutGradients() {
	p := x.program
	at := 0
	x.exchange.buckets = make([]bucket, len(p.Buckets))
	for i, b := range p.Buckets {
		x.exchange.buckets[i].offset = at
		for _, j := range b.Params {
			q := p.Params[j]
			name := p.Tensors[q.Tensor].Name
			r := region{at, x.layouts[q.Grad]}
			x.exchange.gradAt[name] = r
			size := roundUp(r.layout.size(), regionAlign)
			x.update.segments.add(segment{x.store.paramAt[name].offset, at, size, len(p.Tensors[q.Tensor].Shape) == 1})
			at += size
		}
		x.exchange.buckets[i].size = at - x.exchange.buckets[i].offset
	}
	if len(p.Buckets) > 0 {
		// The loss travels behind the last bucket: where one rank's is not finite,
		// the mean is not either, and all ranks leave the update out.
		x.exchange.lossAt = at
		at += regionAlign
	}
	x.memory.grads.bytes = int64(4 * at)
	last := -1
	for i, t := range x.tasks {
		for _, id := range t.out {
			if id >= 0 && id < len(p.Tensors) && p.Tensors[id].Role == plan.Gradient {
				if b := x.bucketOf(id); b >= 0 {
					x.exchange.buckets[b].ready = max(x.exchange.buckets[b].ready, i)
				}
			}
		}
	}
	for i := range x.exchange.buckets {
		// Buckets go out in order.
		x.exchange.buckets[i].ready = max(x.exchange.buckets[i].ready, last)
		last = x.exchange.buckets[i].ready
	}
}

// bucketOf is the bucket of a gradient.
func (x *executable) bucketOf(grad int) int {
	for _, q := range x.program.Params {
		if q.Grad == grad {
			return q.Bucket
		}
	}
	return -1
}

// layOutActivations gives every tensor its place.
func (x *executable) layOutActivations() {
	p := x.program
	var arena, fixed int
	x.memory.locations, arena, fixed = layOutTensors(p, x.lowered)
	x.memory.arena.bytes, x.memory.fixed.bytes = int64(arena), int64(fixed)
	put := func(id int, s space, r region) {
		x.memory.locations[id].space, x.memory.locations[id].offset = s, r.offset*x.memory.locations[id].typ.Size()
	}
	for _, q := range p.Params {
		name := p.Tensors[q.Tensor].Name
		s := lowSpace
		if x.memory.locations[q.Tensor].typ == device.F32 {
			s = masterSpace
		}
		put(q.Tensor, s, x.store.paramAt[name])
		if q.Grad >= 0 {
			put(q.Grad, gradSpace, x.exchange.gradAt[name])
		}
	}
	for _, id := range p.States {
		x.memory.locations[id].typ = device.F32
		put(id, stateSpace, x.store.stateAt[p.Tensors[id].Name])
	}
}

// allocate gets the memory, all zero.
func (x *executable) allocate() error {
	x.memory.scratch.bytes = alignment
	for _, t := range x.tasks {
		x.memory.scratch.bytes = max(x.memory.scratch.bytes, int64(x.scratchFor(t)))
	}
	x.memory.control.bytes = kernels.ControlBytes
	x.memory.backup.bytes = x.store.states.bytes
	x.memory.staging.bytes = x.stagingBytes()
	if x.store.users == 0 {
		x.store.users = 1
		if err := x.store.allocate(); err != nil {
			return x.explainOutOfMemory(err)
		}
	}
	for _, b := range x.blocks() {
		if err := x.gpu.allocate(b); err != nil {
			return x.explainOutOfMemory(err)
		}
	}
	x.memory.bases = [noSpace]driver.Ptr{
		arenaSpace: x.memory.arena.ptr, fixedSpace: x.memory.fixed.ptr, masterSpace: x.store.masters.ptr, lowSpace: x.store.copies.ptr,
		stateSpace: x.store.states.ptr, gradSpace: x.memory.grads.ptr,
	}
	var err error
	if x.memory.hostControl, err = x.gpu.pin(kernels.ControlHostBytes); err != nil {
		return err
	}
	if x.memory.result, err = x.gpu.pin(resultBytes); err != nil {
		return err
	}
	for _, e := range []*driver.Event{&x.profile.begin, &x.profile.forwardEnd, &x.profile.backwardEnd, &x.profile.end} {
		if *e, err = x.gpu.driver.EventCreate(driver.EventDefault); err != nil {
			return x.gpu.failed(err)
		}
	}
	for _, e := range []*driver.Event{&x.exchange.fork, &x.exchange.join, &x.data.fed} {
		if *e, err = x.gpu.driver.EventCreate(driver.EventDisableTiming); err != nil {
			return x.gpu.failed(err)
		}
	}
	scale := float32(1)
	if x.low == device.F16 {
		scale = firstScale
	}
	x.last.control.LossScale, x.last.scale, x.last.clip = scale, float64(scale), 1
	return x.gpu.write(x.memory.control.ptr, x.last.control.Bytes())
}

// blocks are the executable's own memory.
func (x *executable) blocks() []*block {
	return []*block{
		&x.memory.arena, &x.memory.fixed, &x.memory.grads, &x.memory.scratch, &x.memory.control, &x.memory.backup, &x.memory.staging, &x.data.images, &x.data.targets, &x.data.samples,
		&x.update.norms, &x.exchange.sums, &x.exchange.norms.vector, &x.exchange.norms.partial,
	}
}

// fillConstants writes the constants' values; their padding stays zero.
func (x *executable) fillConstants() error {
	for id, t := range x.program.Tensors {
		if t.Role != plan.Constant {
			continue
		}
		v := make([]float64, t.Elements())
		for i := range v {
			v[i] = t.Value
		}
		l := x.memory.locations[id].layout
		memory := make([]float32, l.size())
		pack(l, memory, v)
		if err := x.gpu.write(x.address(id), number.Encode(l.typ, memory)); err != nil {
			return err
		}
	}
	return nil
}

// build readies every launch, chooses the convolutions' algorithms, and gives
// these the workspace that the greediest one needs.
func (x *executable) build() error {
	if err := x.fillWithNoise(); err != nil {
		return err
	}
	// Statistics that run behind a convolution while it is timed move the running ones,
	// which other executables may have.
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
	// What tuning left in the memory is noise: all begins with zeros again.
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
	// A cache that cannot be written costs time at the next start, no more.
	_ = x.engine.cache.Save()
	return nil
}

// reservePacked allocates the memory for copies without gaps of convolutions' operands,
// where any has gaps. Without room for it there are no such copies.
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

// chooseAll chooses the algorithm of each convolution by itself, then which batch norms
// are applied by those that read them.
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

// named marks commands as a task's.
func (x *executable) named(task int, list []command) []command {
	out := make([]command, len(list))
	for i, c := range list {
		out[i] = &named{c, x.tasks[task].name, task}
	}
	return out
}

// noiseBytes is how much noise is made on the host; the rest is copies of it.
const noiseBytes = 1 << 20

// fillWithNoise fills what convolutions read with noise: what one takes depends on its
// operands' bits, since zeros cost less power. Weights that somebody else has stay.
func (x *executable) fillWithNoise() error {
	if x.engine.options.Convolution != "auto" {
		return nil
	}
	for _, b := range x.noiseBlocks() {
		if err := x.gpu.noise(b.block, b.typ); err != nil {
			return err
		}
	}
	return nil
}

// typed is memory for numbers of a type.
type typed struct {
	block
	typ device.Type
}

// noiseBlocks is the memory whose contents are of no account while a program is loaded.
func (x *executable) noiseBlocks() []typed {
	list := []typed{{x.memory.arena, x.low}, {x.memory.fixed, x.low}}
	if x.store.users == 1 { // nobody has set or trained these yet
		list = append(list, typed{x.store.masters, device.F32}, typed{x.store.copies, x.low})
	}
	return list
}

// noise fills memory with numbers between −1 and 1.
func (g *gpu) noise(b block, typ device.Type) error {
	if b.bytes == 0 {
		return nil
	}
	n := min(b.bytes, noiseBytes)
	v := make([]float32, n/int64(typ.Size()))
	state := uint32(1)
	for i := range v {
		state = state*1664525 + 1013904223 // Numerical Recipes' generator
		v[i] = float32(int32(state)) / (1 << 31)
	}
	if err := g.write(b.ptr, number.Encode(typ, v)); err != nil {
		return err
	}
	for done := n; done < b.bytes; {
		m := min(done, b.bytes-done)
		if err := g.driver.MemcpyDtoDAsync(b.ptr.Add(done), b.ptr, m, g.compute); err != nil {
			return g.failed(err)
		}
		done += m
	}
	return nil
}

// clear sets what tuning wrote, and what was noise for it, to zero; constants are as they
// were.
func (x *executable) clear() error {
	list := []typed{{block: x.memory.grads}, {block: x.memory.scratch}, {block: x.memory.arena}}
	if x.engine.options.Convolution == "auto" {
		list = append(list, x.noiseBlocks()...)
	}
	for _, b := range list {
		if b.bytes == 0 {
			continue
		}
		if err := x.gpu.driver.MemsetD8Async(b.ptr, 0, b.bytes, x.gpu.compute); err != nil {
			return x.gpu.failed(err)
		}
	}
	return x.fillConstants()
}

// explainOutOfMemory explains a lack of memory: how much the program takes, and the batch
// that would fit.
func (x *executable) explainOutOfMemory(err error) error {
	if !errors.Is(err, driver.ErrorOutOfMemory) {
		return err
	}
	mine := x.store.bytes()
	for _, b := range x.blocks() {
		mine += b.bytes
	}
	mine += x.memory.workspace.bytes
	free, total, infoErr := x.gpu.driver.MemGetInfo()
	if infoErr != nil {
		return errors.Join(err, infoErr)
	}
	for _, b := range x.blocks() {
		if b.ptr != 0 {
			free += b.bytes
		}
	}
	if x.store.masters.ptr != 0 {
		free += x.store.bytes()
	}
	batch := 0
	if len(x.program.Inputs) > 0 {
		batch = x.program.Tensors[x.program.Inputs[0]].Shape[0]
	}
	advice := "use a smaller model"
	perImage := (x.memory.arena.bytes + x.memory.fixed.bytes + x.memory.staging.bytes) / int64(max(batch, 1))
	if fits := (free - (mine - perImage*int64(batch))) / max(perImage, 1); batch > 1 && fits >= 1 {
		advice = fmt.Sprintf("use --batch %d or less (with --set engine.precision=bf16 about twice as much fits where it is fp32)", min(fits, int64(batch-1)))
	} else if batch > 1 {
		advice = "even one image does not fit beside what others hold: see nvidia-smi, or use a smaller model"
	}
	return fmt.Errorf("the program needs %s of GPU memory at batch %d, of which %s is for activations; GPU %d has %s free of %s: %s: %w",
		sizeText(mine), batch, sizeText(x.memory.arena.bytes), x.gpu.number, sizeText(free), sizeText(total), advice, err)
}
