package nn

import (
	"fmt"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"
)

// Convolution says which convolution a layer is. Kernel, Stride and Pad have a
// number for each spatial dimension, or one for all.
type Convolution struct {
	Out    int   // channels of the result
	Kernel []int // size of the window
	Stride []int // nil: 1
	Pad    []int // zeros on each side; nil: 0
	Bias   bool
	// Weight and BiasInit give the initial values; nil is what PyTorch's layers
	// start with, KaimingUniform of the fan-in.
	Weight, BiasInit Scheme
}

// Conv is a convolution layer on images [n,c,h,w] or volumes [n,c,d,h,w]:
// parameters name.weight [out,c,kernel…] and, with bias, name.bias [out].
func (g *Graph) Conv(name string, x *gorgonia.Node, c Convolution) *gorgonia.Node {
	return g.convolution(name, "Conv", x, c, Conv, false)
}

// ConvTranspose is a transposed convolution layer on images or volumes:
// parameters name.weight [c,out,kernel…] and, with bias, name.bias [out]. As in
// PyTorch and Keras, its fan-in is out·kernel….
func (g *Graph) ConvTranspose(name string, x *gorgonia.Node, c Convolution) *gorgonia.Node {
	return g.convolution(name, "ConvTranspose", x, c, ConvTranspose, true)
}

// Conv2D is Conv on images with a kernel×kernel window, initialised as PyTorch
// does.
func (g *Graph) Conv2D(name string, x *gorgonia.Node, out, kernel, stride, pad int, bias bool) *gorgonia.Node {
	return g.Conv(name, x, square(out, kernel, stride, pad, bias))
}

// ConvTranspose2D is ConvTranspose on images with a kernel×kernel window,
// initialised as PyTorch does.
func (g *Graph) ConvTranspose2D(name string, x *gorgonia.Node, out, kernel, stride, pad int, bias bool) *gorgonia.Node {
	return g.ConvTranspose(name, x, square(out, kernel, stride, pad, bias))
}

func square(out, kernel, stride, pad int, bias bool) Convolution {
	return Convolution{Out: out, Kernel: []int{kernel}, Stride: []int{stride}, Pad: []int{pad}, Bias: bias}
}

func (g *Graph) convolution(name, kind string, x *gorgonia.Node, c Convolution, make func(x, w, b *gorgonia.Node, stride, pad []int) (*gorgonia.Node, error), transposed bool) *gorgonia.Node {
	in, ok := g.channels(name, x, feature, c.Out)
	if !ok {
		return nil
	}
	spatial := x.Dims() - 2
	kernel := c.Kernel
	if len(kernel) == 0 {
		g.Fail(fmt.Errorf("layer %q: the window has no size: set Kernel", name))
		return nil
	}
	kernel, err := each(fmt.Sprintf("layer %q", name), "kernel", kernel, spatial, 0, 1)
	if err != nil {
		g.Fail(err)
		return nil
	}
	shape := append([]int{c.Out, in}, kernel...)
	if transposed {
		shape[0], shape[1] = in, c.Out
	}
	w, b := g.weights(name, shape, c.Out, c.Bias, c.Weight, c.BiasInit)
	if g.err != nil {
		return nil
	}
	y, err := make(x, w, b, c.Stride, c.Pad)
	return g.layer(name, fmt.Sprintf("%s%dD", kind, spatial), y, err, params(w, b))
}

// weights makes a layer's weight of shape [a,b,window…] and, with bias, its bias
// [out]. PyTorch and Keras count b·window as the inputs of an output, a·window
// as the outputs of an input.
func (g *Graph) weights(name string, shape []int, out int, bias bool, weight, biasInit Scheme) (w, b *gorgonia.Node) {
	window := elements(shape[2:])
	initial := func(s Scheme) Initializer {
		if s == nil {
			s = torchUniform
		}
		return s(shape[1]*window, shape[0]*window)
	}
	w = g.Parameter(name+".weight", initial(weight), shape...)
	if bias {
		b = g.Parameter(name+".bias", initial(biasInit), out)
	}
	return w, b
}

