package clibtest

import (
	"fmt"
	"slices"

	"lockstep/pkg/internal/clib/cudnn"
)

type tensor struct {
	ID            int64
	Type          cudnn.DataType
	Dims, Strides []int64
	Align         int64
	Virtual       bool
}

// hasGaps reports whether t is not contiguous, for example because it is a slice of a larger
// tensor.
func (t *tensor) hasGaps() bool {
	return t.extentBytes() > elementCount(t.Dims)*t.Type.Size()
}

// extentBytes returns the number of bytes from the start of the first element of t to the end of
// the last.
func (t *tensor) extentBytes() int64 {
	n := int64(1)
	for i, d := range t.Dims {
		n += (d - 1) * t.Strides[i]
	}
	return n * t.Type.Size()
}

func (t *tensor) String() string { return fmt.Sprintf("%d:%s%v", t.ID, t.Type, t.Dims) }

// operation is a finalized operation. It reads the tensors In and writes the tensors Out.
type operation struct {
	Kind        cudnn.DescriptorType
	Mode        cudnn.PointwiseMode
	In, Out     []*tensor
	Alpha, Beta float32
	Pad, Post   []int64 // padding before and after each spatial dimension
	Stride      []int64
	Dilation    []int64
}

func (o *operation) String() string {
	name := map[cudnn.DescriptorType]string{
		cudnn.DescConvForward: "conv forward", cudnn.DescConvData: "conv data gradient",
		cudnn.DescConvFilter: "conv filter gradient", cudnn.DescGenstats: "statistics",
		cudnn.DescBNBackwardWeights: "batch norm sums",
	}[o.Kind]
	if o.Kind == cudnn.DescPointwiseOp {
		name = map[cudnn.PointwiseMode]string{
			cudnn.PointwiseAdd: "add", cudnn.PointwiseMul: "multiply", cudnn.PointwiseSub: "subtract", cudnn.PointwiseReLU: "ReLU", cudnn.PointwiseReLUBack: "ReLU backward",
		}[o.Mode]
	}
	return fmt.Sprintf("%s %v -> %v", name, o.In, o.Out)
}

// storedTensors returns the tensors of ops that are stored in memory, not virtual, sorted by ID.
func storedTensors(ops []*operation) []*tensor {
	var all []*tensor
	for _, o := range ops {
		for _, t := range slices.Concat(o.In, o.Out) {
			if !t.Virtual && !slices.ContainsFunc(all, func(a *tensor) bool { return a.ID == t.ID }) {
				all = append(all, t)
			}
		}
	}
	slices.SortFunc(all, func(a, b *tensor) int { return int(a.ID - b.ID) })
	return all
}

// tensorFromAttribute reads the tensor descriptor to which an attribute of desc refers. It returns nil if
// the attribute is not set.
func (d *cudnnSimulator) tensorFromAttribute(desc *descriptor, name cudnn.Attribute) *tensor {
	t := d.referencedDescriptor(desc, name)
	if t == nil {
		return nil
	}
	return &tensor{
		ID: t.int64Value(cudnn.AttrTensorID), Type: cudnn.DataType(t.int32Value(cudnn.AttrTensorType)),
		Dims: t.int64Values(cudnn.AttrTensorDims), Strides: t.int64Values(cudnn.AttrTensorStrides),
		Align: t.int64Value(cudnn.AttrTensorAlignment), Virtual: t.boolValue(cudnn.AttrTensorVirtual),
	}
}

