package nn

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"slices"

	"github.com/chewxy/hm"
	_ "go4.org/unsafe/assume-no-moving-gc" // gorgonia's dependencies refuse to start on today's Go with an older version of it.
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Kind names an operation. The gradients' operations have kinds of their own:
// together they are what an engine must be able to run.
type Kind string

// The operations.
const (
	KindConv                         Kind = "conv"
	KindConvBackwardData             Kind = "conv_backward_data"
	KindConvBackwardWeights          Kind = "conv_backward_weights"
	KindConvTranspose                Kind = "conv_transpose"
	KindConvTransposeBackwardData    Kind = "conv_transpose_backward_data"
	KindConvTransposeBackwardWeights Kind = "conv_transpose_backward_weights"
	KindBiasBackward                 Kind = "bias_backward"
	KindBatchNorm                    Kind = "batch_norm"
	KindBatchNormBackward            Kind = "batch_norm_backward"
	KindReLU                         Kind = "relu"
	KindReLUBackward                 Kind = "relu_backward"
	KindMaxPool                      Kind = "max_pool"
	KindMaxPoolBackward              Kind = "max_pool_backward"
	KindConcat                       Kind = "concat"
	KindSlice                        Kind = "slice"
	KindAdd                          Kind = "add"
	KindBCEWithLogits                Kind = "bce_with_logits"
	KindBCEWithLogitsBackward        Kind = "bce_with_logits_backward"

	KindAvgPool               Kind = "avg_pool"
	KindAvgPoolBackward       Kind = "avg_pool_backward"
	KindGlobalAvgPool         Kind = "global_avg_pool"
	KindGlobalAvgPoolBackward Kind = "global_avg_pool_backward"
	KindLinear                Kind = "linear"
	KindLinearBackwardData    Kind = "linear_backward_data"
	KindLinearBackwardWeights Kind = "linear_backward_weights"
	KindReshape               Kind = "reshape"
	KindPad                   Kind = "pad"
	KindPadBackward           Kind = "pad_backward"
	KindLeakyReLU             Kind = "leaky_relu"
	KindLeakyReLUBackward     Kind = "leaky_relu_backward"
	KindTanh                  Kind = "tanh"
	KindTanhBackward          Kind = "tanh_backward"

	KindSoftmaxCrossEntropy         Kind = "softmax_cross_entropy"
	KindSoftmaxCrossEntropyBackward Kind = "softmax_cross_entropy_backward"
	KindDiceBCE                     Kind = "dice_bce"
	KindDiceBCEBackward             Kind = "dice_bce_backward"
	KindL1                          Kind = "l1"
	KindL1Backward                  Kind = "l1_backward"
)

// Attr holds the constants of an operation; those that its Kind has no use for
// are zero.
type Attr struct {
	Kernel, Stride, Pad []int   // a number a spatial dimension
	PadEnd              []int   // pad: behind each spatial dimension, where Pad is in front
	PadZeros            bool    // max pool: the padding is zeros that take part, not −∞
	Offset              int     // first channel of a slice
	Training            bool    // batch norm: statistics of the batch
	Epsilon, Momentum   float64 // batch norm
	Slope               float64 // leaky ReLU: of the negative side
	Smoothing           float64 // softmax cross-entropy: of the labels
	ExpWeight           float64 // l1: of the term on e^{14x}
	DiceWeight          float64 // dice bce: of the Dice term
	// Result says which one of several results a node stands for: gorgonia's
	// nodes have one value each, so the gradient of batch norm is three nodes.
	Result int
}

// Call describes a node of one of this package's operations to whoever lowers
// the graph.
type Call struct {
	Kind  Kind
	Attr  Attr
	Layer string // name of the layer, "" where none was given
	// Of is the id of the forward node whose gradient this operation computes a
	// part of, −1 for an operation of the forward pass.
	Of int64
}

// CallOf describes n; false when n is not a node of this package's operations
// (an input, a constant, or an operation of gorgonia's own).
func CallOf(n *gorgonia.Node) (Call, bool) {
	if n == nil {
		return Call{}, false
	}
	o, ok := n.Op().(*operation)
	if !ok {
		return Call{}, false
	}
	return Call{Kind: o.kind, Attr: o.attr, Layer: o.layer, Of: o.of}, true
}

// gradient builds the nodes of the derivatives with respect to each input; nil
// for an input that has none.
type gradient func(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error)

// operation is gorgonia's Op and SDOp for every operation of this package. The
// result's shape is worked out and checked before it is made, since all shapes
// are static.
type operation struct {
	kind  Kind
	attr  Attr
	layer string
	of    int64
	// id is unique in the graph and part of the hash. gorgonia merges nodes of
	// equal hash: two batch norms, which have a state each, must stay two, and
	// it does not compare the inputs of nodes whose 32-bit hashes collide.
	id    int
	shape tensor.Shape
	dims  []int // of the inputs
	grad  gradient
	wrt   []bool // inputs that have a derivative; nil: all, when grad is set
}

