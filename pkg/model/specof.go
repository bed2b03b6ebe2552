package model

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/nn"
)

// SpecOf returns the spec of a network. The spec builds the same graph with the same
// names and initial values, so training yields the same weights. It returns an error if
// the network has operations that are not layers of nn.Graph.
func SpecOf(net Network) (*Spec, error) {
	s, err := convertToSpec(net)
	if err != nil {
		return nil, fmt.Errorf("write %s as a spec: %w", net.Name(), err)
	}
	return s, nil
}

// convertToSpec is SpecOf without the prefix of its errors.
func convertToSpec(net Network) (*Spec, error) {
	g, err := net.Graph(1, nn.Eval)
	if err != nil {
		return nil, err
	}
	s := &Spec{Name: net.Name(), Task: net.Task(), Image: net.InputShape(), Target: net.TargetShape()}
	w := specConverter{graph: g, names: map[*gorgonia.Node]string{}, variables: map[*gorgonia.Node]nn.Variable{}}
	for _, v := range slices.Concat(g.Inputs(), g.Parameters(), g.States()) {
		w.variables[v.Node] = v
	}
	for _, in := range g.Inputs() {
		w.names[in.Node] = in.Name
	}
	nodes := slices.Clone(g.Expr().AllNodes())
	slices.SortFunc(nodes, func(a, b *gorgonia.Node) int { return int(a.ID() - b.ID()) })
	for _, n := range nodes {
		c, ok := nn.OperationInfoOf(n)
		if !ok {
			continue
		}
		if n == g.Loss() {
			if s.Loss, err = w.convertLoss(n, c, s.Task); err != nil {
				return nil, err
			}
			continue
		}
		l, err := w.convertLayer(n, c)
		if err != nil {
			return nil, err
		}
		s.Layers = append(s.Layers, l)
		w.layers++
		w.names[n] = c.Layer
	}
	s.Logits = w.names[g.Outputs()[0].Node]
	w.chooseInits(s.Layers)
	w.omitDefaults(s)
	if err := s.checkEquivalent(net, g); err != nil {
		return nil, err
	}
	return s, nil
}

type specConverter struct {
	graph     *nn.Graph
	names     map[*gorgonia.Node]string // name of each node that was converted
	variables map[*gorgonia.Node]nn.Variable
	layers    int // number of layers so far
	initials  []initializerCandidates
}

// initializerCandidates contains the names that a spec may use for the initializer of a weight or
// bias.
type initializerCandidates struct {
	layer int
	bias  bool
	names []string
}

// chooseInits sets each layer's initializers. If several names fit a weight or bias, it
// chooses the name that fits the most weights and biases of the network.
func (w *specConverter) chooseInits(layers []SpecLayer) {
	fits := map[string]int{}
	for _, b := range w.initials {
		for _, name := range b.names {
			fits[name]++
		}
	}
	for _, b := range w.initials {
		best := b.names[0]
		for _, name := range b.names[1:] {
			if fits[name] > fits[best] {
				best = name
			}
		}
		if l := &layers[b.layer]; b.bias {
			l.BiasInit = best
		} else {
			l.Init = best
		}
	}
}