func (d *cudnnSimulator) finalizeOperation(desc *descriptor) cudnn.Status {
	var o *operation
	var status cudnn.Status
	switch desc.kind {
	case cudnn.DescConvForward:
		o, status = d.newConvolution(desc, cudnn.AttrForwardConv, cudnn.AttrForwardX, cudnn.AttrForwardW, cudnn.AttrForwardY, cudnn.AttrForwardAlpha, cudnn.AttrForwardBeta)
	case cudnn.DescConvData:
		o, status = d.newConvolution(desc, cudnn.AttrDataConv, cudnn.AttrDataDX, cudnn.AttrDataW, cudnn.AttrDataDY, cudnn.AttrDataAlpha, cudnn.AttrDataBeta)
	case cudnn.DescConvFilter:
		o, status = d.newConvolution(desc, cudnn.AttrFilterConv, cudnn.AttrFilterX, cudnn.AttrFilterDW, cudnn.AttrFilterDY, cudnn.AttrFilterAlpha, cudnn.AttrFilterBeta)
	case cudnn.DescPointwiseOp:
		o, status = d.newPointwise(desc)
	case cudnn.DescBNBackwardWeights:
		o, status = d.newBatchNormGradient(desc)
	default:
		o, status = d.newGenstats(desc)
	}
	if status == cudnn.Success {
		desc.ops = []*operation{o}
	}
	return status
}

// newConvolution reads a convolution or one of its gradients from its descriptor. The arguments
// after desc name the attributes that contain the convolution's geometry, its operands x, w and y
// (or their gradients), and the factors alpha and beta. The operation is valid only if the status
// is Success.
func (d *cudnnSimulator) newConvolution(desc *descriptor, conv, xa, wa, ya, alpha, beta cudnn.Attribute) (*operation, cudnn.Status) {
	c := d.referencedDescriptor(desc, conv)
	x, w, y := d.tensorFromAttribute(desc, xa), d.tensorFromAttribute(desc, wa), d.tensorFromAttribute(desc, ya)
	o := &operation{
		Kind: desc.kind, Alpha: desc.float32Value(alpha), Beta: desc.float32Value(beta),
		Pad: c.int64Values(cudnn.AttrConvPrePaddings), Post: c.int64Values(cudnn.AttrConvPostPaddings),
		Stride: c.int64Values(cudnn.AttrConvStrides), Dilation: c.int64Values(cudnn.AttrConvDilations),
	}
	n := len(o.Pad) + 2
	if len(x.Dims) != n || len(w.Dims) != n || len(y.Dims) != n {
		return nil, d.failWithStatus(cudnn.ShapeMismatch, "%v, %v and %v must have %d spatial dimensions each", x, w, y, n-2)
	}
	fits := x.Dims[0] == y.Dims[0] && x.Dims[1] == w.Dims[1] && w.Dims[0] == y.Dims[1]
	for i := 2; i < n; i++ {
		reach := (w.Dims[i]-1)*o.Dilation[i-2] + 1
		out := (x.Dims[i]+o.Pad[i-2]+o.Post[i-2]-reach)/o.Stride[i-2] + 1
		fits = fits && out == y.Dims[i]
	}
	if !fits {
		return nil, d.failWithStatus(cudnn.ShapeMismatch, "x %v, w %v and y %v do not match with paddings %v and %v, stride %v and dilation %v", x.Dims, w.Dims, y.Dims, o.Pad, o.Post, o.Stride, o.Dilation)
	}
	switch desc.kind {
	case cudnn.DescConvForward:
		o.In, o.Out = []*tensor{x, w}, []*tensor{y}
	case cudnn.DescConvData:
		o.In, o.Out = []*tensor{w, y}, []*tensor{x}
	default:
		o.In, o.Out = []*tensor{x, y}, []*tensor{w}
	}
	return o, d.checkTensorTypes(o)
}

func (d *cudnnSimulator) checkTensorTypes(o *operation) cudnn.Status {
	for _, t := range slices.Concat(o.In, o.Out) {
		if t.Type != cudnn.Float32 && t.Type != cudnn.Float16 && t.Type != cudnn.BFloat16 {
			return d.failWithStatus(cudnn.TypeNotSupported, "tensor %v: only fp32, fp16 and bf16 are simulated", t)
		}
	}
	return cudnn.Success
}

