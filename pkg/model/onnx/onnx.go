// Package onnx writes networks in the format ONNX (https://onnx.ai), which ONNX Runtime, OpenVINO,
// ImageJ and others read.
package onnx

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/internal/wholefile"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/weights"
)

// Versions of the ONNX format and of its operators, as in ONNX 1.12 (2022).
const (
	irVersion    = 8
	opsetVersion = 17
)

// Write writes net to an ONNX file at path. tensors contains its parameters and running
// statistics in float32, and doc is the documentation of the file. The input "image" and the
// output "logits" have any number of samples, and any height and width unless the network
// flattens its feature maps. A batch norm is folded into the convolution before it if nothing
// else reads the convolution's result. Write returns an error for a layer that ONNX lacks.
func Write(path string, net model.Network, tensors []weights.Tensor, doc string) error {
	m, err := encodeModel(net, tensors, doc)
	if err != nil {
		return err
	}
	return wholefile.WriteBytes(path, m, 0o666)
}

func encodeModel(net model.Network, tensors []weights.Tensor, doc string) (protoMessage, error) {
	g, err := net.Graph(1, nn.Eval)
	if err != nil {
		return nil, err
	}
	c := converter{
		graph: g, kinds: map[string]string{}, weights: map[string]weights.Tensor{},
		names: map[*gorgonia.Node]string{}, readers: map[*gorgonia.Node][]*gorgonia.Node{},
	}
	for _, l := range g.Layers() {
		c.kinds[l.Name] = l.Kind
	}
	for _, t := range tensors {
		c.weights[t.Name] = t
	}
	for _, v := range slices.Concat(g.Parameters(), g.States()) {
		if !slices.Equal(c.weights[v.Name].Shape, v.Shape) || len(c.weights[v.Name].F32) != v.Elements() {
			return nil, fmt.Errorf("tensor %s has no float32 values of shape %v", v.Name, v.Shape)
		}
		c.names[v.Node] = v.Name
	}
	c.names[g.Inputs()[0].Node] = model.ImageInput
	nodes := c.collectNodes()
	for _, n := range nodes {
		if err := c.convertNode(n); err != nil {
			return nil, err
		}
	}
	c.encoded.addTextField(2, net.Name())
	image, logits := c.symbolicDims(nodes)
	c.encoded.addMessageField(11, newValueInfo(model.ImageInput, image))
	c.encoded.addMessageField(12, newValueInfo(model.LogitsOutput, logits))
	if len(c.encoded) > math.MaxInt32-1<<20 {
		return nil, errors.New("the weights exceed 2 GiB, the limit of a file in this format")
	}
	var opset, m protoMessage
	opset.addTextField(1, "")
	opset.addIntField(2, opsetVersion)
	m.addIntField(1, irVersion)
	m.addTextField(2, "lockstep")
	m.addTextField(6, doc)
	m.addMessageField(7, c.encoded)
	m.addMessageField(8, opset)
	return m, nil
}

type converter struct {
	graph   *nn.Graph
	kinds   map[string]string // of each layer, by its name
	weights map[string]weights.Tensor
	names   map[*gorgonia.Node]string           // of the value in ONNX
	readers map[*gorgonia.Node][]*gorgonia.Node // nodes that read a node
	encoded protoMessage
}

// collectNodes returns the operations that compute the logits, in order, and sets c.readers and
// c.names.
func (c *converter) collectNodes() []*gorgonia.Node {
	logits := c.graph.Outputs()[0].Node
	found, nodes := map[*gorgonia.Node]bool{logits: true}, []*gorgonia.Node{logits}
	for i := 0; i < len(nodes); i++ {
		for _, o := range nn.Operands(c.graph.Expr(), nodes[i]) {
			c.readers[o] = append(c.readers[o], nodes[i])
			if _, computed := nn.OperationInfoOf(o); computed && !found[o] {
				found[o] = true
				nodes = append(nodes, o)
			}
		}
	}
	slices.SortFunc(nodes, func(a, b *gorgonia.Node) int { return int(a.ID() - b.ID()) })
	for _, n := range nodes {
		info, _ := nn.OperationInfoOf(n)
		c.names[n] = cmp.Or(info.Layer, fmt.Sprintf("%s/%d", info.Kind, n.ID())) // only layers have names
	}
	c.names[logits] = model.LogitsOutput
	return nodes
}