func (w *specConverter) convertLayer(n *gorgonia.Node, c nn.OperationInfo) (SpecLayer, error) {
	if c.Layer == "" {
		return SpecLayer{}, fmt.Errorf("%s %s is not a layer of the graph: use methods of nn.Graph, such as g.ReLU(x), instead of functions of package nn", c.Kind, n.Shape())
	}
	l := SpecLayer{Name: c.Layer}
	operands := nn.Operands(w.graph.Expr(), n)
	read := 1
	switch c.Kind {
	case nn.KindConv, nn.KindConvTranspose:
		l.Kind = map[nn.Kind]string{nn.KindConv: "Conv", nn.KindConvTranspose: "ConvTranspose"}[c.Kind]
		l.Out, l.Kernel = n.Shape()[1], Sizes(operands[1].Shape()[2:]).collapseEqual()
		l.Stride, l.Pad = nilIfDefault(c.Attr.Stride, 1), nilIfDefault(c.Attr.Pad, 0)
		if err := w.recordInits(&l, operands); err != nil {
			return l, err
		}
	case nn.KindLinear:
		l.Kind, l.Out = "Linear", n.Shape()[1]
		if err := w.recordInits(&l, operands); err != nil {
			return l, err
		}
	case nn.KindBatchNorm:
		l.Kind = "BatchNorm"
		l.Epsilon, l.Momentum = zeroIfDefault(c.Attr.Epsilon, nn.BatchNormEpsilon), zeroIfDefault(c.Attr.Momentum, nn.BatchNormMomentum)
	case nn.KindReLU:
		l.Kind = "ReLU"
	case nn.KindLeakyReLU:
		l.Kind, l.Slope = "LeakyReLU", zeroIfDefault(c.Attr.Slope, defaultLeakySlope)
	case nn.KindTanh:
		l.Kind = "Tanh"
	case nn.KindMaxPool, nn.KindAvgPool:
		l.Kind = map[nn.Kind]string{nn.KindMaxPool: "MaxPool", nn.KindAvgPool: "AvgPool"}[c.Kind]
		l.Kernel, l.Pad, l.PadZeros = Sizes(c.Attr.Kernel).collapseEqual(), nilIfDefault(c.Attr.Pad, 0), c.Attr.PadZeros
		if !slices.Equal(c.Attr.Stride, c.Attr.Kernel) {
			l.Stride = Sizes(c.Attr.Stride).collapseEqual()
		}
	case nn.KindGlobalAvgPool:
		l.Kind = "GlobalAvgPool"
	case nn.KindReshape:
		l.Kind = "Flatten"
	case nn.KindPad:
		l.Kind, l.Pad = "ZeroPad", Sizes(c.Attr.Pad).collapseEqual()
		if !slices.Equal(c.Attr.Pad, c.Attr.PadEnd) {
			l.PadEnd = Sizes(c.Attr.PadEnd).collapseEqual()
		}
	case nn.KindConcat:
		l.Kind, read = "Concat", 2
	case nn.KindAdd:
		l.Kind, read = "Add", 2
	default:
		return l, fmt.Errorf("layer %q: a spec cannot express operation %s", c.Layer, c.Kind)
	}
	for _, o := range operands[:read] {
		name, ok := w.names[o]
		if !ok || name == TargetInput {
			return l, fmt.Errorf("layer %q reads %q, which is neither the image nor a layer", c.Layer, o.Name())
		}
		l.In = append(l.In, name)
	}
	return l, nil
}

// recordInits records the possible names of the initializers of l. operands are the inputs of the
// layer's operation.
func (w *specConverter) recordInits(l *SpecLayer, operands []*gorgonia.Node) error {
	bias := len(operands) > 2
	l.Bias = &bias
	shape := operands[1].Shape()
	window := 1
	for _, k := range shape[2:] {
		window *= k
	}
	for i := range operands[1:] {
		v, ok := w.variables[operands[1+i]]
		if !ok || v.Init == nil {
			return fmt.Errorf("layer %q computes its weights: a spec allows only parameters as weights", l.Name)
		}
		names, err := findInitNames(v.Init, shape[1]*window, shape[0]*window)
		if err != nil {
			return fmt.Errorf("parameter %s: %w", v.Name, err)
		}
		w.initials = append(w.initials, initializerCandidates{w.layers, i == 1, names})
	}
	return nil
}

