package nn

import (
	"fmt"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"
)

// Convolution configures a convolution layer. Kernel, Stride and Pad contain one number
// per spatial dimension, or one for all.
type Convolution struct {
	Out    int   // output channels
	Kernel []int // size of the window
	Stride []int // nil: 1
	Pad    []int // zeros on each side; nil: 0
	Bias   bool
	// Weight and BiasInit compute the initial values; nil selects PyTorch's default,
	// KaimingUniform of the fan-in.
	Weight, BiasInit Scheme
}

// Conv adds a convolution layer on images [n,c,h,w] or volumes [n,c,d,h,w]. Its
// parameters are name.weight [out,c,kernel…] and, if c.Bias is set, name.bias [out].
func (g *Graph) Conv(name string, x *gorgonia.Node, c Convolution) *gorgonia.Node {
	return g.addConvolution(name, "Conv", x, c, Conv, false)
}

// ConvTranspose adds a transposed convolution layer on images or volumes. Its parameters
// are name.weight [c,out,kernel…] and, if c.Bias is set, name.bias [out]. As in PyTorch
// and Keras, its fan-in is out·kernel….
func (g *Graph) ConvTranspose(name string, x *gorgonia.Node, c Convolution) *gorgonia.Node {
	return g.addConvolution(name, "ConvTranspose", x, c, ConvTranspose, true)
}

// Conv2D adds a convolution layer on images with a kernel×kernel window and PyTorch's
// initial values.
func (g *Graph) Conv2D(name string, x *gorgonia.Node, out, kernel, stride, pad int, bias bool) *gorgonia.Node {
	return g.Conv(name, x, squareConvolution(out, kernel, stride, pad, bias))
}

// ConvTranspose2D adds a transposed convolution layer on images with a kernel×kernel
// window and PyTorch's initial values.
func (g *Graph) ConvTranspose2D(name string, x *gorgonia.Node, out, kernel, stride, pad int, bias bool) *gorgonia.Node {
	return g.ConvTranspose(name, x, squareConvolution(out, kernel, stride, pad, bias))
}

func squareConvolution(out, kernel, stride, pad int, bias bool) Convolution {
	return Convolution{Out: out, Kernel: []int{kernel}, Stride: []int{stride}, Pad: []int{pad}, Bias: bias}
}

// addConvolution adds a layer with a weight and, if c.Bias is set, a bias. apply adds the layer's
// operation to the graph. The weight has the shape [out,in,kernel…], or [in,out,kernel…] if
// transposed is set.
func (g *Graph) addConvolution(name, kind string, x *gorgonia.Node, c Convolution, apply func(x, w, b *gorgonia.Node, stride, pad []int) (*gorgonia.Node, error), transposed bool) *gorgonia.Node {
	in, ok := g.validatedInputChannels(name, x, imageOrVolume, c.Out)
	if !ok {
		return nil
	}
	spatial := x.Dims() - 2
	kernel := c.Kernel
	if len(kernel) == 0 {
		g.Fail(fmt.Errorf("layer %q: window size is missing: set Kernel", name))
		return nil
	}
	kernel, err := expandPerDimension(fmt.Sprintf("layer %q", name), "kernel", kernel, spatial, 0, 1)
	if err != nil {
		g.Fail(err)
		return nil
	}
	shape := append([]int{c.Out, in}, kernel...)
	if transposed {
		shape[0], shape[1] = in, c.Out
	}
	w, b := g.addLayerParameters(name, shape, c.Out, c.Bias, c.Weight, c.BiasInit)
	if g.err != nil {
		return nil
	}
	y, err := apply(x, w, b, c.Stride, c.Pad)
	return g.addLayer(name, fmt.Sprintf("%s%dD", kind, spatial), y, err, countParameters(w, b))
}

