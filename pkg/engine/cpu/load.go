package cpu

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"lockstep/pkg/engine"
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/layer"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/engine/cpu/internal/workspace"
	"lockstep/pkg/internal/plan"
)

type loader struct {
	x       *executable
	fuse    bool // engine.Options.Fuse
	program *plan.Program
	layouts []tensor.Layout // by tensor
	data    [][]float32     // by tensor
	origins []tensorOrigin  // by tensor
	inPlace []bool          // by kernel: a max pooling's gradient that is added to what its output holds, and the sum that this computes
	pooling []int           // by kernel: for a max pooling's gradient, the kernel that writes its index
	index   [][]byte        // by kernel: for a max pooling, see layer.Operation
	builder *layer.Builder
}

// load does the work of Load. It returns the loader, which contains the executable, because
// tests inspect the loader's decisions.
func (e *Engine) load(p *plan.Program, share engine.Executable) (*loader, error) {
	if e.threads.Closed() {
		return nil, errors.New("the engine is closed")
	}
	if err := checkProgram(p); err != nil {
		return nil, err
	}
	layouts, err := chooseLayouts(p)
	if err != nil {
		return nil, err
	}
	x := &executable{engine: e, program: p, layouts: layouts, norms: &layer.SyncNormState{}, work: workspace.New(e.kernels, e.threads.Size)}
	x.norms.OnWait = func(start time.Time) { x.recordSpan("wait for statistics", partExchange, rowExchange, start) }
	if x.store, err = e.resolveStore(p, layouts, share); err != nil {
		return nil, err
	}
	l := &loader{
		x: x, fuse: e.options.Fuse, program: p, layouts: layouts, data: make([][]float32, len(p.Tensors)),
		builder: layer.NewBuilder(x.work, x.norms, e.options.Convolution),
	}
	x.data = l.data
	l.layOutGradients()
	l.chooseTensorOrigins()
	l.layOutActivations()
	l.fillConstants()
	for at := range p.Kernels {
		tasks, err := l.compileKernel(at)
		if err != nil {
			return nil, err
		}
		x.steps = append(x.steps, tasks)
	}
	x.addBF16Notice(l.builder)
	for _, o := range l.origins {
		x.constants += len(o.norm)
	}
	x.workers = x.work.Allocate()
	x.trace.threads = make([][]traceSpan, len(x.workers))
	x.backup = make([]float32, len(x.store.states))
	l.prepareOptimizer()
	return l, nil
}

func (e *Engine) resolveStore(p *plan.Program, layouts []tensor.Layout, share engine.Executable) (*tensorStore, error) {
	if share == nil {
		return newTensorStore(p, layouts)
	}
	other, ok := share.(*executable)
	if !ok || other.engine != e {
		return nil, errors.New("cannot share tensors with an executable of another engine")
	}
	if err := other.store.checkContains(p, layouts); err != nil {
		return nil, err
	}
	if other.closed {
		return nil, errClosed
	}
	return other.store, nil
}

func checkProgram(p *plan.Program) error {
	if p == nil {
		return errors.New("the program is nil")
	}
	for _, k := range p.Kernels {
		if err := checkKernel(p, k); err != nil {
			return fmt.Errorf("kernel %s %q: %w", k.Op, k.Name, err)
		}
	}
	return plan.Validate(p)
}

// checkKernel checks the attributes and the numbers of dimensions of kernel k. Later checks
// rely on them.
func checkKernel(p *plan.Program, k plan.Kernel) error {
	least := minDimensions(k.Op)
	for i, id := range slices.Concat(k.In, k.Out) {
		if id < 0 || id >= len(p.Tensors) {
			continue // left out, or for Validate to report
		}
		t := p.Tensors[id]
		n := len(t.Shape)
		switch {
		case n != 1 && n != 2 && n != 4 && n != 5:
			return fmt.Errorf("tensor %q has shape %v: this engine supports 1, 2, 4 or 5 dimensions", t.Name, t.Shape)
		case n < least && (i == 0 || i == 1 && k.Op == plan.OpConcat):
			return fmt.Errorf("tensor %q has shape %v: the operation needs %d dimensions or more", t.Name, t.Shape, least)
		case slices.Min(t.Shape) < 1:
			return fmt.Errorf("tensor %q has shape %v: every dimension must be at least 1", t.Name, t.Shape)
		case max(tensor.ActivationLayout.FloatCount(shapeTo4D(t.Shape)), tensor.WeightLayout.FloatCount(shapeTo4D(t.Shape))) > maxTensorFloats:
			return fmt.Errorf("tensor %q of shape %v is too large: this engine supports at most 2 GiB per tensor", t.Name, t.Shape)
		}
	}
	for what, v := range map[string][]int{"kernel": k.Attr.Kernel, "stride": k.Attr.Stride} {
		if len(v) > 0 && slices.Min(v) < 1 {
			return fmt.Errorf("invalid %s %v: want numbers of at least 1", what, v)
		}
	}
	if len(k.Attr.Pad) > 0 && slices.Min(k.Attr.Pad) < 0 {
		return fmt.Errorf("invalid padding %v: want numbers of at least 0", k.Attr.Pad)
	}
	return nil
}