func (c *converter) symbolicDims(nodes []*gorgonia.Node) (image, logits []any) {
	names := []string{"n", "channels", "height", "width"}
	in, out := c.graph.Inputs()[0].Shape, c.graph.Outputs()[0].Shape
	if len(in) == 5 {
		names = slices.Insert(names, 2, "depth")
	}
	flattens := slices.ContainsFunc(nodes, func(n *gorgonia.Node) bool {
		info, _ := nn.OperationInfoOf(n)
		return info.Kind == nn.KindReshape
	})
	name := func(shape []int) (dims []any) {
		for i, size := range shape {
			switch {
			case i == 1 || i > 1 && flattens:
				dims = append(dims, size)
			case i > 1 && size != in[i]:
				dims = append(dims, "output_"+names[i])
			default:
				dims = append(dims, names[i])
			}
		}
		return dims
	}
	return name(in), name(out)
}

// addNode adds a node with one output. op is the name of its operator in ONNX.
func (c *converter) addNode(op, output string, inputs []string, attributes ...protoMessage) {
	var m protoMessage
	for _, name := range inputs {
		m.addTextField(1, name)
	}
	m.addTextField(2, output)
	m.addTextField(3, output)
	m.addTextField(4, op)
	for _, a := range attributes {
		m.addMessageField(5, a)
	}
	c.encoded.addMessageField(1, m)
}

// addNodeWithWeights adds a node whose inputs after the first are parameters or states, and adds
// their values.
func (c *converter) addNodeWithWeights(op, output string, in []*gorgonia.Node, attributes ...protoMessage) {
	inputs := []string{c.names[in[0]]}
	for _, n := range in[1:] {
		t := c.weights[c.names[n]]
		c.encoded.addMessageField(5, newTensor(t.Name, t.Shape, t.F32))
		inputs = append(inputs, t.Name)
	}
	c.addNode(op, output, inputs, attributes...)
}

func (c *converter) convertNode(n *gorgonia.Node) error {
	info, _ := nn.OperationInfoOf(n)
	in := nn.Operands(c.graph.Expr(), n)
	var inputs []string
	for _, o := range in {
		if c.names[o] == "" {
			return fmt.Errorf("layer %q (%s) reads %s, which is not a layer", info.Layer, c.kinds[info.Layer], o)
		}
		inputs = append(inputs, c.names[o])
	}
	y := c.names[n]
	switch a := info.Attr; info.Kind {
	case nn.KindConv:
		c.addConvNode(n, in)
	case nn.KindConvTranspose:
		c.addNodeWithWeights("ConvTranspose", y, in, windowAttributes(in[1].Shape()[2:], a)...)
	case nn.KindLinear:
		c.addNodeWithWeights("Gemm", y, in, newAttribute("transB", 1))
	case nn.KindBatchNorm:
		if c.findFoldableBatchNorm(in[0]) != n { // otherwise addConvNode has folded it
			c.addNodeWithWeights("BatchNormalization", y, in, newAttribute("epsilon", a.Epsilon))
		}
	case nn.KindReLU:
		c.addNode("Relu", y, inputs)
	case nn.KindLeakyReLU:
		c.addNode("LeakyRelu", y, inputs, newAttribute("alpha", a.Slope))
	case nn.KindTanh:
		c.addNode("Tanh", y, inputs)
	case nn.KindMaxPool:
		if !a.PadZeros {
			c.addNode("MaxPool", y, inputs, windowAttributes(a.Kernel, a)...)
			break
		}
		c.addPadNode(y+".padded", inputs, a.Pad, a.Pad)
		a.Pad = nil
		// Without auto_pad, ONNX Runtime 1.30 (pad_fusion.cc) makes the zeros a padding of
		// the pooling, which ignores them, so that the result is wrong where all values are negative.
		c.addNode("MaxPool", y, []string{y + ".padded"}, append(windowAttributes(a.Kernel, a), newAttribute("auto_pad", "VALID"))...)
	case nn.KindAvgPool:
		c.addNode("AveragePool", y, inputs, windowAttributes(a.Kernel, a)...)
	case nn.KindGlobalAvgPool:
		c.addNode("GlobalAveragePool", y+".pooled", inputs)
		c.addNode("Flatten", y, []string{y + ".pooled"})
	case nn.KindReshape: // the layer Flatten
		c.addNode("Flatten", y, inputs)
	case nn.KindPad:
		c.addPadNode(y, inputs, a.Pad, a.PadEnd)
	case nn.KindConcat:
		c.addNode("Concat", y, inputs, newAttribute("axis", 1))
	case nn.KindAdd:
		c.addNode("Add", y, inputs)
	default:
		return fmt.Errorf("layer %q (%s) has no counterpart in ONNX", info.Layer, c.kinds[info.Layer])
	}
	return nil
}