// addLayerParameters adds the parameters of a layer: w with the given shape [a,c,window…] and b
// [out], which is nil if bias is not set. As in PyTorch and Keras, the fan-in is c·window
// and the fan-out a·window.
func (g *Graph) addLayerParameters(name string, shape []int, out int, bias bool, weight, biasInit Scheme) (w, b *gorgonia.Node) {
	window := elementCount(shape[2:])
	initial := func(s Scheme) Initializer {
		if s == nil {
			s = pytorchUniform
		}
		return s(shape[1]*window, shape[0]*window)
	}
	w = g.Parameter(name+".weight", initial(weight), shape...)
	if bias {
		b = g.Parameter(name+".bias", initial(biasInit), out)
	}
	return w, b
}

// Dense configures a linear layer.
type Dense struct {
	Out  int // output features
	Bias bool
	// Weight and BiasInit compute the initial values; nil selects PyTorch's default,
	// KaimingUniform of the fan-in.
	Weight, BiasInit Scheme
}

// Linear adds a linear (fully connected, dense) layer: x [n,k] → [n,out]. Its parameters
// are name.weight [out,k] and, if d.Bias is set, name.bias [out].
func (g *Graph) Linear(name string, x *gorgonia.Node, d Dense) *gorgonia.Node {
	in, ok := g.validatedInputChannels(name, x, 2, d.Out)
	if !ok {
		return nil
	}
	w, b := g.addLayerParameters(name, []int{d.Out, in}, d.Out, d.Bias, d.Weight, d.BiasInit)
	if g.err != nil {
		return nil
	}
	y, err := Linear(x, w, b)
	return g.addLayer(name, "Linear", y, err, countParameters(w, b))
}

// BatchNorm adds a batch norm layer over the channels of x [n,c,h,w] or [n,c,d,h,w], with
// PyTorch's constants. Its parameters are name.weight (gamma, initially 1) and name.bias
// (beta, initially 0); its states are name.running_mean (initially 0) and
// name.running_var (initially 1). Each has shape [c].
func (g *Graph) BatchNorm(name string, x *gorgonia.Node) *gorgonia.Node {
	return g.BatchNormWith(name, x, BatchNormEpsilon, BatchNormMomentum)
}

// BatchNormWith adds a batch norm layer with the given constants. epsilon is added to the
// variance. momentum is the weight of the batch in the running statistics; Keras'
// momentum is 1 minus this one.
func (g *Graph) BatchNormWith(name string, x *gorgonia.Node, epsilon, momentum float64) *gorgonia.Node {
	c, ok := g.validatedInputChannels(name, x, imageOrVolume, 1)
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
	return g.addLayer(name, "BatchNorm", y, err, countParameters(gamma, beta))
}

// ReLU adds a layer that computes max(0, x).
func (g *Graph) ReLU(x *gorgonia.Node) *gorgonia.Node {
	return g.addLayerWithoutParameters("ReLU", func() (*gorgonia.Node, error) { return ReLU(x) })
}

// LeakyReLU adds a layer that computes x if x > 0, else slope·x.
func (g *Graph) LeakyReLU(x *gorgonia.Node, slope float64) *gorgonia.Node {
	return g.addLayerWithoutParameters("LeakyReLU", func() (*gorgonia.Node, error) { return LeakyReLU(x, slope) })
}

// Tanh adds a layer that computes the hyperbolic tangent.
func (g *Graph) Tanh(x *gorgonia.Node) *gorgonia.Node {
	return g.addLayerWithoutParameters("Tanh", func() (*gorgonia.Node, error) { return Tanh(x) })
}

// MaxPool adds a layer that computes the maximum over windows of an image or volume.
func (g *Graph) MaxPool(x *gorgonia.Node, p Pool) *gorgonia.Node {
	return g.addLayerWithoutParameters(appendDimSuffix("MaxPool", x), func() (*gorgonia.Node, error) { return MaxPool(x, p) })
}

// MaxPool2D adds a layer that computes the maximum over kernel×kernel windows with the given
// stride.
func (g *Graph) MaxPool2D(x *gorgonia.Node, kernel, stride int) *gorgonia.Node {
	return g.MaxPool(x, Pool{Kernel: []int{kernel}, Stride: []int{stride}})
}