// minDimensions returns the least number of dimensions that the first tensor of operation op
// may have.
func minDimensions(op plan.Op) int {
	switch op {
	case plan.OpAdd, plan.OpReLU, plan.OpReLUBackward, plan.OpLeakyReLU, plan.OpLeakyReLUBackward, plan.OpTanh, plan.OpTanhBackward,
		plan.OpReshape, plan.OpBCEWithLogits, plan.OpBCEWithLogitsBackward, plan.OpL1, plan.OpL1Backward:
		return 1
	case plan.OpBiasBackward, plan.OpGlobalAvgPoolBackward, plan.OpLinear, plan.OpLinearBackwardData, plan.OpLinearBackwardWeights,
		plan.OpSoftmaxCrossEntropy, plan.OpSoftmaxCrossEntropyBackward, plan.OpDiceBCE, plan.OpDiceBCEBackward:
		return 2
	}
	return 4
}

// maxTensorFloats limits the size of a tensor, so that offsets in bytes fit into an int32.
const maxTensorFloats = 1 << 29

// shapeTo4D is like tensor.To4D, but returns [1,n,1,1] for a vector of n elements.
func shapeTo4D(s []int) []int {
	if len(s) == 1 {
		return []int{1, s[0], 1, 1}
	}
	return tensor.ShapeTo4D(s)
}

// chooseLayouts chooses the layout of each tensor. Tensors that convolutions use as
// weights, the gradients of such tensors, and sums of these gradients get the layout of
// weights. A parameter that no kernel reads gets the layout of its gradient. Other tensors
// with two or more dimensions are activations.
func chooseLayouts(p *plan.Program) ([]tensor.Layout, error) {
	list := make([]tensor.Layout, len(p.Tensors))
	for i, t := range p.Tensors {
		if len(t.Shape) > 1 {
			list[i] = tensor.ActivationLayout
		}
	}
	mark := func(ids []int, at int) {
		if at < len(ids) && ids[at] >= 0 && list[ids[at]] == tensor.ActivationLayout {
			list[ids[at]] = tensor.WeightLayout
		}
	}
	for _, k := range p.Kernels {
		switch k.Op {
		case plan.OpConv, plan.OpConvTranspose, plan.OpLinear:
			mark(k.In, 1)
		case plan.OpConvBackwardData, plan.OpConvTransposeBackwardData, plan.OpLinearBackwardData:
			mark(k.In, 0)
		case plan.OpConvBackwardWeights, plan.OpConvTransposeBackwardWeights, plan.OpLinearBackwardWeights:
			mark(k.Out, 0)
		}
	}
	for changed := true; changed; {
		changed = false
		for _, k := range p.Kernels {
			ids := slices.Concat(k.In, k.Out)
			if k.Op != plan.OpAdd && !isCopy(p, k) {
				continue
			}
			some := slices.ContainsFunc(ids, func(id int) bool { return id >= 0 && list[id] == tensor.WeightLayout })
			for _, id := range ids {
				if some && id >= 0 && list[id] == tensor.ActivationLayout {
					list[id], changed = tensor.WeightLayout, true
				}
			}
		}
	}
	for _, q := range p.Params {
		if q.Grad < 0 {
			continue
		}
		w, g := p.Tensors[q.Tensor], p.Tensors[q.Grad]
		if w.First < 0 { // the backward pass of a pipeline's first stage does not read its first weights
			list[q.Tensor] = list[q.Grad]
		}
		if !slices.Equal(w.Shape, g.Shape) || list[q.Tensor] != list[q.Grad] {
			return nil, fmt.Errorf("parameter %q has layout %s and shape %v, but its gradient has layout %s and shape %v",
				q.Name, list[q.Tensor], w.Shape, list[q.Grad], g.Shape)
		}
	}
	return list, nil
}

func isCopy(p *plan.Program, k plan.Kernel) bool {
	return (k.Op == plan.OpReshape || k.Op == plan.OpSlice) && len(k.In) == 1 && len(k.Out) == 1 && min(k.In[0], k.Out[0]) >= 0 &&
		slices.Equal(p.Tensors[k.In[0]].Shape, p.Tensors[k.Out[0]].Shape)
}

