package nn

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"gorgonia.org/gorgonia"
)

// Mode selects whether a graph is for training or for evaluation.
type Mode int

// Modes of a graph.
const (
	Train Mode = iota // batch norm uses batch statistics; gradients are available
	Eval              // batch norm uses running statistics; there are no gradients
)

func (m Mode) String() string {
	if m == Eval {
		return "eval"
	}
	return "train"
}

// Variable is a named tensor of a graph: an input, a parameter, a state or an output.
type Variable struct {
	Name  string
	Shape []int
	Node  *gorgonia.Node
	Init  Initializer // nil for inputs and outputs
}

// Elements returns the number of elements of v.
func (v Variable) Elements() int { return elementCount(v.Shape) }

// Layer describes a layer in the summary of a network.
type Layer struct {
	Name       string
	Kind       string
	Shape      []int // shape of the output
	Parameters int   // number of trainable elements
	// FLOPs is the number of floating-point operations in the forward pass. A
	// multiplication and an addition count as two operations. As is usual, only
	// convolutions and linear layers are counted.
	FLOPs int64
}

// Graph builds a network. After the first error its methods return nil and do nothing. It
// is not safe for concurrent use.
type Graph struct {
	mode       Mode
	err        error
	expr       *gorgonia.ExprGraph
	names      map[string]bool
	inputs     []Variable
	parameters []Variable
	states     []Variable
	outputs    []Variable
	layers     []Layer
	loss       *gorgonia.Node
	grads      gorgonia.Nodes
}

// NewGraph returns an empty graph.
func NewGraph(mode Mode) *Graph {
	return &Graph{mode: mode, expr: gorgonia.NewGraph(gorgonia.WithGraphName("lockstep")), names: map[string]bool{}}
}

// Err returns the first error of the methods called so far, or nil.
func (g *Graph) Err() error { return g.err }

// Fail sets the error that Err returns, unless an error is already set. It is for custom
// layers.
func (g *Graph) Fail(err error) {
	if g.err == nil {
		g.err = err
	}
}

// Mode returns the mode that the graph was created with.
func (g *Graph) Mode() Mode { return g.mode }

// Expr returns the underlying gorgonia graph.
func (g *Graph) Expr() *gorgonia.ExprGraph { return g.expr }

// Inputs returns the inputs in the order in which they were created.
func (g *Graph) Inputs() []Variable { return slices.Clone(g.inputs) }

// Parameters returns the parameters in the order in which they were created.
func (g *Graph) Parameters() []Variable { return slices.Clone(g.parameters) }

// States returns the running statistics in the order in which they were created.
func (g *Graph) States() []Variable { return slices.Clone(g.states) }

// Outputs returns the outputs in the order of the calls of Output.
func (g *Graph) Outputs() []Variable { return slices.Clone(g.outputs) }

// Layers returns the layers in the order in which they were created.
func (g *Graph) Layers() []Layer { return slices.Clone(g.layers) }

// Loss returns the loss, or nil if SetLoss was not called.
func (g *Graph) Loss() *gorgonia.Node { return g.loss }

// ParameterCount returns the number of trainable elements.
func (g *Graph) ParameterCount() int {
	n := 0
	for _, p := range g.parameters {
		n += p.Elements()
	}
	return n
}

// Input adds a tensor that the caller sets before each step.
func (g *Graph) Input(name string, shape ...int) *gorgonia.Node {
	return g.addVariable(&g.inputs, "input", name, nil, shape)
}

// Parameter adds a trainable tensor. init computes its initial values.
func (g *Graph) Parameter(name string, init Initializer, shape ...int) *gorgonia.Node {
	return g.addVariable(&g.parameters, "parameter", name, init, shape)
}

// State adds a tensor that keeps its values between steps and is not trained, such as a
// running mean.
func (g *Graph) State(name string, init Initializer, shape ...int) *gorgonia.Node {
	return g.addVariable(&g.states, "state", name, init, shape)
}