// convertLoss converts the loss n, whose operation c describes. It returns nil without an error
// if the loss is the task's default.
func (w *specConverter) convertLoss(n *gorgonia.Node, c nn.OperationInfo, task Task) (*SpecLoss, error) {
	kinds := map[nn.Kind]string{nn.KindBCEWithLogits: lossBCE, nn.KindDiceBCE: lossDice, nn.KindSoftmaxCrossEntropy: lossSoftmax, nn.KindPixelCrossEntropy: lossPixel, nn.KindL1: lossL1}
	l := &SpecLoss{Kind: kinds[c.Kind], Dice: c.Attr.DiceWeight, Smoothing: c.Attr.Smoothing, ExpWeight: c.Attr.ExpWeight, ClassWeights: c.Attr.ClassWeights}
	in := nn.Operands(w.graph.Expr(), n)
	switch {
	case l.Kind == "":
		return nil, fmt.Errorf("a spec cannot express the loss %s", c.Kind)
	case in[0] != w.graph.Outputs()[0].Node || w.names[in[1]] != TargetInput:
		return nil, fmt.Errorf("the loss is not computed from the logits and the target")
	case c.Attr.Ignore != 0 && c.Attr.Ignore != IgnoredTarget:
		return nil, fmt.Errorf("the loss ignores target %d: a spec can only ignore %d", c.Attr.Ignore, IgnoredTarget)
	case reflect.DeepEqual(*l, SpecLoss{Kind: defaultLossKind(task)}):
		return nil, nil
	}
	return l, nil
}

func defaultLossKind(t Task) string {
	return map[Task]string{Segmentation: lossBCE, Classification: lossSoftmax, Regression: lossL1}[t]
}

// omitDefaults removes everything that a spec may omit: the inputs of layers that read the
// previous layer, the logits if the last layer computes them, and names that nothing refers
// to.
func (w *specConverter) omitDefaults(s *Spec) {
	before := ImageInput
	asked := map[string]bool{s.Logits: true}
	for i := range s.Layers {
		l := &s.Layers[i]
		if len(l.In) == 1 && l.In[0] == before {
			l.In = nil
		}
		for _, name := range l.In {
			asked[name] = true
		}
		before = l.Name
	}
	if s.Logits == before {
		s.Logits = ""
	}
	for i := range s.Layers {
		l := &s.Layers[i]
		if k, _ := findLayerKind(l.Kind); !k.parameters && !asked[l.Name] {
			l.Name = ""
		}
	}
}

// checkEquivalent returns an error unless s builds the same network as g, with the same
// layers and with parameters of the same names, shapes and initial values.
func (s *Spec) checkEquivalent(net Network, g *nn.Graph) error {
	again, err := s.Network(nil, nil)
	if err != nil {
		return err
	}
	h, err := again.Graph(1, nn.Eval)
	if err != nil {
		return err
	}
	if len(g.Layers()) != len(h.Layers()) {
		return fmt.Errorf("the spec has %d layers, but the network has %d", len(h.Layers()), len(g.Layers()))
	}
	for i, l := range h.Layers() {
		if want := g.Layers()[i]; l.Name != want.Name || l.Kind != want.Kind || !slices.Equal(l.Shape, want.Shape) {
			return fmt.Errorf("layer %d is %s %s %v in the spec, but %s %s %v in the network", i+1, l.Name, l.Kind, l.Shape, want.Name, want.Kind, want.Shape)
		}
	}
	got, want := slices.Concat(h.Parameters(), h.States()), slices.Concat(g.Parameters(), g.States())
	if len(got) != len(want) {
		return fmt.Errorf("the spec has %d parameters and states, but %s has %d: only parameters of layers can be written", len(got), net.Name(), len(want))
	}
	for i, v := range got {
		if v.Name != want[i].Name || !slices.Equal(v.Shape, want[i].Shape) {
			return fmt.Errorf("parameter %d is %s %v in the spec, but %s %v in the network: give a layer's parameters the layer's name", i+1, v.Name, v.Shape, want[i].Name, want[i].Shape)
		}
		if !slices.Equal(sampleInitializer(v.Init), sampleInitializer(want[i].Init)) {
			return fmt.Errorf("a spec cannot express the initial values of parameter %s: use one of the initializers %s", v.Name, strings.Join(Inits(), ", "))
		}
	}
	return nil
}

// nilIfDefault returns v, or nil if every number in v is defaultValue.
func nilIfDefault(v []int, defaultValue int) Sizes {
	if !slices.ContainsFunc(v, func(n int) bool { return n != defaultValue }) {
		return nil
	}
	return Sizes(v).collapseEqual()
}

func zeroIfDefault(v, defaultValue float64) float64 {
	if v == defaultValue {
		return 0
	}
	return v
}