// AvgPool adds a layer that computes the mean over windows of an image or volume.
func (g *Graph) AvgPool(x *gorgonia.Node, p Pool) *gorgonia.Node {
	return g.addLayerWithoutParameters(appendDimSuffix("AvgPool", x), func() (*gorgonia.Node, error) { return AvgPool(x, p) })
}

// GlobalAvgPool adds a layer that computes the mean of each channel: [n,c,…] → [n,c].
func (g *Graph) GlobalAvgPool(x *gorgonia.Node) *gorgonia.Node {
	return g.addLayerWithoutParameters("GlobalAvgPool", func() (*gorgonia.Node, error) { return GlobalAvgPool(x) })
}

// Flatten adds a layer that reshapes each sample to one row: [n,…] → [n,product].
func (g *Graph) Flatten(x *gorgonia.Node) *gorgonia.Node {
	return g.addLayerWithoutParameters("Flatten", func() (*gorgonia.Node, error) { return Flatten(x) })
}

// ZeroPad adds a layer that inserts zeros before and after each spatial dimension.
func (g *Graph) ZeroPad(x *gorgonia.Node, before, after []int) *gorgonia.Node {
	return g.addLayerWithoutParameters("ZeroPad", func() (*gorgonia.Node, error) { return ZeroPad(x, before, after) })
}

// Concat adds a layer that appends the channels of b to the channels of a.
func (g *Graph) Concat(a, b *gorgonia.Node) *gorgonia.Node {
	return g.addLayerWithoutParameters("Concat", func() (*gorgonia.Node, error) { return Concat(a, b) })
}

// Add adds a layer that computes a + b.
func (g *Graph) Add(a, b *gorgonia.Node) *gorgonia.Node {
	return g.addLayerWithoutParameters("Add", func() (*gorgonia.Node, error) { return Add(a, b) })
}

// BCEWithLogits adds a loss, the mean binary cross-entropy of logits z and targets t.
func (g *Graph) BCEWithLogits(z, t *gorgonia.Node) *gorgonia.Node {
	return g.addLayerWithoutParameters("BCEWithLogits", func() (*gorgonia.Node, error) { return BCEWithLogits(z, t) })
}

// DiceBCE adds a loss, weight times the soft Dice loss of logits z and targets t, plus
// (1−weight) times their binary cross-entropy.
func (g *Graph) DiceBCE(z, t *gorgonia.Node, weight float64) *gorgonia.Node {
	return g.addLayerWithoutParameters("DiceBCE", func() (*gorgonia.Node, error) { return DiceBCE(z, t, weight) })
}

// SoftmaxCrossEntropy adds a loss, the mean cross-entropy of logits z [n,classes] and class
// indices t [n,1], with label smoothing (0 for none). t must be an input of the graph.
func (g *Graph) SoftmaxCrossEntropy(z, t *gorgonia.Node, smoothing float64) *gorgonia.Node {
	return g.addLayerWithoutParameters("SoftmaxCrossEntropy", func() (*gorgonia.Node, error) { return SoftmaxCrossEntropy(z, t, smoothing) })
}

// PixelCrossEntropy adds a loss, the cross-entropy of logits z [n,K,…] and class indices
// t [n,1,…] of pixels, optionally combined with soft Dice. t must be an input of the graph.
func (g *Graph) PixelCrossEntropy(z, t *gorgonia.Node, o PixelLoss) *gorgonia.Node {
	return g.addLayerWithoutParameters("PixelCrossEntropy", func() (*gorgonia.Node, error) { return PixelCrossEntropy(z, t, o) })
}

// L1 adds a loss, the mean absolute error of y and t, plus expWeight times the error of the
// exponentials of their channel 0 (see the function L1).
func (g *Graph) L1(y, t *gorgonia.Node, expWeight float64) *gorgonia.Node {
	return g.addLayerWithoutParameters("L1", func() (*gorgonia.Node, error) { return L1(y, t, expWeight) })
}