// addVariable adds a tensor to the graph and appends it to list.
func (g *Graph) addVariable(list *[]Variable, what, name string, init Initializer, shape []int) (n *gorgonia.Node) {
	if g.err != nil {
		return nil
	}
	var err error
	defer func() {
		if err != nil {
			g.Fail(err)
			n = nil
		}
	}()
	defer recoverAsError(&err, "add %s %q", what, name)
	switch {
	case name == "":
		err = fmt.Errorf("add %s: the name is empty", what)
	case g.names[name]:
		// gorgonia would merge inputs with the same name.
		err = fmt.Errorf("add %s %q: duplicate name: give each layer a unique name", what, name)
	case init == nil && what != "input":
		err = fmt.Errorf("add %s %q: initializer is nil", what, name)
	case len(shape) == 0 || slices.Min(shape) < 1:
		err = fmt.Errorf("add %s %q: invalid shape %v: want at least one dimension, each at least 1", what, name, shape)
	}
	if err != nil {
		return nil
	}
	g.names[name] = true
	n = gorgonia.NewTensor(g.expr, gorgonia.Float32, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name))
	*list = append(*list, Variable{Name: name, Shape: slices.Clone(shape), Node: n, Init: init})
	return n
}

// Output declares n as an output, whose value can be read by the given name after a step.
// It returns n, or nil after an error.
func (g *Graph) Output(name string, n *gorgonia.Node) *gorgonia.Node {
	if g.err != nil {
		return nil
	}
	if _, ok := OperationInfoOf(n); !ok {
		g.Fail(fmt.Errorf("add output %q: the node is not the result of an operation", name))
		return nil
	}
	for _, o := range g.outputs {
		if o.Name == name || o.Node == n {
			g.Fail(fmt.Errorf("add output %q: output %q has the same name or node", name, o.Name))
			return nil
		}
	}
	g.outputs = append(g.outputs, Variable{Name: name, Shape: slices.Clone(n.Shape()), Node: n})
	return n
}

// SetLoss sets the scalar n that training minimizes.
func (g *Graph) SetLoss(n *gorgonia.Node) {
	switch {
	case g.err != nil:
	case n == nil || n.Dims() != 0:
		g.Fail(errors.New("set loss: the loss must be a scalar, such as the result of BCEWithLogits"))
	case g.loss != nil:
		g.Fail(errors.New("set loss: the graph already has a loss"))
	default:
		g.loss = n
	}
}

// gorgoniaGradMutex is held during calls of gorgonia.Grad, which writes to a constant that
// all graphs of the process share.
var gorgoniaGradMutex sync.Mutex

// Gradients returns the gradients of the loss with respect to each parameter, in the order
// of Parameters. The first call adds them to the graph; later calls return the same nodes.
func (g *Graph) Gradients() (grads gorgonia.Nodes, err error) {
	defer recoverAsError(&err, "differentiate the loss")
	switch {
	case g.err != nil:
		return nil, g.err
	case g.grads != nil:
		return g.grads, nil
	case g.mode != Train:
		return nil, fmt.Errorf("differentiate the loss: the graph's mode is %s: build it with nn.Train", g.mode)
	case g.loss == nil:
		return nil, errors.New("differentiate the loss: the graph has no loss: call SetLoss")
	case len(g.parameters) == 0:
		return nil, errors.New("differentiate the loss: the graph has no parameters: add a layer with parameters")
	}
	reached := g.findLossDependencies()
	wrt := make(gorgonia.Nodes, len(g.parameters))
	for i, p := range g.parameters {
		if !reached[p.Node] {
			return nil, fmt.Errorf("differentiate the loss: the loss does not depend on parameter %q: use the output of its layer, or remove the layer", p.Name)
		}
		wrt[i] = p.Node
	}
	gorgoniaGradMutex.Lock()
	defer gorgoniaGradMutex.Unlock()
	if grads, err = gorgonia.Grad(g.loss, wrt...); err != nil {
		return nil, fmt.Errorf("differentiate the loss: %w", err)
	}
	g.grads = grads
	return grads, nil
}

// findLossDependencies returns the nodes on which the loss depends, including the loss.
func (g *Graph) findLossDependencies() map[*gorgonia.Node]bool {
	seen := map[*gorgonia.Node]bool{g.loss: true}
	for todo := []*gorgonia.Node{g.loss}; len(todo) > 0; {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, c := range Operands(g.expr, n) {
			if !seen[c] {
				seen[c] = true
				todo = append(todo, c)
			}
		}
	}
	return seen
}

// Operands returns the inputs of the operation that computes n, in order and with
// duplicates, or nil if n has no inputs.
func Operands(g *gorgonia.ExprGraph, n *gorgonia.Node) []*gorgonia.Node {
	it := g.From(n.ID())
	if it == nil {
		return nil
	}
	var in []*gorgonia.Node
	for it.Next() {
		in = append(in, it.Node().(*gorgonia.Node))
	}
	return in
}

func elementCount(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
