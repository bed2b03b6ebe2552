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
// developer guide). If cuDNN has such a plan for all readers, and these plans take less
// time than the batch norm and the readers' plain plans, the readers apply the batch norm,
// and its result is never stored.
//
// cuDNN supports this for two-dimensional fp16 maps that are not aliases. The graph of a
// forward convolution always computes statistics too, which are ignored if no batch norm
// needs them.
type prologue struct {
	norm         int // index of the batch norm's task
	readers      []int
	x, y         int // tensor ids: the norm's input and result
	scale, shift int
	unwanted     map[int][2]int // by result of a forward reader: the tensors of its unneeded statistics
	applied      bool           // the readers apply the batch norm
}

// isPackedF16Map reports whether tensor id is a two-dimensional fp16 map that is not an
// alias.
func (l *lowering) isPackedF16Map(id int) bool {
	if id < 0 || l.layouts[id].form != mapForm || l.layouts[id].typ != device.F16 || len(l.layouts[id].shape) != 4 {
		return false
	}
	_, aliased := l.aliases[id]
	return !aliased
}

// findPrologues finds the batch norms that the convolutions after them may apply. It finds
// none in a program that recomputes activations, because both computations of an activation
// must give the same bits.
func (l *lowering) findPrologues() {
	if slices.ContainsFunc(l.program.Kernels, func(k plan.Kernel) bool { return k.Recomputed }) {
		return
	}
	for i := range l.tasks {
		n := &l.tasks[i]
		if n.op != plan.OpBatchNorm || !n.attr.Training || !n.attr.ReLU || n.attr.Sync || n.acc >= 0 {
			continue
		}
		x, y := n.in[0], n.out[0]
		if !l.isPackedF16Map(x) || !l.isPackedF16Map(y) || l.program.Tensors[y].Role != plan.Activation {
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

// prologueReaders returns the indexes of the tasks that read y, the result of task norm. ok
// is false if one of these tasks cannot apply the batch norm, or if none of them belongs to
// the forward pass.
func (l *lowering) prologueReaders(norm, y int) (readers []int, ok bool) {
	forward := false
	for j := range l.tasks {
		t := &l.tasks[j]
		if j == norm || !slices.Contains(t.tensorIDs(), y) {
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
		if t.in[0] != y || slices.Contains(t.in[1:], y) || t.acc == y || !l.isPackedF16Map(other) {
			return nil, false
		}
		readers = append(readers, j)
	}
	return readers, forward
}

// findGradientSums finds batch norms with ReLU whose output gradient is computed by a
// single task: the data gradient of a convolution. That task can also compute the sums of
// the batch norm's gradient. cuDNN supports this for two-dimensional fp16 maps that are not
// aliases (DgradDreluBNBwdWeight in its developer guide); its result includes the gradient
// of ReLU.
func (l *lowering) findGradientSums() {
	for i := range l.tasks {
		b := &l.tasks[i]
		if b.op != plan.OpBatchNormBackward || !b.attr.ReLU || b.attr.Sync || b.in[5] >= 0 || b.in[6] < 0 || b.out[0] < 0 || !l.isPackedF16Map(b.in[0]) {
			continue
		}
		dy := b.in[4]
		if !l.isPackedF16Map(dy) || l.program.Tensors[dy].Role != plan.Activation {
			continue
		}
		from, others := -1, 0
		for j := range l.tasks {
			switch t := &l.tasks[j]; {
			case j == i || !slices.Contains(t.tensorIDs(), dy):
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
		b.precomputed = true
	}
}

// errUnfused is wrapped by errors that explain why convolutions do not apply the batch norm
// before them.
var errUnfused = errors.New("cuDNN has no plan for a convolution that applies the batch norm before it")

// decidePrologue decides whether the readers of a batch norm apply it. They do if cuDNN has
// a plan for each of them, and these plans take less time than the batch norm and the
// readers' plain plans (without timing: move fewer bytes). The decision is stored in the
// tuning cache.
func (x *executable) decidePrologue(p *prologue) error {
	key, cache := x.prologueKey(p), x.engine.cache
	timed := x.engine.options.Convolution != "heuristic"
	known, cached := cache.Get(key)
	cached = cached && timed
	if cached && known.Variant == 0 {
		return nil
	}
	fused, err := x.tuneFused(p)
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
	if err := x.addNormCosts(p, timed && !cached, &with, &without); err != nil {
		return errors.Join(err, discardPlans(fused))
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
		return discardPlans(fused)
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

func (c *cost) add(p chosenPlan) { c.ms, c.bytes = c.ms+p.ms, c.bytes+p.bytes() }

// addNormCosts adds the cost of the batch norm's own task to two costs. For fused, the
// readers apply the batch norm, so the task only computes scale and shift. For unfused, the
// task reads and writes a map. Times are measured only if timed is set.
func (x *executable) addNormCosts(p *prologue, timed bool, fused, unfused *cost) error {
	unfused.bytes += float64(x.memory.locations[p.x].bytes() + x.memory.locations[p.y].bytes())
	if !timed {
		return nil
	}
	defer func() { p.applied = false }()
	for _, c := range []*cost{unfused, fused} {
		p.applied = c == fused
		run, err := x.compile(x.tasks[p.norm])
		if err != nil {
			return err
		}
		ms, err := x.minRunMilliseconds(run, 0)
		if err != nil {
			return err
		}
		c.ms += ms
	}
	return nil
}

// tuneFused chooses for each reader of the batch norm a plan that also applies the batch
// norm, and returns these plans by task. The error wraps errUnfused if cuDNN has no such
// plan for one of the readers.
func (x *executable) tuneFused(p *prologue) (map[int]chosenPlan, error) {
	picks := map[int]chosenPlan{}
	for _, r := range p.readers {
		t := x.tasks[r]
		c, _ := x.asConvolution(t)
		list, err := x.prologueVariants(t, c)
		if err != nil {
			return nil, errors.Join(err, discardPlans(picks))
		}
		pick, err := x.tune((*autotune.Tuner).ChooseDeterministic, c, c.tuningKey(x.engine.tf32)+" of a norm and relu", list)
		if err != nil {
			if x.gpu.lost == nil {
				err = fmt.Errorf("%w: %s %q: %w", errUnfused, t.op, t.name, err)
			}
			return nil, errors.Join(err, discardPlans(picks))
		}
		picks[r] = pick
	}
	return picks, nil
}

// discardPlans closes plans that will not be used.
func discardPlans(picks map[int]chosenPlan) error {
	var errs []error
	for _, c := range picks {
		errs = append(errs, c.plan.Close())
	}
	return errors.Join(errs...)
}

// prologueKey returns the key in the tuning cache of the decision about p. The key contains
// everything that affects the decision.
func (x *executable) prologueKey(p *prologue) string {
	key := fmt.Sprint("norm and relu of ", x.memory.locations[p.x].typ, x.memory.locations[p.x].shape, " read by")
	if x.tasks[p.norm].precomputed {
		key = "given " + key
	}
	for _, r := range p.readers {
		c, _ := x.asConvolution(x.tasks[r])
		key += " [" + c.tuningKey(x.engine.tf32) + "]"
	}
	return key
}

// countAppliedNorms returns the number of batch norms that the convolutions after them
// apply.
func (x *executable) countAppliedNorms() (on int) {
	for _, p := range x.prologues {
		if p.applied {
			on++
		}
	}
	return on
}
