package cuda

import (
	"errors"
	"fmt"
	"slices"

	"lockstep/pkg/engine/cuda/autotune"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
)

// prologue describes a batch norm in training with ReLU whose result is read only by
// convolutions and by the gradients of their weights. cuDNN has graphs that compute max(0,
// x·scale + shift) while a convolution reads x (ConvBNfprop and ConvBNwgrad in its
// developer guide). If all readers have such a plan, and together they take less time than
// the batch norm and the plain convolutions, the result of the batch norm is never written
// or read.
//
// cuDNN supports this in fp16, for maps of two dimensions that are not views of other
// tensors. Its graph of a forward convolution always computes statistics too, which are
// ignored if nobody needs them.
type prologue struct {
	norm         int // index of the batch norm's task
	readers      []int
	x, y         int // tensor ids: the norm's input and result
	scale, shift int
	unwanted     map[int][2]int // by result of a forward reader: the statistics that nobody needs
	applied      bool           // the readers apply the batch norm
}

// packed reports whether tensor id is an fp16 map of two dimensions that is not a view of
// another tensor.
func (l *lowering) packed(id int) bool {
	if id < 0 || l.layouts[id].form != mapForm || l.layouts[id].typ != device.F16 || len(l.layouts[id].shape) != 4 {
		return false
	}
	_, aliased := l.aliases[id]
	return !aliased
}

// findPrologues finds the batch norms that the convolutions after them may apply. A program
// that recomputes activations has none: what is computed twice must have the same bits both
// times.
func (l *lowering) findPrologues() {
	if slices.ContainsFunc(l.program.Kernels, func(k plan.Kernel) bool { return k.Again }) {
		return
	}
	for i := range l.tasks {
		n := &l.tasks[i]
		if n.op != plan.OpBatchNorm || !n.attr.Training || !n.attr.ReLU || n.attr.Sync || n.acc >= 0 {
			continue
		}
		x, y := n.in[0], n.out[0]
		if !l.packed(x) || !l.packed(y) || l.program.Tensors[y].Role != plan.Activation {
			continue
		}
		readers, ok := l.prologueReaders(i, y)
		if !ok {
			continue
		}
		vector := layout{form: vectorForm, typ: device.F16, shape: l.layouts[n.out[1]].shape}
		p := &prologue{norm: i, readers: readers, x: x, y: y, scale: l.newTensor(vector), shift: l.newTensor(vector), unwanted: map[int][2]int{}}
		for _, r := range readers {
			t := &l.tasks[r]
			t.prologue = p
			if t.op == plan.OpConv && t.stats == nil {
				sums := layout{form: vectorForm, typ: device.F32, shape: []int{l.layouts[t.out[0]].channels()}}
				p.unwanted[t.out[0]] = [2]int{l.newTensor(sums), l.newTensor(sums)}
			}
		}
		n.prologue = p
		l.prologues = append(l.prologues, p)
	}
}

// prologueReaders returns the indexes of the tasks that read y, the result of a batch norm.
// ok is false if one of them cannot apply the batch norm while it reads, or if none belongs
// to the forward pass.
func (l *lowering) prologueReaders(norm, y int) (readers []int, ok bool) {
	forward := false
	for j := range l.tasks {
		t := &l.tasks[j]
		if j == norm || !slices.Contains(t.touched(), y) {
			continue
		}
		other := t.out[0]
		switch t.op {
		case plan.OpConv:
			forward = true
		case plan.OpConvBackwardWeights:
			other = t.in[1]
		default:
			return nil, false
		}
		if t.in[0] != y || slices.Contains(t.in[1:], y) || t.acc == y || !l.packed(other) {
			return nil, false
		}
		readers = append(readers, j)
	}
	return readers, forward
}

// gradientSums finds batch norms with ReLU whose gradient has a single source, the gradient
// of a convolution's data. That task can compute the sums of the batch norm's gradient too.
// cuDNN supports this in fp16, for maps of two dimensions that are not views of other
// tensors (DgradDreluBNBwdWeight in its developer guide). Its result includes the gradient
// of ReLU.
func (l *lowering) gradientSums() {
	for i := range l.tasks {
		b := &l.tasks[i]
		if b.op != plan.OpBatchNormBackward || !b.attr.ReLU || b.attr.Sync || b.in[5] >= 0 || b.in[6] < 0 || b.out[0] < 0 || !l.packed(b.in[0]) {
			continue
		}
		dy := b.in[4]
		if !l.packed(dy) || l.program.Tensors[dy].Role != plan.Activation {
			continue
		}
		from, others := -1, 0
		for j := range l.tasks {
			switch t := &l.tasks[j]; {
			case j == i || !slices.Contains(t.touched(), dy):
			case t.op == plan.OpConvBackwardData && t.out[0] == dy && t.acc < 0:
				from = j
			default:
				others++
			}
		}
		if from < 0 || others > 0 {
			continue
		}
		vector := l.layouts[b.in[1]]
		l.tasks[from].sums = &normSums{
			x: b.in[0], gamma: b.in[1], mean: b.in[2], invstd: b.in[3], beta: b.in[6], dgamma: b.out[1], dbeta: b.out[2],
			factors: [3]int{l.newTensor(vector), l.newTensor(vector), l.newTensor(vector)},
		}
		b.given = true
	}
}