var (
	_ gorgonia.Op   = (*operation)(nil)
	_ gorgonia.SDOp = (*operation)(nil)
)

func (o *operation) Arity() int { return len(o.dims) }

// Type is the operation's type for gorgonia's inference: tensors of fixed
// numbers of dimensions over one type of number.
func (o *operation) Type() hm.Type {
	of := hm.TypeVariable('a')
	typ := func(dims int) hm.Type {
		if dims == 0 {
			return of
		}
		return gorgonia.TensorType{Dims: dims, Of: of}
	}
	var all []hm.Type
	for _, d := range o.dims {
		all = append(all, typ(d))
	}
	return hm.NewFnType(append(all, typ(len(o.shape)))...)
}

func (o *operation) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	return o.shape.Clone(), nil
}

func (o *operation) Do(...gorgonia.Value) (gorgonia.Value, error) {
	return nil, fmt.Errorf("run %s: gorgonia's machines cannot run this operation: lower the graph and run it on an engine (package engine)", o.kind)
}

func (o *operation) ReturnsPtr() bool     { return false }
func (o *operation) CallsExtern() bool    { return false }
func (o *operation) OverwritesInput() int { return -1 }

func (o *operation) WriteHash(h hash.Hash) { fmt.Fprintf(h, "%s#%d", o.kind, o.id) }

func (o *operation) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

func (o *operation) String() string { return fmt.Sprintf("%s#%d", o.kind, o.id) }

func (o *operation) DiffWRT(inputs int) []bool {
	switch {
	case o.grad == nil:
		return make([]bool, inputs)
	case o.wrt != nil:
		return o.wrt
	}
	return slices.Repeat([]bool{true}, inputs)
}

func (o *operation) SymDiff(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	if o.grad == nil {
		return nil, fmt.Errorf("differentiate %s: it has no gradient", o.kind)
	}
	return o.grad(in, out, grad)
}

// errNilNode is what an operation says of an input that an earlier error left out.
var errNilNode = errors.New("an input is missing (nil)")

// apply adds an operation to the graph of its inputs. gorgonia panics on some
// misuse; here that is an error.
func apply(o *operation, in ...*gorgonia.Node) (n *gorgonia.Node, err error) {
	defer guard(&err, "add %s to the graph", o.kind)
	o.dims = make([]int, len(in))
	for i, c := range in {
		o.dims[i] = c.Dims()
	}
	o.id = len(in[0].Graph().AllNodes())
	if n, err = gorgonia.ApplyOp(o, in...); err != nil {
		return nil, fmt.Errorf("add %s to the graph: %w", o.kind, err)
	}
	return n, nil
}

// backward adds an operation that computes part of the gradient of the forward
// node out, with a result of the shape of like.
func backward(kind Kind, attr Attr, out, like *gorgonia.Node, in ...*gorgonia.Node) (*gorgonia.Node, error) {
	o := &operation{kind: kind, attr: attr, of: out.ID(), shape: like.Shape().Clone()}
	if c, ok := CallOf(out); ok {
		o.layer = c.Layer
	}
	return apply(o, in...)
}

// guard turns a panic into an error: nothing may panic across a notebook's cell.
func guard(err *error, format string, args ...any) {
	if r := recover(); r != nil {
		*err = fmt.Errorf(format+": gorgonia: %v", append(args, r)...)
	}
}

// operand is an input with the number of dimensions that an operation asks of it.
type operand struct {
	name string
	node *gorgonia.Node
	dims int // or feature, or several
}

// Numbers of dimensions that are more than one number.
const (
	feature = -1 // 4 or 5: an image's or a volume's feature map
	several = -2 // at least 2: a batch of anything
)

// check verifies that every operand is there and has its number of dimensions.
func check(op string, operands ...operand) error {
	for _, v := range operands {
		if v.node == nil {
			return fmt.Errorf("%s: %s: %w", op, v.name, errNilNode)
		}
		if !fits(v.node.Dims(), v.dims) {
			return fmt.Errorf("%s: %s has shape %v: %s are needed", op, v.name, v.node.Shape(), order(v.dims))
		}
		if v.node.Graph() != operands[0].node.Graph() {
			return fmt.Errorf("%s: %s belongs to another graph than %s", op, v.name, operands[0].name)
		}
	}
	return nil
}

// fits says whether a number of dimensions is what is asked for.
func fits(dims, want int) bool {
	switch want {
	case feature:
		return dims == 4 || dims == 5
	case several:
		return dims >= 2
	}
	return dims == want
}

// order says how many dimensions are needed and what they mean, for error messages.
func order(dims int) string {
	switch dims {
	case 1:
		return "1 dimensions (channels)"
	case 2:
		return "2 dimensions (batch, features)"
	case feature:
		return "4 dimensions (batch, channels, height, width) or 5 (with depth before height)"
	case several:
		return "at least 2 dimensions (batch first)"
	}
	return fmt.Sprintf("%d dimensions (channels of both sides, window)", dims)
}
