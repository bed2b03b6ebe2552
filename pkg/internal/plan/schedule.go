package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
)

// scheduleKernels sorts the pending kernels into the order in which they run. The forward pass keeps
// the order in which the network was built. In the backward pass, among the kernels whose
// inputs are ready, the kernel of the latest forward operation runs first. So gradients become
// final from the last layer to the first, and activations are freed in the reverse order of
// their creation. For each operation, the gradients of parameters are computed before the
// gradient of the data, so that buckets are ready earlier. Sums of gradients run as soon as
// their inputs are ready.
func (l *graphLowering) scheduleKernels() error {
	var ordered, backward []pendingKernel
	for _, u := range l.pending {
		if u.backward {
			backward = append(backward, u)
		} else {
			ordered = append(ordered, u)
		}
	}
	l.steps = len(ordered)

	producer := map[pendingTensorKey]int{}
	for i, u := range backward {
		for _, v := range u.out {
			producer[v] = i
		}
	}
	waiting := make([]int, len(backward)) // by kernel: the number of inputs that are not yet computed
	next := make([][]int, len(backward))
	var ready []int
	for i, u := range backward {
		for _, v := range u.in {
			if j, ok := producer[v]; ok && v.node != nil {
				waiting[i]++
				next[j] = append(next[j], i)
			}
		}
		if waiting[i] == 0 {
			ready = append(ready, i)
		}
	}
	for len(ready) > 0 {
		// Later operation first, then rank, then the order of creation.
		best := slices.MinFunc(ready, func(a, b int) int {
			return cmp.Or(cmp.Compare(backward[b].forwardNode, backward[a].forwardNode), cmp.Compare(backward[a].rank, backward[b].rank), cmp.Compare(a, b))
		})
		ready = slices.Delete(ready, slices.Index(ready, best), slices.Index(ready, best)+1)
		ordered = append(ordered, backward[best])
		for _, i := range next[best] {
			if waiting[i]--; waiting[i] == 0 {
				ready = append(ready, i)
			}
		}
	}
	if len(ordered) != len(l.pending) {
		return errors.New("the gradients depend on each other in a cycle")
	}
	l.pending = ordered
	return nil
}

func (l *graphLowering) buildProgram() *Program {
	p := &Program{Loss: -1, Forward: l.steps}
	ids := map[pendingTensorKey]int{}
	add := func(v pendingTensorKey, t Tensor) int {
		t.First, t.Last = -1, -1
		p.Tensors = append(p.Tensors, t)
		ids[v] = len(p.Tensors) - 1
		return len(p.Tensors) - 1
	}
	for _, v := range l.graph.Inputs() {
		p.Inputs = append(p.Inputs, add(pendingTensorKey{node: v.Node}, Tensor{Name: v.Name, Shape: v.Shape, Role: Input}))
	}
	for _, v := range l.graph.Parameters() {
		id := add(pendingTensorKey{node: v.Node}, Tensor{Name: v.Name, Shape: v.Shape, Role: Parameter})
		p.Params = append(p.Params, Param{Name: v.Name, Tensor: id, Grad: -1, Bucket: -1})
	}
	for _, v := range l.graph.States() {
		p.States = append(p.States, add(pendingTensorKey{node: v.Node}, Tensor{Name: v.Name, Shape: v.Shape, Role: State}))
	}
	for _, n := range l.nodes {
		if c, ok := constantValue(n); ok {
			add(pendingTensorKey{node: n}, Tensor{Name: fmt.Sprint(c), Shape: []int{1}, Role: Constant, Value: c})
		}
	}
	for _, u := range l.pending {
		k := Kernel{Op: u.op, Name: u.layer, Attr: u.attr, Backward: u.backward}
		for _, v := range u.in {
			id, ok := ids[v]
			if !ok {
				id = -1 // Validate returns an error for it
			}
			k.In = append(k.In, id)
		}
		for i, v := range u.out {
			if v.node == nil {
				k.Out = append(k.Out, -1)
				continue
			}
			k.Out = append(k.Out, add(v, l.newTensor(u, i)))
		}
		p.Kernels = append(p.Kernels, k)
	}
	for v, i := range l.results {
		p.Params[i].Grad = ids[v]
	}
	for _, o := range l.graph.Outputs() {
		p.Outputs = append(p.Outputs, ids[pendingTensorKey{node: o.Node}])
	}
	if loss := l.graph.Loss(); loss != nil {
		p.Loss = ids[pendingTensorKey{node: loss}]
	}
	p.setTensorLifetimes()
	p.assignGradientBuckets(l.options)
	return p
}

func (l *graphLowering) newTensor(u pendingKernel, i int) Tensor {
	v := u.out[i]
	t := Tensor{Name: u.layer, Shape: nodeShape(v.node), Role: Activation}
	switch {
	case v.part == partSavedMean || v.part == partSavedInvStd:
		t.Shape = []int{v.node.Shape()[1]}
		t.Name += map[int]string{partSavedMean: ".saved_mean", partSavedInvStd: ".saved_invstd"}[v.part]
	case u.forwardNode == gradientSumOrder:
		t.Name = "gradient sum"
	case u.backward:
		t.Name += ".gradient"
	}
	if p, ok := l.results[v]; ok {
		t.Name, t.Role = l.params[p].Name, Gradient
	}
	if v.node == l.graph.Loss() {
		t.Name, t.Role = "loss", Output
	}
	for _, o := range l.graph.Outputs() {
		if v == (pendingTensorKey{node: o.Node}) {
			t.Name, t.Role = o.Name, Output
		}
	}
	return t
}

// nodeShape returns the shape of n, or [1] if n is a scalar.
func nodeShape(n *gorgonia.Node) []int {
	if n.Dims() == 0 {
		return []int{1}
	}
	return slices.Clone(n.Shape())
}

// setTensorLifetimes sets First and Last of every tensor, both of which must be −1 before the call.
func (p *Program) setTensorLifetimes() {
	for i, k := range p.Kernels {
		for _, ids := range [][]int{k.In, k.Out} {
			for _, id := range ids {
				if id < 0 {
					continue
				}
				t := &p.Tensors[id]
				if t.First < 0 {
					t.First = i
				}
				t.Last = i
			}
		}
	}
}

func (p *Program) assignGradientBuckets(o Options) {
	param := map[int]int{}
	for i, q := range p.Params {
		if q.Grad >= 0 {
			param[q.Grad] = i
		}
	}
	open := false
	for at, k := range p.Kernels {
		for _, id := range k.Out {
			i, ok := param[id]
			if !ok {
				continue
			}
			if !open {
				p.Buckets = append(p.Buckets, GradientBucket{})
			}
			b := &p.Buckets[len(p.Buckets)-1]
			b.Params = append(b.Params, i)
			b.Bytes += 4 * p.Tensors[id].Elements()
			b.Ready = at
			p.Params[i].Bucket = len(p.Buckets) - 1
			limit := o.BucketBytes
			if len(p.Buckets) == 1 {
				limit = o.FirstBucketBytes
			}
			open = b.Bytes < limit
		}
	}
}