// errUnfused is the reason why the convolutions after a batch norm do not apply it.
var errUnfused = errors.New("cuDNN has no plan for a convolution that applies the batch norm in front")

// decide chooses whether the readers of a batch norm apply it: if cuDNN has a plan for each
// of them, and these plans take less time than the batch norm and the readers' plain plans
// (with "heuristic": move fewer bytes). The choice is stored in the tuning file.
func (x *executable) decide(p *prologue) error {
	key, cache := x.prologueKey(p), x.engine.cache
	timed := x.engine.options.Convolution != "heuristic"
	known, cached := cache.Get(key)
	cached = cached && timed
	if cached && known.Variant == 0 {
		return nil
	}
	fused, err := x.fusedPicks(p)
	if errors.Is(err, errUnfused) {
		if timed {
			cache.Put(key, autotune.Choice{Missing: err.Error()})
		}
		return nil
	}
	if err != nil {
		return err
	}
	var with, without cost
	for _, r := range p.readers {
		with.add(fused[r])
		without.add(x.schedule.picks[r])
	}
	if err := x.normCosts(p, timed && !cached, &with, &without); err != nil {
		return errors.Join(err, closeAll(fused))
	}
	p.applied = with.bytes < without.bytes
	switch {
	case cached:
		p.applied = true
	case timed:
		p.applied = with.ms < without.ms || with.ms == without.ms && p.applied
		c := autotune.Choice{Milliseconds: without.ms, Against: with.ms, Candidates: 2}
		if p.applied {
			c = autotune.Choice{Variant: 1, Milliseconds: with.ms, Against: without.ms, Candidates: 2}
		}
		cache.Put(key, c)
	}
	if !p.applied {
		return closeAll(fused)
	}
	var errs []error
	for _, r := range p.readers {
		errs = append(errs, x.schedule.picks[r].plan.Close())
		x.schedule.picks[r] = fused[r]
	}
	return errors.Join(errs...)
}

// cost is the total time and memory traffic of several tasks.
type cost struct{ ms, bytes float64 }

func (c *cost) add(p chosen) { c.ms, c.bytes = c.ms+p.ms, c.bytes+p.bytes() }

// normCosts adds the cost of the batch norm itself: if its readers do not apply it, it
// reads and writes a map; if they do, it computes two vectors.
func (x *executable) normCosts(p *prologue, timed bool, with, without *cost) error {
	without.bytes += float64(x.memory.locations[p.x].bytes() + x.memory.locations[p.y].bytes())
	if !timed {
		return nil
	}
	defer func() { p.applied = false }()
	for _, c := range []*cost{without, with} {
		p.applied = c == with
		run, err := x.compile(x.tasks[p.norm])
		if err != nil {
			return err
		}
		ms, err := x.timeOf(run, 0)
		if err != nil {
			return err
		}
		c.ms += ms
	}
	return nil
}

// fusedPicks returns plans with which the readers apply the batch norm. The error wraps
// errUnfused if a reader has no such plan.
func (x *executable) fusedPicks(p *prologue) (map[int]chosen, error) {
	picks := map[int]chosen{}
	for _, r := range p.readers {
		t := x.tasks[r]
		c, _ := x.asConvolution(t)
		list, err := x.withPrologue(t, c)
		if err != nil {
			return nil, errors.Join(err, closeAll(picks))
		}
		pick, err := x.tune((*autotune.Tuner).Pick, c, c.key(x.engine.tf32)+" of a norm and relu", list)
		if err != nil {
			if x.gpu.lost == nil {
				err = fmt.Errorf("%w: %s %q: %w", errUnfused, t.op, t.name, err)
			}
			return nil, errors.Join(err, closeAll(picks))
		}
		picks[r] = pick
	}
	return picks, nil
}

// closeAll closes plans that were not chosen.
func closeAll(picks map[int]chosen) error {
	var errs []error
	for _, c := range picks {
		errs = append(errs, c.plan.Close())
	}
	return errors.Join(errs...)
}

// prologueKey returns the key under which the tuning cache stores whether p is fused. It
// contains everything on which that depends.
func (x *executable) prologueKey(p *prologue) string {
	key := fmt.Sprint("norm and relu of ", x.memory.locations[p.x].typ, x.memory.locations[p.x].shape, " read by")
	if x.tasks[p.norm].given {
		key = "given " + key
	}
	for _, r := range p.readers {
		c, _ := x.asConvolution(x.tasks[r])
		key += " [" + c.key(x.engine.tf32) + "]"
	}
	return key
}

// appliedNorms returns the number of batch norms that are applied by the convolutions after
// them.
func (x *executable) appliedNorms() (on int) {
	for _, p := range x.prologues {
		if p.applied {
			on++
		}
	}
	return on
}
