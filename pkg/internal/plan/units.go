package plan

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/nn"
)

// kernels makes the units of the graph, fused where the options allow it.
func (l *lowering) kernels() error {
	grouped := map[int64]bool{} // batch norms whose backward kernel is made
	dropped := map[*gorgonia.Node]bool{}
	fused := map[*gorgonia.Node]*gorgonia.Node{} // batch norm → its ReLU
	if l.options.Fuse {
		fused = l.fusable()
		for bn, relu := range fused {
			dropped[relu] = true
			if g := l.incoming(bn); g != nil {
				dropped[g] = true
			}
		}
	}
	for _, n := range l.nodes {
		if n.Op() == nil || dropped[n] {
			continue
		}
		if _, ok := constant(n); ok {
			continue
		}
		call, ours := nn.CallOf(n)
		if !ours {
			if !isSum(n) {
				return fmt.Errorf("operation %q is not of package nn, and no engine can run it", n.Op())
			}
			call = nn.Call{Kind: nn.KindAdd, Of: sumOf, Layer: sumLayer(n)}
		}
		if call.Kind == nn.KindBatchNormBackward {
			if grouped[call.Of] {
				continue
			}
			grouped[call.Of] = true
		}
		u, err := l.unit(n, call, fused)
		if err != nil {
			return err
		}
		u.backward = !l.forward[n]
		l.units = append(l.units, u)
	}
	l.final()
	return nil
}

// sumOf is the Of of a sum of gradients: it is due at once, because it makes
// one tensor out of two.
const sumOf = int64(^uint64(0) >> 1)

// sumLayer is the layer whose result's gradient the sum n is, "" for a partial
// sum or a parameter's.
func sumLayer(n *gorgonia.Node) string {
	for _, of := range n.DerivOf() {
		if c, ok := nn.CallOf(of); ok {
			return c.Layer
		}
	}
	return ""
}

// unit makes the kernel of n.
func (l *lowering) unit(n *gorgonia.Node, call nn.Call, fused map[*gorgonia.Node]*gorgonia.Node) (unit, error) {
	in := nn.Operands(l.graph.Expr(), n)
	u := unit{op: Op(call.Kind), layer: call.Layer, of: call.Of, out: values(n), attr: attributes(call.Attr)}
	u.attr.Sync = l.options.SyncBatchNorm && (u.op == OpBatchNorm && u.attr.Training || u.op == OpBatchNormBackward)
	if _, known := arities[u.op]; !known {
		return u, fmt.Errorf("operation %q is not known to package plan", call.Kind)
	}
	switch call.Kind {
	case nn.KindConvBackwardData, nn.KindConvTransposeBackwardData, nn.KindLinearBackwardData:
		u.rank = 2
	case nn.KindConvBackwardWeights, nn.KindConvTransposeBackwardWeights, nn.KindLinearBackwardWeights:
		u.rank = 1
	}
	switch call.Kind {
	case nn.KindBatchNorm:
		u.in = values(in...)
		if relu := fused[n]; relu != nil {
			u.attr.ReLU = true
			u.out = values(relu)
		}
		if call.Attr.Training {
			u.out = append(u.out, value{n, partSavedMean}, value{n, partSavedInvStd})
		}
	case nn.KindBatchNormBackward:
		l.batchNormBackward(&u, in, fused)
	default:
		u.in = values(in...)
	}
	return u, nil
}

// attributes are a kernel's, from its operation's.
func attributes(a nn.Attr) Attr {
	return Attr{
		Kernel: a.Kernel, Stride: a.Stride, Pad: a.Pad, PadEnd: a.PadEnd, PadZeros: a.PadZeros, Offset: a.Offset,
		Training: a.Training, Epsilon: a.Epsilon, Momentum: a.Momentum,
		Slope: a.Slope, Smoothing: a.Smoothing, ExpWeight: a.ExpWeight, DiceWeight: a.DiceWeight,
	}
}