// Dense says which linear layer.
type Dense struct {
	Out  int // features of the result
	Bias bool
	// Weight and BiasInit give the initial values; nil is what PyTorch's layers
	// start with, KaimingUniform of the fan-in.
	Weight, BiasInit Scheme
}

// Linear is a linear layer (fully connected, dense) on x [n,k] → [n,out]:
// parameters name.weight [out,k] and, with bias, name.bias [out].
func (g *Graph) Linear(name string, x *gorgonia.Node, d Dense) *gorgonia.Node {
	in, ok := g.channels(name, x, 2, d.Out)
	if !ok {
		return nil
	}
	w, b := g.weights(name, []int{d.Out, in}, d.Out, d.Bias, d.Weight, d.BiasInit)
	if g.err != nil {
		return nil
	}
	y, err := Linear(x, w, b)
	return g.layer(name, "Linear", y, err, params(w, b))
}

// BatchNorm is a batch norm layer over the channels of x [n,c,h,w] or
// [n,c,d,h,w], with PyTorch's constants: parameters name.weight (gamma, 1) and
// name.bias (beta, 0), states name.running_mean (0) and name.running_var (1),
// each [c].
func (g *Graph) BatchNorm(name string, x *gorgonia.Node) *gorgonia.Node {
	return g.BatchNormWith(name, x, BatchNormEpsilon, BatchNormMomentum)
}

// BatchNormWith is BatchNorm with constants of one's own: epsilon is added to
// the variance, momentum is the weight of the batch in the running statistics
// (Keras' 0.99, the weight of what was, is 0.01 here).
func (g *Graph) BatchNormWith(name string, x *gorgonia.Node, epsilon, momentum float64) *gorgonia.Node {
	c, ok := g.channels(name, x, feature, 1)
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
	y, err := BatchNormWith(x, gamma, beta, mean, variance, g.mode, epsilon, momentum)
	return g.layer(name, "BatchNorm", y, err, params(gamma, beta))
}

// ReLU is max(0, x).
func (g *Graph) ReLU(x *gorgonia.Node) *gorgonia.Node {
	return g.plain("ReLU", func() (*gorgonia.Node, error) { return ReLU(x) })
}

// LeakyReLU is x where x > 0, slope·x elsewhere.
func (g *Graph) LeakyReLU(x *gorgonia.Node, slope float64) *gorgonia.Node {
	return g.plain("LeakyReLU", func() (*gorgonia.Node, error) { return LeakyReLU(x, slope) })
}

// Tanh is the hyperbolic tangent.
func (g *Graph) Tanh(x *gorgonia.Node) *gorgonia.Node {
	return g.plain("Tanh", func() (*gorgonia.Node, error) { return Tanh(x) })
}

// MaxPool is the maximum over windows of an image or volume.
func (g *Graph) MaxPool(x *gorgonia.Node, p Pool) *gorgonia.Node {
	return g.plain(ranked("MaxPool", x), func() (*gorgonia.Node, error) { return MaxPool(x, p) })
}

// MaxPool2D is the maximum over kernel×kernel windows, stride apart.
func (g *Graph) MaxPool2D(x *gorgonia.Node, kernel, stride int) *gorgonia.Node {
	return g.MaxPool(x, Pool{Kernel: []int{kernel}, Stride: []int{stride}})
}

// AvgPool is the mean over windows of an image or volume.
func (g *Graph) AvgPool(x *gorgonia.Node, p Pool) *gorgonia.Node {
	return g.plain(ranked("AvgPool", x), func() (*gorgonia.Node, error) { return AvgPool(x, p) })
}

