package nn

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
)

// Conv2D is a convolution layer with out channels and a kernel×kernel window:
// parameters name.weight [out,c,kernel,kernel] and, with bias, name.bias [out],
// initialised as PyTorch does (KaimingUniform).
func (g *Graph) Conv2D(name string, x *gorgonia.Node, out, kernel, stride, pad int, bias bool) *gorgonia.Node {
	in, ok := g.channels(name, x, out, kernel)
	if !ok {
		return nil
	}
	fan := KaimingUniform(in * kernel * kernel)
	w := g.Parameter(name+".weight", fan, out, in, kernel, kernel)
	var b *gorgonia.Node
	if bias {
		b = g.Parameter(name+".bias", fan, out)
	}
	if g.err != nil {
		return nil
	}
	y, err := Conv2D(x, w, b, stride, pad)
	return g.layer(name, "Conv2D", y, err, params(w, b))
}

// ConvTranspose2D is a transposed convolution with out channels and a
// kernel×kernel window: parameters name.weight [c,out,kernel,kernel] and, with
// bias, name.bias [out]. As in PyTorch, the fan-in of the initialisation is
// out·kernel².
func (g *Graph) ConvTranspose2D(name string, x *gorgonia.Node, out, kernel, stride, pad int, bias bool) *gorgonia.Node {
	in, ok := g.channels(name, x, out, kernel)
	if !ok {
		return nil
	}
	fan := KaimingUniform(out * kernel * kernel)
	w := g.Parameter(name+".weight", fan, in, out, kernel, kernel)
	var b *gorgonia.Node
	if bias {
		b = g.Parameter(name+".bias", fan, out)
	}
	if g.err != nil {
		return nil
	}
	y, err := ConvTranspose2D(x, w, b, stride, pad)
	return g.layer(name, "ConvTranspose2D", y, err, params(w, b))
}

// BatchNorm is a batch norm layer over the channels of x [n,c,h,w]: parameters
// name.weight (gamma, 1) and name.bias (beta, 0), states name.running_mean (0)
// and name.running_var (1), each [c].
func (g *Graph) BatchNorm(name string, x *gorgonia.Node) *gorgonia.Node {
	c, ok := g.channels(name, x, 1, 1)
	if !ok {
		return nil
	}
	gamma := g.Parameter(name+".weight", Constant(1), c)
	beta := g.Parameter(name+".bias", Constant(0), c)
	mean := g.State(name+".running_mean", Constant(0), c)
	variance := g.State(name+".running_var", Constant(1), c)
	if g.err != nil {
		return nil
	}
	y, err := BatchNorm(x, gamma, beta, mean, variance, g.mode)
	return g.layer(name, "BatchNorm", y, err, params(gamma, beta))
}

// ReLU is max(0, x).
func (g *Graph) ReLU(x *gorgonia.Node) *gorgonia.Node {
	return g.plain("ReLU", func() (*gorgonia.Node, error) { return ReLU(x) })
}

// MaxPool2D is the maximum over kernel×kernel windows, stride apart.
func (g *Graph) MaxPool2D(x *gorgonia.Node, kernel, stride int) *gorgonia.Node {
	return g.plain("MaxPool2D", func() (*gorgonia.Node, error) { return MaxPool2D(x, kernel, stride) })
}

// Concat puts the channels of b after those of a.
func (g *Graph) Concat(a, b *gorgonia.Node) *gorgonia.Node {
	return g.plain("Concat", func() (*gorgonia.Node, error) { return Concat(a, b) })
}

// Add is a + b.
func (g *Graph) Add(a, b *gorgonia.Node) *gorgonia.Node {
	return g.plain("Add", func() (*gorgonia.Node, error) { return Add(a, b) })
}

// BCEWithLogits is the mean binary cross-entropy of logits z and targets t.
func (g *Graph) BCEWithLogits(z, t *gorgonia.Node) *gorgonia.Node {
	return g.plain("BCEWithLogits", func() (*gorgonia.Node, error) { return BCEWithLogits(z, t) })
}

// channels verifies the arguments that layers with parameters share, and
// returns the channels of x.
func (g *Graph) channels(name string, x *gorgonia.Node, out, kernel int) (int, bool) {
	switch {
	case g.err != nil:
		return 0, false
	case x == nil:
		g.Fail(fmt.Errorf("layer %q: %w", name, errNilNode))
	case x.Dims() != 4:
		g.Fail(fmt.Errorf("layer %q: input has shape %v: 4 dimensions (%s) are needed", name, x.Shape(), order(4)))
	case out < 1 || kernel < 1:
		g.Fail(fmt.Errorf("layer %q: output channels %d and kernel %d must be at least 1", name, out, kernel))
	default:
		return x.Shape()[1], true
	}
	return 0, false
}

// plain adds a layer without parameters, numbered within its kind.
func (g *Graph) plain(kind string, make func() (*gorgonia.Node, error)) *gorgonia.Node {
	if g.err != nil {
		return nil
	}
	count := 0
	for _, l := range g.layers {
		if l.Kind == kind {
			count++
		}
	}
	y, err := make()
	return g.layer(fmt.Sprintf("%s.%d", lowerKind(kind), count), kind, y, err, 0)
}

// layer records a layer and gives its name to the operation.
func (g *Graph) layer(name, kind string, y *gorgonia.Node, err error, parameters int) *gorgonia.Node {
	if err != nil {
		g.Fail(fmt.Errorf("layer %q: %w", name, err))
		return nil
	}
	y.Op().(*operation).layer = name
	g.layers = append(g.layers, Layer{Name: name, Kind: kind, Shape: slices.Clone(y.Shape()), Parameters: parameters, FLOPs: g.flops(y)})
	return y
}

// flops counts the forward operations of a node.
func (g *Graph) flops(y *gorgonia.Node) int64 {
	in := Operands(g.expr, y)
	c := mustCall(y)
	if c.Kind != KindConv && c.Kind != KindConvTranspose {
		return 0
	}
	// Each weight meets each pixel of a map once: of the output's for a
	// convolution, of the input's for a transposed one.
	pixels := y.Shape()
	if c.Kind == KindConvTranspose {
		pixels = in[0].Shape()
	}
	return 2 * int64(elements(in[1].Shape())) * int64(pixels[0]*pixels[2]*pixels[3])
}

func lowerKind(kind string) string {
	return map[string]string{"ReLU": "relu", "MaxPool2D": "pool", "Concat": "concat", "Add": "add", "BCEWithLogits": "loss"}[kind]
}

// params counts the numbers in the given parameters.
func params(nodes ...*gorgonia.Node) int {
	n := 0
	for _, p := range present(nodes...) {
		n += elements(p.Shape())
	}
	return n
}