// batchNormBackward merges the three nodes of the gradient into one kernel. in
// is x, gamma, the forward node, dy; the forward node's third operand is beta.
func (l *lowering) batchNormBackward(u *unit, in []*gorgonia.Node, fused map[*gorgonia.Node]*gorgonia.Node) {
	bn, dy := in[2], in[3]
	u.in = []value{{node: in[0]}, {node: in[1]}, {bn, partSavedMean}, {bn, partSavedInvStd}, {node: dy}}
	if relu := fused[bn]; relu != nil {
		// dy is the ReLU's gradient, whose inputs are the ReLU's y and dy.
		u.in[4] = value{node: nn.Operands(l.graph.Expr(), dy)[1]}
		beta := nn.Operands(l.graph.Expr(), bn)[2]
		u.in = append(u.in, value{node: relu}, value{node: beta})
		u.attr.ReLU = true
	}
	u.out = make([]value, 3)
	for _, r := range l.readers[bn] {
		if c, ok := nn.CallOf(r); ok && c.Kind == nn.KindBatchNormBackward && c.Of == bn.ID() {
			u.out[c.Attr.Result] = value{node: r}
		}
	}
}

// fusable finds the batch norms that can take the ReLU behind them in: nothing
// else reads their result. The gradient that arrives at them is then the
// ReLU's alone, and nothing else reads that.
func (l *lowering) fusable() map[*gorgonia.Node]*gorgonia.Node {
	output := map[*gorgonia.Node]bool{}
	for _, o := range l.graph.Outputs() {
		output[o.Node] = true
	}
	pairs := map[*gorgonia.Node]*gorgonia.Node{}
	for _, bn := range l.nodes {
		call, ok := nn.CallOf(bn)
		if !ok || call.Kind != nn.KindBatchNorm || output[bn] {
			continue
		}
		if relu := l.onlyReader(bn); relu != nil {
			pairs[bn] = relu
		}
	}
	return pairs
}

// onlyReader is the ReLU that alone reads bn's result in the forward pass, or nil.
func (l *lowering) onlyReader(bn *gorgonia.Node) *gorgonia.Node {
	var relu *gorgonia.Node
	for _, r := range l.readers[bn] {
		c, ok := nn.CallOf(r)
		switch {
		case ok && c.Kind == nn.KindBatchNormBackward && c.Of == bn.ID():
			// It reads the saved statistics, not the result.
		case ok && c.Kind == nn.KindReLU && relu == nil:
			relu = r
		default:
			return nil
		}
	}
	return relu
}

// incoming is the gradient that arrives at bn's backward kernel, nil without one.
func (l *lowering) incoming(bn *gorgonia.Node) *gorgonia.Node {
	for _, r := range l.readers[bn] {
		if c, ok := nn.CallOf(r); ok && c.Kind == nn.KindBatchNormBackward && c.Of == bn.ID() {
			return nn.Operands(l.graph.Expr(), r)[3]
		}
	}
	return nil
}

// final settles which value is the gradient of which parameter. A gradient
// lies in a bucket and is reduced in place as soon as it is there, so nothing
// else may read it, and no two parameters may share it; then it is copied.
func (l *lowering) final() {
	l.results = map[value]int{}
	read := map[value]bool{}
	for _, u := range l.units {
		for _, v := range u.in {
			read[v] = true
		}
	}
	owners := map[*gorgonia.Node]int{}
	for _, g := range l.grads {
		owners[g]++
	}
	for i, g := range l.grads {
		v := value{node: g}
		if owners[g] == 1 && !read[v] && !l.forward[g] {
			l.results[v] = i
			continue
		}
		name := l.params[i].Name
		copying := OpReshape
		if g.Dims() == 4 {
			copying = OpSlice
		}
		c := value{g, partCopy + i}
		l.units = append(l.units, unit{op: copying, layer: name, in: []value{v}, out: []value{c}, backward: true, of: sumOf})
		l.results[c] = i
	}
}

func values(nodes ...*gorgonia.Node) []value {
	v := make([]value, len(nodes))
	for i, n := range nodes {
		v[i] = value{node: n}
	}
	return v
}