// validatedInputChannels checks arguments that all layers with parameters have. It returns the
// number of channels (or features) of x, and false after an error. x must have dims
// dimensions; out is the number of output channels.
func (g *Graph) validatedInputChannels(name string, x *gorgonia.Node, dims, out int) (int, bool) {
	switch {
	case g.err != nil:
		return 0, false
	case x == nil:
		g.Fail(fmt.Errorf("layer %q: %w", name, errNilNode))
	case !dimsMatch(x.Dims(), dims):
		g.Fail(fmt.Errorf("layer %q: input has shape %v, want %s", name, x.Shape(), describeDims(dims)))
	case out < 1:
		g.Fail(fmt.Errorf("layer %q: got %d output channels, want at least 1", name, out))
	default:
		return x.Shape()[1], true
	}
	return 0, false
}

// addLayerWithoutParameters adds a layer; apply adds its operation to the graph. The layer's name
// consists of its kind and the number of earlier layers of that kind, such as "relu.0".
func (g *Graph) addLayerWithoutParameters(kind string, apply func() (*gorgonia.Node, error)) *gorgonia.Node {
	if g.err != nil {
		return nil
	}
	count := 0
	for _, l := range g.layers {
		if l.Kind == kind {
			count++
		}
	}
	y, err := apply()
	return g.addLayer(fmt.Sprintf("%s.%d", layerNamePrefix(kind), count), kind, y, err, 0)
}

// appendDimSuffix appends the number of spatial dimensions of x to kind: "MaxPool" becomes
// "MaxPool2D".
func appendDimSuffix(kind string, x *gorgonia.Node) string {
	if x == nil || x.Dims() < 3 {
		return kind
	}
	return fmt.Sprintf("%s%dD", kind, x.Dims()-2)
}

// addLayer adds a layer with the output y to g.layers, stores the layer's name in the operation
// of y, and returns y. If err is not nil, the operation could not be added; addLayer then passes
// err to Fail and returns nil.
func (g *Graph) addLayer(name, kind string, y *gorgonia.Node, err error, parameters int) *gorgonia.Node {
	if err != nil {
		g.Fail(fmt.Errorf("layer %q: %w", name, err))
		return nil
	}
	y.Op().(*operation).layer = name
	g.layers = append(g.layers, Layer{Name: name, Kind: kind, Shape: slices.Clone(y.Shape()), Parameters: parameters, FLOPs: g.countLayerFLOPs(y)})
	return y
}

// countLayerFLOPs returns Layer.FLOPs of the layer that computes y.
func (g *Graph) countLayerFLOPs(y *gorgonia.Node) int64 {
	in := Operands(g.expr, y)
	switch mustOperationInfoOf(y).Kind {
	case KindConv, KindLinear:
		// Each weight is used once per output position and sample.
		return 2 * int64(elementCount(in[1].Shape())) * int64(elementCount(y.Shape())/y.Shape()[1])
	case KindConvTranspose:
		x := in[0].Shape()
		return 2 * int64(elementCount(in[1].Shape())) * int64(elementCount(x)/x[1])
	}
	return 0
}

// layerNamePrefix returns the first part of a layer's name, such as "relu" for kind ReLU.
func layerNamePrefix(kind string) string {
	switch kind {
	case "MaxPool2D", "MaxPool3D", "MaxPool":
		return "pool"
	case "AvgPool2D", "AvgPool3D", "AvgPool":
		return "avgpool"
	case "BCEWithLogits", "DiceBCE", "SoftmaxCrossEntropy", "PixelCrossEntropy", "L1":
		return "loss"
	}
	return strings.ToLower(kind)
}

// countParameters returns the total number of elements of nodes, some of which may be nil.
func countParameters(nodes ...*gorgonia.Node) int {
	n := 0
	for _, p := range removeNilNodes(nodes...) {
		n += elementCount(p.Shape())
	}
	return n
}