func windowAttributes(kernel []int, a nn.Attr) []protoMessage {
	all := []protoMessage{newAttribute("kernel_shape", kernel), newAttribute("strides", a.Stride)}
	if len(a.Pad) > 0 {
		all = append(all, newAttribute("pads", slices.Concat(a.Pad, a.Pad)))
	}
	return all
}

func (c *converter) addPadNode(output string, inputs []string, before, after []int) {
	c.encoded.addMessageField(5, newIntTensor(output+".pads", slices.Concat([]int{0, 0}, before, []int{0, 0}, after)))
	c.addNode("Pad", output, append(inputs, output+".pads"))
}

// findFoldableBatchNorm returns the batch norm to fold into n, or nil if there is none.
func (c *converter) findFoldableBatchNorm(n *gorgonia.Node) *gorgonia.Node {
	info, _ := nn.OperationInfoOf(n)
	if info.Kind != nn.KindConv || len(c.readers[n]) != 1 || c.names[n] == model.LogitsOutput {
		return nil
	}
	norm := c.readers[n][0]
	if info, _ := nn.OperationInfoOf(norm); info.Kind != nn.KindBatchNorm {
		return nil
	}
	return norm
}

// addConvNode adds the convolution n. If a batch norm can be folded into n, addConvNode includes it.
func (c *converter) addConvNode(n *gorgonia.Node, in []*gorgonia.Node) {
	info, _ := nn.OperationInfoOf(n)
	attributes := windowAttributes(in[1].Shape()[2:], info.Attr)
	norm := c.findFoldableBatchNorm(n)
	if norm == nil {
		c.addNodeWithWeights("Conv", c.names[n], in, attributes...)
		return
	}
	weight, bias := c.weights[c.names[in[1]]], []float64(nil)
	if len(in) > 2 {
		bias = c.weights[c.names[in[2]]].Float64s()
	}
	var values [4][]float64 // gamma, beta, mean and variance
	for i, o := range nn.Operands(c.graph.Expr(), norm)[1:] {
		values[i] = c.weights[c.names[o]].Float64s()
	}
	normInfo, _ := nn.OperationInfoOf(norm)
	folded, shift := foldBatchNorm(weight.Float64s(), bias, values, normInfo.Attr.Epsilon)
	inputs := []string{c.names[in[0]], weight.Name, info.Layer + ".bias"}
	c.encoded.addMessageField(5, newTensor(inputs[1], weight.Shape, folded))
	c.encoded.addMessageField(5, newTensor(inputs[2], []int{len(shift)}, shift))
	c.addNode("Conv", c.names[norm], inputs, attributes...)
}

// foldBatchNorm folds a batch norm into the convolution before it: y = γ·(w∗x + b − μ)/√(σ²+ε) +
// β. bias is nil if the convolution has none, and norm contains gamma, beta, mean and variance.
// folded and shift are the weight and bias of the resulting convolution.
func foldBatchNorm(weight, bias []float64, norm [4][]float64, epsilon float64) (folded, shift []float32) {
	gamma, beta, mean, variance := norm[0], norm[1], norm[2], norm[3]
	window := len(weight) / len(gamma)
	for k := range gamma {
		scale := gamma[k] / math.Sqrt(variance[k]+epsilon)
		b := -mean[k]
		if bias != nil {
			b += bias[k]
		}
		shift = append(shift, float32(scale*b+beta[k]))
		for _, w := range weight[k*window:][:window] {
			folded = append(folded, float32(scale*w))
		}
	}
	return folded, shift
}
