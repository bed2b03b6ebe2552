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
	x = &executable{engine: e, gpu: e.gpu, program: p, lowered: l, low: low, gradAt: map[string]region{}, picks: map[int]chosen{}, plays: map[playKey]*play{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.close())
			x = nil
		}
	}()
	if err := x.shareStore(share); err != nil {
		return x, err
	}
	x.layGradients()
	x.layActivations()
	if err := x.allocate(); err != nil {
		return x, err
	}
	if err := x.prepareInputs(); err != nil {
		return x, err
	}
	if err := x.build(); err != nil {
		return x, err
	}
	if err := x.prepareMeetings(); err != nil {
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

// layGradients places the gradients bucket by bucket in one flat buffer of fp32.
//
// Gradients are fp32 whatever the precision: sums over ranks then lose nothing,
// any number of ranks makes the same rounding, and small gradients of biases and
// norms do not vanish. Against 16 bits this costs 2 bytes of traffic a parameter
// and step, and twice the bytes on the wire, as PyTorch's DDP with autocast has.
func (x *executable) layGradients() {
	p := x.program
	at := 0
	x.buckets = make([]bucket, len(p.Buckets))
	for i, b := range p.Buckets {
		x.buckets[i].offset = at
		for _, j := range b.Params {
			q := p.Params[j]
			name := p.Tensors[q.Tensor].Name
			r := region{at, x.layouts[q.Grad]}
			x.gradAt[name] = r
			size := roundUp(r.layout.size(), regionAlign)
			x.runs.add(segment{x.store.paramAt[name].offset, at, size, len(p.Tensors[q.Tensor].Shape) == 1})
			at += size
		}
		x.buckets[i].size = at - x.buckets[i].offset
	}
	if len(p.Buckets) > 0 {
		// The loss travels behind the last bucket: where one rank's is not finite,
		// the mean is not either, and all ranks leave the update out.
		x.lossAt = at
		at += regionAlign
	}
	x.grads.bytes = int64(4 * at)
	last := -1
	for i, t := range x.tasks {
		for _, id := range t.out {
			if id >= 0 && id < len(p.Tensors) && p.Tensors[id].Role == plan.Gradient {
				if b := x.bucketOf(id); b >= 0 {
					x.buckets[b].ready = max(x.buckets[b].ready, i)
				}
			}
		}
	}
	for i := range x.buckets {
		// Buckets go out in order.
		x.buckets[i].ready = max(x.buckets[i].ready, last)
		last = x.buckets[i].ready
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

// layActivations gives every tensor its place.
func (x *executable) layActivations() {
	p := x.program
	var arena, fixed int
	x.places, arena, fixed = spread(p, x.lowered)
	x.arena.bytes, x.fixed.bytes = int64(arena), int64(fixed)
	put := func(id int, s space, r region) {
		x.places[id].space, x.places[id].offset = s, r.offset*x.places[id].typ.Size()
	}
	for _, q := range p.Params {
		name := p.Tensors[q.Tensor].Name
		s := lowSpace
		if x.places[q.Tensor].typ == device.F32 {
			s = masterSpace
		}
		put(q.Tensor, s, x.store.paramAt[name])
		if q.Grad >= 0 {
			put(q.Grad, gradSpace, x.gradAt[name])
		}
	}
	for _, id := range p.States {
		x.places[id].typ = device.F32
		put(id, stateSpace, x.store.stateAt[p.Tensors[id].Name])
	}
}

// allocate gets the memory, all zero.
func (x *executable) allocate() error {
	x.scratch.bytes = alignment
	for _, t := range x.tasks {
		x.scratch.bytes = max(x.scratch.bytes, int64(x.scratchFor(t)))
	}
	x.control.bytes = kernels.ControlBytes
	x.backup.bytes = x.store.states.bytes
	x.staging.bytes = x.stagingBytes()
	if x.store.users == 0 {
		x.store.users = 1
		if err := x.store.allocate(); err != nil {
			return x.needs(err)
		}
	}
	for _, b := range x.blocks() {
		if err := x.gpu.allocate(b); err != nil {
			return x.needs(err)
		}
	}
	x.bases = [noSpace]driver.Ptr{
		arenaSpace: x.arena.ptr, fixedSpace: x.fixed.ptr, masterSpace: x.store.masters.ptr, lowSpace: x.store.copies.ptr,
		stateSpace: x.store.states.ptr, gradSpace: x.grads.ptr,
	}
	var err error
	if x.hostControl, err = x.gpu.pin(kernels.ControlHostBytes); err != nil {
		return err
	}
	if x.result, err = x.gpu.pin(resultBytes); err != nil {
		return err
	}
	for _, e := range []*driver.Event{&x.begin, &x.middle, &x.third, &x.end} {
		if *e, err = x.gpu.driver.EventCreate(driver.EventDefault); err != nil {
			return x.gpu.failed(err)
		}
	}
	for _, e := range []*driver.Event{&x.fork, &x.join, &x.fed} {
		if *e, err = x.gpu.driver.EventCreate(driver.EventDisableTiming); err != nil {
			return x.gpu.failed(err)
		}
	}
	scale := float32(1)
	if x.low == device.F16 {
		scale = firstScale
	}
	x.after.LossScale, x.scale, x.clip = scale, float64(scale), 1
	return x.gpu.write(x.control.ptr, x.after.Bytes())
}

// blocks are the executable's own memory.
func (x *executable) blocks() []*block {
	return []*block{
		&x.arena, &x.fixed, &x.grads, &x.scratch, &x.control, &x.backup, &x.staging, &x.heldImage, &x.heldTarget, &x.heldSamples,
		&x.norms, &x.sums, &x.meet.vector, &x.meet.room,
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
		l := x.places[id].layout
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
	if err := x.disturb(); err != nil {
		return err
	}
	// Statistics that run behind a convolution while it is timed move the running ones,
	// which other executables may have.
	if err := x.keepStates(x.backup.ptr, x.store.states.ptr); err != nil {
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
	if err := x.keepStates(x.store.states.ptr, x.backup.ptr); err != nil {
		return err
	}
	if err := x.gpu.free(x.hold); err != nil {
		return err
	}
	x.hold = block{}
	workspace := int64(0)
	for _, c := range x.picks {
		workspace = max(workspace, c.plan.Workspace)
	}
	// What tuning left in the memory is noise: all begins with zeros again.
	if err := x.clear(); err != nil {
		return err
	}
	if err := x.settle(workspace); err != nil {
		return x.needs(err)
	}
	for i, t := range x.tasks {
		c, ok := x.picks[i]
		if !ok {
			list, err := x.compile(t)
			if err != nil {
				return err
			}
			x.steps = append(x.steps, x.layer(i, list))
			continue
		}
		pack, err := x.gpu.cudnn.NewPack(c.pointers, x.workspace.ptr)
		if err != nil {
			return fmt.Errorf("kernel %s %q: %w", t.op, t.name, err)
		}
		x.packs = append(x.packs, pack)
		call := &planCall{string(t.op), c.plan, pack}
		x.steps = append(x.steps, x.layer(i, c.around(call)))
	}
	for x.forward = 0; x.forward < len(x.tasks) && x.tasks[x.forward].kernel < x.program.Forward; x.forward++ {
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
			x.packed.bytes = max(x.packed.bytes, int64(c.gaps()))
		}
	}
	if err := x.gpu.allocate(&x.packed); err != nil {
		x.packed = block{}
		if x.gpu.lost != nil {
			return err
		}
	}
	return nil
}

// releasePacked frees the memory of reservePacked unless a chosen variant uses it.
func (x *executable) releasePacked() error {
	for i, c := range x.picks {
		if conv, ok := x.asConvolution(x.tasks[i]); ok && conv.gaps() > 0 && c.copies(x.packed.ptr, x.packed.bytes) {
			return nil
		}
	}
	p := x.packed
	x.packed = block{}
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

// keepStates copies the states to where they are kept, or back.
func (x *executable) keepStates(to, from driver.Ptr) error {
	if x.backup.bytes == 0 {
		return nil
	}
	return x.gpu.failed(x.gpu.driver.MemcpyDtoDAsync(to, from, x.backup.bytes, x.gpu.compute))
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
		x.picks[i] = pick
	}
	for _, p := range x.prologues {
		if err := x.decide(p); err != nil {
			return fmt.Errorf("kernel %s %q: %w", x.tasks[p.norm].op, x.tasks[p.norm].name, err)
		}
	}
	return nil
}

// layer marks commands as a task's.
func (x *executable) layer(task int, list []command) []command {
	out := make([]command, len(list))
	for i, c := range list {
		out[i] = &named{c, x.tasks[task].name, task}
	}
	return out
}

// noiseBytes is how much noise is made on the host; the rest is copies of it.
const noiseBytes = 1 << 20

// disturb fills what convolutions read with noise: what one takes depends on its
// operands' bits, since zeros cost less power. Weights that somebody else has stay.
func (x *executable) disturb() error {
	if x.engine.options.Convolution != "auto" {
		return nil
	}
	for _, b := range x.noisy() {
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

// noisy is the memory whose contents are of no account while a program is loaded.
func (x *executable) noisy() []typed {
	list := []typed{{x.arena, x.low}, {x.fixed, x.low}}
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
	list := []typed{{block: x.grads}, {block: x.scratch}, {block: x.arena}}
	if x.engine.options.Convolution == "auto" {
		list = append(list, x.noisy()...)
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

// needs explains a lack of memory: how much the program takes, and the batch
// that would fit.
func (x *executable) needs(err error) error {
	if !errors.Is(err, driver.ErrorOutOfMemory) {
		return err
	}
	mine := x.store.bytes()
	for _, b := range x.blocks() {
		mine += b.bytes
	}
	mine += x.workspace.bytes
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
	perImage := (x.arena.bytes + x.fixed.bytes + x.staging.bytes) / int64(max(batch, 1))
	if fits := (free - (mine - perImage*int64(batch))) / max(perImage, 1); batch > 1 && fits >= 1 {
		advice = fmt.Sprintf("use --batch %d or less (with --set engine.precision=bf16 about twice as much fits where it is fp32)", min(fits, int64(batch-1)))
	} else if batch > 1 {
		advice = "even one image does not fit beside what others hold: see nvidia-smi, or use a smaller model"
	}
	return fmt.Errorf("the program needs %s of GPU memory at batch %d, of which %s is for activations; GPU %d has %s free of %s: %s: %w",
		sizeText(mine), batch, sizeText(x.arena.bytes), x.gpu.number, sizeText(free), sizeText(total), advice, err)
}
