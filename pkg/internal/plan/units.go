package plan

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/nn"
)

func (l *graphLowering) createPendingKernels() error {
	grouped := map[int64]bool{} // batch norms whose backward kernel has been created
	dropped := map[*gorgonia.Node]bool{}
	fused := map[*gorgonia.Node]*gorgonia.Node{} // batch norm → its ReLU
	if l.options.Fuse {
		fused = l.findFusableBatchNorms()
		for bn, relu := range fused {
			dropped[relu] = true
			if g := l.incomingGradient(bn); g != nil {
				dropped[g] = true
			}
		}
	}
	for _, n := range l.nodes {
		if n.Op() == nil || dropped[n] {
			continue
		}
		if _, ok := constantValue(n); ok {
			continue
		}
		call, ours := nn.OperationInfoOf(n)
		if !ours {
			if !isGradientSum(n) {
				return fmt.Errorf("operation %q is not from package nn, so no engine can run it", n.Op())
			}
			call = nn.OperationInfo{Kind: nn.KindAdd, Of: gradientSumOrder, Layer: gradientSumLayer(n)}
		}
		if call.Kind == nn.KindBatchNormBackward {
			if grouped[call.Of] {
				continue
			}
			grouped[call.Of] = true
		}
		u, err := l.newPendingKernel(n, call, fused)
		if err != nil {
			return err
		}
		u.backward = !l.forward[n]
		l.pending = append(l.pending, u)
	}
	l.assignGradientTensors()
	return nil
}

// gradientSumOrder is the value of pendingKernel.forwardNode for a sum of gradients. It is the
// largest number, so that schedule runs sums first: a sum replaces two tensors by one.
const gradientSumOrder = int64(^uint64(0) >> 1)

// gradientSumLayer returns the name of the layer whose result has the gradient n, or "" if there
// is none.
func gradientSumLayer(n *gorgonia.Node) string {
	for _, of := range n.DerivOf() {
		if c, ok := nn.OperationInfoOf(of); ok {
			return c.Layer
		}
	}
	return ""
}

// newPendingKernel returns the kernel for node n, whose operation call describes. fused maps each
// batch norm that applies the ReLU after it to that ReLU.
func (l *graphLowering) newPendingKernel(n *gorgonia.Node, call nn.OperationInfo, fused map[*gorgonia.Node]*gorgonia.Node) (pendingKernel, error) {
	in := nn.Operands(l.graph.Expr(), n)
	u := pendingKernel{op: Op(call.Kind), layer: call.Layer, forwardNode: call.Of, out: tensorKeysOfNodes(n), attr: convertAttr(call.Attr)}
	u.attr.Sync = l.options.SyncBatchNorm && (u.op == OpBatchNorm && u.attr.Training || u.op == OpBatchNormBackward)
	if _, known := arities[u.op]; !known {
		return u, fmt.Errorf("package plan: unknown operation %q", call.Kind)
	}
	switch call.Kind {
	case nn.KindConvBackwardData, nn.KindConvTransposeBackwardData, nn.KindLinearBackwardData:
		u.rank = 2
	case nn.KindConvBackwardWeights, nn.KindConvTransposeBackwardWeights, nn.KindLinearBackwardWeights:
		u.rank = 1
	}
	switch call.Kind {
	case nn.KindBatchNorm:
		u.in = tensorKeysOfNodes(in...)
		if relu := fused[n]; relu != nil {
			u.attr.ReLU = true
			u.out = tensorKeysOfNodes(relu)
		}
		if call.Attr.Training {
			u.out = append(u.out, pendingTensorKey{n, partSavedMean}, pendingTensorKey{n, partSavedInvStd})
		}
	case nn.KindBatchNormBackward:
		l.mergeBatchNormBackward(&u, in, fused)
	default:
		u.in = tensorKeysOfNodes(in...)
	}
	return u, nil
}

func convertAttr(a nn.Attr) KernelAttr {
	return KernelAttr{
		Kernel: a.Kernel, Stride: a.Stride, Pad: a.Pad, PadEnd: a.PadEnd, PadZeros: a.PadZeros, Offset: a.Offset,
		Training: a.Training, Epsilon: a.Epsilon, Momentum: a.Momentum,
		Slope: a.Slope, Smoothing: a.Smoothing, ExpWeight: a.ExpWeight, DiceWeight: a.DiceWeight,
		ClassWeights: a.ClassWeights, Ignore: a.Ignore,
	}
}

