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

// Kind is the name of an operation. The operations of the backward pass have separate
// kinds. An engine must be able to run every kind.
type Kind string

// Operations of this package.
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
	KindPixelCrossEntropy           Kind = "pixel_cross_entropy"
	KindPixelCrossEntropyBackward   Kind = "pixel_cross_entropy_backward"
	KindL1                          Kind = "l1"
	KindL1Backward                  Kind = "l1_backward"
)

// Attr contains the attributes of an operation. Attributes that do not apply to its Kind
// are zero.
type Attr struct {
	Kernel, Stride, Pad []int   // one number per spatial dimension
	PadEnd              []int   // pad: number of zeros after each spatial dimension; Pad is the number before it
	PadZeros            bool    // max pool: padding has the value 0 instead of −∞
	Offset              int     // slice: first channel
	Training            bool    // batch norm: use the statistics of the batch
	Epsilon, Momentum   float64 // batch norm
	Slope               float64 // leaky ReLU: factor for negative values
	Smoothing           float64 // softmax cross-entropy: label smoothing
	ExpWeight           float64 // l1: weight of the term on e^{14x}
	DiceWeight          float64 // dice bce, pixel cross-entropy: weight of the Dice term
	// ClassWeights contains the weight of each class; nil means 1 for each. Ignore is the target
	// of pixels that do not count. Only the pixel cross-entropy uses these two.
	ClassWeights []float64
	Ignore       int
	// Result is the index of the result that a node represents, if the operation has
	// several results. A gorgonia node has one value, so the gradient of batch norm is
	// represented by three nodes.
	Result int
}

// OperationInfo describes the operation of a node, if this package defines it. Code that lowers a
// graph uses it.
type OperationInfo struct {
	Kind  Kind
	Attr  Attr
	Layer string // name of the layer, or ""
	// Of is −1 for an operation of the forward pass. For an operation of the backward pass
	// it is the ID of the forward node whose gradient the operation computes.
	Of int64
}

// OperationInfoOf describes the operation that computes n. It returns false if this package does
// not define that operation: n is an input, a constant or the result of one of gorgonia's
// operations.
func OperationInfoOf(n *gorgonia.Node) (OperationInfo, bool) {
	if n == nil {
		return OperationInfo{}, false
	}
	o, ok := n.Op().(*operation)
	if !ok {
		return OperationInfo{}, false
	}
	return OperationInfo{Kind: o.kind, Attr: o.attr, Layer: o.layer, Of: o.of}, true
}

// gradientFunc adds nodes to the graph that compute the gradients of an operation's inputs,
// and returns these nodes. out is the result of the operation, and grad is the gradient of
// out. The returned node is nil for an input without a gradient.
type gradientFunc func(inputs gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error)

// operation implements gorgonia.Op and gorgonia.SDOp for all operations of this package.
// All shapes are static, so the shape of the result is computed and checked before an
// operation is created.
type operation struct {
	kind  Kind
	attr  Attr
	layer string
	of    int64
	// id is unique in the graph and part of the hash. gorgonia merges nodes with equal
	// hashes, but two batch norms have separate states and must not be merged. gorgonia
	// also does not compare the inputs of two nodes whose 32-bit hashes are equal.
	id    int
	shape tensor.Shape
	dims  []int // number of dimensions of each input
	grad  gradientFunc
	wrt   []bool // whether each input has a gradient; nil: all inputs have one if grad is set
}

var (
	_ gorgonia.Op   = (*operation)(nil)
	_ gorgonia.SDOp = (*operation)(nil)
)

func (o *operation) Arity() int { return len(o.dims) }

// Type returns the operation's type for gorgonia's type inference: tensors with fixed
// numbers of dimensions and one element type.
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
		return nil, fmt.Errorf("differentiate %s: the operation has no gradient", o.kind)
	}
	return o.grad(in, out, grad)
}

// errNilNode is the error for a nil input, the result of a layer that failed.
var errNilNode = errors.New("the node is nil")

// addOperation adds an operation to the graph of its inputs and returns the node of its
// result. A panic in gorgonia is returned as an error.
func addOperation(o *operation, in ...*gorgonia.Node) (n *gorgonia.Node, err error) {
	defer recoverAsError(&err, "add %s to the graph", o.kind)
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

// addBackwardOperation adds an operation of the backward pass that computes the gradient of
// input, an input of the forward node out. operands are the inputs of the new operation.
func addBackwardOperation(kind Kind, attr Attr, out, input *gorgonia.Node, operands ...*gorgonia.Node) (*gorgonia.Node, error) {
	o := &operation{kind: kind, attr: attr, of: out.ID(), shape: input.Shape().Clone()}
	if c, ok := OperationInfoOf(out); ok {
		o.layer = c.Layer
	}
	return addOperation(o, operands...)
}

// recoverAsError, a deferred function, converts a panic to an error, because this package
// must not panic in a notebook. format and args describe the failed call.
func recoverAsError(err *error, format string, args ...any) {
	if r := recover(); r != nil {
		*err = fmt.Errorf(format+": gorgonia: %v", append(args, r)...)
	}
}

// operand is an input of an operation, with the number of dimensions that it must have.
type operand struct {
	name string
	node *gorgonia.Node
	dims int // required number of dimensions, imageOrVolume or batched
}

// Values of operand.dims that allow several numbers of dimensions.
const (
	imageOrVolume = -1 // 4 or 5: a batch of feature maps of images or volumes
	batched       = -2 // at least 2: a batch of tensors of any shape
)

// checkOperands returns an error, which names op, if an operand is nil, has a wrong number
// of dimensions or belongs to another graph than the first operand.
func checkOperands(op string, operands ...operand) error {
	for _, v := range operands {
		if v.node == nil {
			return fmt.Errorf("%s: %s: %w", op, v.name, errNilNode)
		}
		if !dimsMatch(v.node.Dims(), v.dims) {
			return fmt.Errorf("%s: %s has shape %v, want %s", op, v.name, v.node.Shape(), describeDims(v.dims))
		}
		if v.node.Graph() != operands[0].node.Graph() {
			return fmt.Errorf("%s: %s and %s belong to different graphs", op, operands[0].name, v.name)
		}
	}
	return nil
}

// dimsMatch reports whether dims dimensions satisfy want, a value of operand.dims.
func dimsMatch(dims, want int) bool {
	switch want {
	case imageOrVolume:
		return dims == 4 || dims == 5
	case batched:
		return dims >= 2
	}
	return dims == want
}

// describeDims describes a value of operand.dims for error messages.
func describeDims(dims int) string {
	switch dims {
	case 1:
		return "1 dimension (channels)"
	case 2:
		return "2 dimensions (batch, features)"
	case imageOrVolume:
		return "4 dimensions (batch, channels, height, width) or 5 (with depth before height)"
	case batched:
		return "at least 2 dimensions (batch first)"
	}
	return fmt.Sprintf("%d dimensions (input and output channels, window)", dims)
}
