package nn

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"gorgonia.org/gorgonia"
)

// Mode says what a graph is for.
type Mode int

// The modes.
const (
	Train Mode = iota // batch statistics, and gradients can be asked for
	Eval              // running statistics, forward only
)

func (m Mode) String() string {
	if m == Eval {
		return "eval"
	}
	return "train"
}

// Variable is a named tensor of a graph: an input, a parameter, a state or an
// output.
type Variable struct {
	Name  string
	Shape []int
	Node  *gorgonia.Node
	Init  Initializer // of a parameter or state
}

// Elements is the number of elements of v.
func (v Variable) Elements() int { return elements(v.Shape) }

// Layer is a line of a network's summary.
type Layer struct {
	Name       string
	Kind       string
	Shape      []int // of the output
	Parameters int   // trained numbers
	// FLOPs of the forward pass: a multiplication and an addition count as two,
	// convolutions and linear layers alone are counted, as is usual.
	FLOPs int64
}

// Graph builds a network. Its first error sticks; from then on its methods
// return nil and do nothing. It is for one goroutine.
type Graph struct {
	mode   Mode
	err    error
	expr   *gorgonia.ExprGraph
	names  map[string]bool
	inputs []Variable
	params []Variable
	states []Variable
	output []Variable
	layers []Layer
	loss   *gorgonia.Node
	grads  gorgonia.Nodes
}

// NewGraph is an empty graph.
func NewGraph(mode Mode) *Graph {
	return &Graph{mode: mode, expr: gorgonia.NewGraph(gorgonia.WithGraphName("lockstep")), names: map[string]bool{}}
}

// Err is the first error that a method met.
func (g *Graph) Err() error { return g.err }

// Fail makes err the graph's error, when it is the first: for layers of one's own.
func (g *Graph) Fail(err error) {
	if g.err == nil {
		g.err = err
	}
}

// Mode is what the graph is for.
func (g *Graph) Mode() Mode { return g.mode }

// Expr is the gorgonia graph.
func (g *Graph) Expr() *gorgonia.ExprGraph { return g.expr }

// Inputs are the inputs in the order of their creation.
func (g *Graph) Inputs() []Variable { return slices.Clone(g.inputs) }

// Parameters are the parameters in the order of their creation.
func (g *Graph) Parameters() []Variable { return slices.Clone(g.params) }

// States are the running statistics in the order of their creation.
func (g *Graph) States() []Variable { return slices.Clone(g.states) }

// Outputs are the outputs in the order in which they were named.
func (g *Graph) Outputs() []Variable { return slices.Clone(g.output) }

// Layers are the layers in the order of their creation.
func (g *Graph) Layers() []Layer { return slices.Clone(g.layers) }

// Loss is the scalar to be minimised, nil without one.
func (g *Graph) Loss() *gorgonia.Node { return g.loss }

// ParameterCount is the number of trained numbers.
func (g *Graph) ParameterCount() int {
	n := 0
	for _, p := range g.params {
		n += p.Elements()
	}
	return n
}

// Input is a tensor that is set before each step.
func (g *Graph) Input(name string, shape ...int) *gorgonia.Node {
	return g.variable(&g.inputs, "input", name, nil, shape)
}

// Parameter is a trained tensor with its initial values.
func (g *Graph) Parameter(name string, init Initializer, shape ...int) *gorgonia.Node {
	return g.variable(&g.params, "parameter", name, init, shape)
}

// State is a tensor that persists and is not trained, such as a running mean.
func (g *Graph) State(name string, init Initializer, shape ...int) *gorgonia.Node {
	return g.variable(&g.states, "state", name, init, shape)
}

func (g *Graph) variable(list *[]Variable, what, name string, init Initializer, shape []int) (n *gorgonia.Node) {
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
	defer guard(&err, "add %s %q", what, name)
	switch {
	case name == "":
		err = fmt.Errorf("add %s: it has no name", what)
	case g.names[name]:
		// gorgonia takes inputs of one name for one node.
		err = fmt.Errorf("add %s %q: the name is taken: give each layer its own", what, name)
	case init == nil && what != "input":
		err = fmt.Errorf("add %s %q: it has no initialiser", what, name)
	case len(shape) == 0 || slices.Min(shape) < 1:
		err = fmt.Errorf("add %s %q: shape %v must have at least one dimension, each at least 1", what, name, shape)
	}
	if err != nil {
		return nil
	}
	g.names[name] = true
	n = gorgonia.NewTensor(g.expr, gorgonia.Float32, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name))
	*list = append(*list, Variable{Name: name, Shape: slices.Clone(shape), Node: n, Init: init})
	return n
}

// Output names a result that is read after a step. It returns n.
func (g *Graph) Output(name string, n *gorgonia.Node) *gorgonia.Node {
	if g.err != nil {
		return nil
	}
	if _, ok := CallOf(n); !ok {
		g.Fail(fmt.Errorf("name output %q: it is not the result of an operation", name))
		return nil
	}
	for _, o := range g.output {
		if o.Name == name || o.Node == n {
			g.Fail(fmt.Errorf("name output %q: the name or its tensor is taken by output %q", name, o.Name))
			return nil
		}
	}
	g.output = append(g.output, Variable{Name: name, Shape: slices.Clone(n.Shape()), Node: n})
	return n
}

// SetLoss makes the scalar n what training minimises.
func (g *Graph) SetLoss(n *gorgonia.Node) {
	switch {
	case g.err != nil:
	case n == nil || n.Dims() != 0:
		g.Fail(errors.New("set loss: it must be a scalar, such as BCEWithLogits gives"))
	case g.loss != nil:
		g.Fail(errors.New("set loss: the graph has one already"))
	default:
		g.loss = n
	}
}

// differentiating serialises gorgonia.Grad, which writes to a constant that it
// shares between all graphs of the process.
var differentiating sync.Mutex

// Gradients are the derivatives of the loss with respect to each parameter, in
// the order of Parameters. They are added to the graph once; later calls
// return the same nodes.
func (g *Graph) Gradients() (grads gorgonia.Nodes, err error) {
	defer guard(&err, "differentiate the loss")
	switch {
	case g.err != nil:
		return nil, g.err
	case g.grads != nil:
		return g.grads, nil
	case g.mode != Train:
		return nil, fmt.Errorf("differentiate the loss: the graph is for %s: build it with nn.Train", g.mode)
	case g.loss == nil:
		return nil, errors.New("differentiate the loss: there is none: call SetLoss")
	case len(g.params) == 0:
		return nil, errors.New("differentiate the loss: the graph has no parameters")
	}
	reached := g.reachable()
	wrt := make(gorgonia.Nodes, len(g.params))
	for i, p := range g.params {
		if !reached[p.Node] {
			return nil, fmt.Errorf("differentiate the loss: parameter %q does not influence it: use the layer or leave it out", p.Name)
		}
		wrt[i] = p.Node
	}
	differentiating.Lock()
	defer differentiating.Unlock()
	if grads, err = gorgonia.Grad(g.loss, wrt...); err != nil {
		return nil, fmt.Errorf("differentiate the loss: %w", err)
	}
	g.grads = grads
	return grads, nil
}

// reachable are the nodes that the loss is computed from.
func (g *Graph) reachable() map[*gorgonia.Node]bool {
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

// Operands are the inputs of n's operation, in order, duplicates kept.
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

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