// mergeBatchNormBackward makes u compute all three gradients of a batch norm, which are separate
// nodes in the graph. in contains x, gamma, the forward node and dy. The third operand of the
// forward node is beta.
func (l *graphLowering) mergeBatchNormBackward(u *pendingKernel, in []*gorgonia.Node, fused map[*gorgonia.Node]*gorgonia.Node) {
	bn, dy := in[2], in[3]
	u.in = []pendingTensorKey{{node: in[0]}, {node: in[1]}, {bn, partSavedMean}, {bn, partSavedInvStd}, {node: dy}}
	if relu := fused[bn]; relu != nil {
		// dy is the ReLU's gradient, whose inputs are the ReLU's y and dy.
		u.in[4] = pendingTensorKey{node: nn.Operands(l.graph.Expr(), dy)[1]}
		beta := nn.Operands(l.graph.Expr(), bn)[2]
		u.in = append(u.in, pendingTensorKey{node: relu}, pendingTensorKey{node: beta})
		u.attr.ReLU = true
	}
	u.out = make([]pendingTensorKey, 3)
	for _, r := range l.readers[bn] {
		if c, ok := nn.OperationInfoOf(r); ok && c.Kind == nn.KindBatchNormBackward && c.Of == bn.ID() {
			u.out[c.Attr.Result] = pendingTensorKey{node: r}
		}
	}
}

// findFusableBatchNorms returns the batch norms that can be fused with the ReLU after them, mapped to
// that ReLU. The ReLU must be the only reader of the batch norm's result. Then the gradient
// of that result is the ReLU's gradient, and only the batch norm's gradient reads it.
func (l *graphLowering) findFusableBatchNorms() map[*gorgonia.Node]*gorgonia.Node {
	output := map[*gorgonia.Node]bool{}
	for _, o := range l.graph.Outputs() {
		output[o.Node] = true
	}
	pairs := map[*gorgonia.Node]*gorgonia.Node{}
	for _, bn := range l.nodes {
		call, ok := nn.OperationInfoOf(bn)
		if !ok || call.Kind != nn.KindBatchNorm || output[bn] {
			continue
		}
		if relu := l.findSoleReLU(bn); relu != nil {
			pairs[bn] = relu
		}
	}
	return pairs
}

// findSoleReLU returns the ReLU that is the only reader of bn in the forward pass, or nil if
// there is none.
func (l *graphLowering) findSoleReLU(bn *gorgonia.Node) *gorgonia.Node {
	var relu *gorgonia.Node
	for _, r := range l.readers[bn] {
		c, ok := nn.OperationInfoOf(r)
		switch {
		case ok && c.Kind == nn.KindBatchNormBackward && c.Of == bn.ID():
			// The backward kernel reads the saved statistics, not the result.
		case ok && c.Kind == nn.KindReLU && relu == nil:
			relu = r
		default:
			return nil
		}
	}
	return relu
}

// incomingGradient returns the gradient of bn's result, or nil if there is no backward pass.
func (l *graphLowering) incomingGradient(bn *gorgonia.Node) *gorgonia.Node {
	for _, r := range l.readers[bn] {
		if c, ok := nn.OperationInfoOf(r); ok && c.Kind == nn.KindBatchNormBackward && c.Of == bn.ID() {
			return nn.Operands(l.graph.Expr(), r)[3]
		}
	}
	return nil
}

// assignGradientTensors determines the pendingTensorKey of each parameter's gradient. A gradient is stored in a
// bucket and reduced in place as soon as it is computed. Therefore no other kernel may read it,
// and no two parameters may share it. Where this would happen, assignGradientTensors adds a kernel that
// copies the gradient.
func (l *graphLowering) assignGradientTensors() {
	l.results = map[pendingTensorKey]int{}
	read := map[pendingTensorKey]bool{}
	for _, u := range l.pending {
		for _, v := range u.in {
			read[v] = true
		}
	}
	owners := map[*gorgonia.Node]int{}
	for _, g := range l.grads {
		owners[g]++
	}
	for i, g := range l.grads {
		v := pendingTensorKey{node: g}
		if owners[g] == 1 && !read[v] && !l.forward[g] {
			l.results[v] = i
			continue
		}
		name := l.params[i].Name
		copying := OpReshape
		if g.Dims() == 4 {
			copying = OpSlice
		}
		c := pendingTensorKey{g, partCopy + i}
		l.pending = append(l.pending, pendingKernel{op: copying, layer: name, in: []pendingTensorKey{v}, out: []pendingTensorKey{c}, backward: true, forwardNode: gradientSumOrder})
		l.results[c] = i
	}
}

func tensorKeysOfNodes(nodes ...*gorgonia.Node) []pendingTensorKey {
	v := make([]pendingTensorKey, len(nodes))
	for i, n := range nodes {
		v[i] = pendingTensorKey{node: n}
	}
	return v
}