// layOutGradients lays out the gradients in one flat buffer, one bucket after another. It
// also assigns the memory of parameters and states.
func (l *loader) layOutGradients() {
	p := l.program
	l.x.gradients.at = map[string]tensorRegion{}
	start := make([]int, len(p.Buckets))
	end := make([]int, len(p.Buckets))
	total := 0
	of := map[int]int{} // parameter → bucket
	for i, b := range p.Buckets {
		start[i] = -1
		for _, j := range b.Params {
			of[j] = i
		}
	}
	var placed []tensorRegion
	var ids []int
	for _, j := range paramOrder(p) {
		q := p.Params[j]
		name := p.Tensors[q.Tensor].Name
		l.data[q.Tensor] = l.x.store.paramAt[name].view(l.x.store.params)
		if q.Grad < 0 {
			continue
		}
		r := tensorRegion{total, p.Tensors[q.Tensor].Shape, l.layouts[q.Tensor]}
		l.x.gradients.at[name] = r
		placed, ids = append(placed, r), append(ids, q.Grad)
		size := tensor.RoundUp(r.size(), tensor.AlignmentFloats)
		l.x.optimizer.addParameterRun(l.x.store.paramAt[name].offset, total, size)
		total += size
		if b, ok := of[j]; ok {
			if start[b] < 0 {
				start[b] = r.offset
			}
			end[b] = total
		}
	}
	l.x.gradients.flat = kernel.NewAlignedFloats(total)
	for i, r := range placed {
		l.data[ids[i]] = r.view(l.x.gradients.flat)
	}
	for i := range p.Buckets {
		lo := max(0, start[i])
		l.x.gradients.buckets = append(l.x.gradients.buckets, l.x.gradients.flat[lo:max(lo, end[i]):max(lo, end[i])])
	}
	for _, id := range p.States {
		l.data[id] = l.x.store.stateAt[p.Tensors[id].Name].view(l.x.store.states)
	}
}

// layOutActivations lays out inputs and constants, which keep their values between steps,
// and all other tensors in the arena, where tensors with disjoint lifetimes share memory.
func (l *loader) layOutActivations() {
	p := l.program
	life := make([]plan.BufferLifetime, len(p.Tensors))
	for i, t := range p.Tensors {
		life[i] = plan.BufferLifetime{Size: tensor.RoundUp(l.layouts[i].FloatCount(t.Shape), tensor.AlignmentFloats), First: len(p.Kernels), Last: -1}
	}
	for i := range p.Kernels {
		l.forEachStoredTensor(i, func(id int) { life[id].First, life[id].Last = min(life[id].First, i), max(life[id].Last, i) })
	}
	keep := func(id int) {
		life[id].First = min(life[id].First, len(p.Kernels))
		life[id].Last = len(p.Kernels)
	}
	for _, id := range p.Outputs {
		keep(id)
	}
	if p.Loss >= 0 {
		keep(p.Loss)
	}
	fixed := 0
	var ids []int
	var list []plan.BufferLifetime
	at := map[int]int{}
	for id, t := range p.Tensors {
		switch {
		case l.data[id] != nil || l.origins[id].kind != stored:
		case t.Role == plan.Input || t.Role == plan.Constant || t.Role == plan.Parameter || t.Role == plan.State || t.Role == plan.Gradient || slices.Contains(p.Inputs, id):
			at[id] = fixed
			fixed += life[id].Size
		case life[id].Last >= 0:
			ids, list = append(ids, id), append(list, life[id])
		}
	}
	l.x.inputs = kernel.NewAlignedFloats(fixed)
	for id, offset := range at {
		n := l.layouts[id].FloatCount(p.Tensors[id].Shape)
		l.data[id] = l.x.inputs[offset : offset+n : offset+n]
	}
	indexed, lives := l.listMaxPoolIndexes()
	list = append(list, lives...)
	offsets, total := plan.LayOutArena(list)
	l.x.arena = kernel.NewAlignedFloats(total)
	for i, id := range ids {
		n := l.layouts[id].FloatCount(p.Tensors[id].Shape)
		l.data[id] = l.x.arena[offsets[i] : offsets[i]+n : offsets[i]+n]
	}
	for id, o := range l.origins {
		if o.kind == overwriting {
			if at := l.memoryOwner(id); l.origins[at].kind == stored {
				l.data[id] = l.data[at]
			}
		}
	}
	l.index = make([][]byte, len(p.Kernels))
	for i, k := range indexed {
		at := offsets[len(ids)+i]
		l.index[k] = unsafe.Slice((*byte)(unsafe.Pointer(&l.x.arena[at])), 4*lives[i].Size)
	}
}

func (l *loader) fillConstants() {
	for id, t := range l.program.Tensors {
		if t.Role != plan.Constant {
			continue
		}
		v := make([]float64, t.Elements())
		for i := range v {
			v[i] = t.Value
		}
		tensor.Pack(l.layouts[id], t.Shape, l.data[id], v)
	}
}