// GlobalAvgPool is the mean of each channel: [n,c,…] → [n,c].
func (g *Graph) GlobalAvgPool(x *gorgonia.Node) *gorgonia.Node {
	return g.plain("GlobalAvgPool", func() (*gorgonia.Node, error) { return GlobalAvgPool(x) })
}

// Flatten puts each sample's elements in a row: [n,…] → [n,product].
func (g *Graph) Flatten(x *gorgonia.Node) *gorgonia.Node {
	return g.plain("Flatten", func() (*gorgonia.Node, error) { return Flatten(x) })
}

// ZeroPad puts zeros before and after each spatial dimension.
func (g *Graph) ZeroPad(x *gorgonia.Node, before, after []int) *gorgonia.Node {
	return g.plain("ZeroPad", func() (*gorgonia.Node, error) { return ZeroPad(x, before, after) })
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

// DiceBCE is weight times the soft Dice loss of logits z and targets t plus
// (1−weight) times their binary cross-entropy.
func (g *Graph) DiceBCE(z, t *gorgonia.Node, weight float64) *gorgonia.Node {
	return g.plain("DiceBCE", func() (*gorgonia.Node, error) { return DiceBCE(z, t, weight) })
}

// SoftmaxCrossEntropy is the mean cross-entropy of logits z [n,classes] and the
// indexes t [n,1] of the classes, an input, with label smoothing (0: none).
func (g *Graph) SoftmaxCrossEntropy(z, t *gorgonia.Node, smoothing float64) *gorgonia.Node {
	return g.plain("SoftmaxCrossEntropy", func() (*gorgonia.Node, error) { return SoftmaxCrossEntropy(z, t, smoothing) })
}

// L1 is the mean absolute error of y and t, with expWeight times that of their
// exponentials in channel 0 (0: none; see the function L1).
func (g *Graph) L1(y, t *gorgonia.Node, expWeight float64) *gorgonia.Node {
	return g.plain("L1", func() (*gorgonia.Node, error) { return L1(y, t, expWeight) })
}

// channels verifies the arguments that layers with parameters share, and
// returns the channels (or features) of x, which has dims dimensions.
func (g *Graph) channels(name string, x *gorgonia.Node, dims, out int) (int, bool) {
	switch {
	case g.err != nil:
		return 0, false
	case x == nil:
		g.Fail(fmt.Errorf("layer %q: %w", name, errNilNode))
	case !fits(x.Dims(), dims):
		g.Fail(fmt.Errorf("layer %q: input has shape %v: %s are needed", name, x.Shape(), order(dims)))
	case out < 1:
		g.Fail(fmt.Errorf("layer %q: output channels are %d: use at least 1", name, out))
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

// ranked is a kind with the number of spatial dimensions behind it: MaxPool2D.
func ranked(kind string, x *gorgonia.Node) string {
	if x == nil || x.Dims() < 3 {
		return kind
	}
	return fmt.Sprintf("%s%dD", kind, x.Dims()-2)
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
	switch mustCall(y).Kind {
	case KindConv, KindLinear:
		// Each weight meets each position of the result once, in each sample.
		return 2 * int64(elements(in[1].Shape())) * int64(elements(y.Shape())/y.Shape()[1])
	case KindConvTranspose:
		x := in[0].Shape()
		return 2 * int64(elements(in[1].Shape())) * int64(elements(x)/x[1])
	}
	return 0
}

// lowerKind begins the name of a layer without parameters.
func lowerKind(kind string) string {
	switch kind {
	case "MaxPool2D", "MaxPool3D", "MaxPool":
		return "pool"
	case "AvgPool2D", "AvgPool3D", "AvgPool":
		return "avgpool"
	case "BCEWithLogits", "DiceBCE", "SoftmaxCrossEntropy", "L1":
		return "loss"
	}
	return strings.ToLower(kind)
}

// params counts the numbers in the given parameters.
func params(nodes ...*gorgonia.Node) int {
	n := 0
	for _, p := range present(nodes...) {
		n += elements(p.Shape())
	}
	return n
}