func (d *cudnnSimulator) newPointwise(desc *descriptor) (*operation, cudnn.Status) {
	mode := cudnn.PointwiseMode(d.referencedDescriptor(desc, cudnn.AttrOpPointwise).int32Value(cudnn.AttrPointwiseMode))
	o := &operation{Kind: desc.kind, Mode: mode}
	second, out := cudnn.Attribute(-1), cudnn.AttrOpY
	switch mode {
	case cudnn.PointwiseAdd, cudnn.PointwiseMul, cudnn.PointwiseSub:
		second = cudnn.AttrOpB
	case cudnn.PointwiseReLU:
	case cudnn.PointwiseReLUBack:
		second, out = cudnn.AttrOpDY, cudnn.AttrOpDX
	default:
		return nil, d.failWithStatus(cudnn.NotSupported, "pointwise mode %d is not simulated", mode)
	}
	o.In = []*tensor{d.tensorFromAttribute(desc, cudnn.AttrOpX)}
	if second >= 0 {
		t := d.tensorFromAttribute(desc, second)
		if t == nil {
			return nil, d.failWithStatus(cudnn.BadParam, "pointwise mode %d needs attribute %d", mode, second)
		}
		o.In = append(o.In, t)
	}
	y := d.tensorFromAttribute(desc, out)
	if y == nil {
		return nil, d.failWithStatus(cudnn.BadParam, "pointwise mode %d needs attribute %d", mode, out)
	}
	o.Out = []*tensor{y}
	for _, t := range o.In {
		for i := range y.Dims {
			if len(t.Dims) != len(y.Dims) || (t.Dims[i] != y.Dims[i] && t.Dims[i] != 1) {
				return nil, d.failWithStatus(cudnn.ShapeMismatch, "%v cannot be broadcast to %v", t, y)
			}
		}
	}
	return o, d.checkTensorTypes(o)
}

func (d *cudnnSimulator) newGenstats(desc *descriptor) (*operation, cudnn.Status) {
	x, sum, square := d.tensorFromAttribute(desc, cudnn.AttrGenstatsX), d.tensorFromAttribute(desc, cudnn.AttrGenstatsSum), d.tensorFromAttribute(desc, cudnn.AttrGenstatsSqSum)
	want := make([]int64, len(x.Dims))
	for i := range want {
		want[i] = 1
	}
	want[1] = x.Dims[1]
	if !slices.Equal(sum.Dims, want) || !slices.Equal(square.Dims, want) {
		return nil, d.failWithStatus(cudnn.ShapeMismatch, "statistics of %v must have dimensions %v, not %v and %v", x, want, sum, square)
	}
	if sum.Type != cudnn.Float32 || square.Type != cudnn.Float32 {
		return nil, d.failWithStatus(cudnn.TypeNotSupported, "statistics must be fp32")
	}
	o := &operation{Kind: desc.kind, In: []*tensor{x}, Out: []*tensor{sum, square}}
	return o, d.checkTensorTypes(o)
}

// finalizeOperationGraph checks that virtual tensors are written before they are read, and that
// checkFusionPattern accepts the graph.
func (d *cudnnSimulator) finalizeOperationGraph(desc *descriptor) cudnn.Status {
	h := cudnn.Handle(desc.int64Value(cudnn.AttrGraphHandle))
	if d.handles[h] == nil {
		return d.failWithStatus(cudnn.NullPointer, "unknown handle")
	}
	written := map[int64]bool{}
	for _, r := range d.referencedDescriptors(desc, cudnn.AttrGraphOps) {
		o := r.ops[0]
		for _, t := range o.In {
			if t.Virtual && !written[t.ID] {
				return d.failWithStatus(cudnn.GraphNotSupported, "tensor %d is virtual and no operation writes it", t.ID)
			}
		}
		for _, t := range o.Out {
			if written[t.ID] {
				return d.failWithStatus(cudnn.GraphNotSupported, "tensor %d is written twice", t.ID)
			}
			written[t.ID] = true
		}
		desc.ops = append(desc.ops, o)
	}
	return d.checkFusionPattern(desc.ops)
}
