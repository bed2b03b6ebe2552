package cudnn

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"
)

// Tensor describes an operand of operations. Operations with a common operand use equal Tensors,
// including the ID.
type Tensor struct {
	ID      int64
	Type    DataType
	Dims    []int64 // N,C,(D,)H,W; for a filter K,C,(T,)R,S
	Strides []int64 // elements from one index to the next; nil means ChannelsLastStrides(Dims)
	Align   int64   // alignment of the address in bytes; 0 means 16
	Virtual bool    // passed between operations of one graph and not stored in memory
}

func (t Tensor) strides() []int64 {
	if t.Strides == nil {
		return ChannelsLastStrides(t.Dims)
	}
	return t.Strides
}

func (t Tensor) alignment() int64 {
	if t.Align == 0 {
		return 16
	}
	return t.Align
}

func (t Tensor) equal(o Tensor) bool {
	return t.ID == o.ID && t.Type == o.Type && t.Virtual == o.Virtual && t.alignment() == o.alignment() &&
		slices.Equal(t.Dims, o.Dims) && slices.Equal(t.strides(), o.strides())
}

// ChannelsLastStrides returns the strides of a tensor with dimensions N,C,(D,)H,W that is stored
// contiguously in the order N,(D,)H,W,C.
func ChannelsLastStrides(dims []int64) []int64 {
	n := len(dims)
	if n < 2 {
		return packedStrides(dims)
	}
	s := make([]int64, n)
	s[1] = 1
	step := dims[1]
	for i := n - 1; i >= 2; i-- {
		s[i] = step
		step *= dims[i]
	}
	s[0] = step
	return s
}

// packedStrides returns the strides of a contiguous tensor that is stored in the order of its
// dimensions.
func packedStrides(dims []int64) []int64 {
	s := make([]int64, len(dims))
	step := int64(1)
	for i := len(dims) - 1; i >= 0; i-- {
		s[i] = step
		step *= dims[i]
	}
	return s
}

// Conv is the geometry of a cross-correlation, with one value per spatial dimension.
type Conv struct {
	Pad      []int64
	PostPad  []int64 // nil means Pad
	Stride   []int64 // nil means 1
	Dilation []int64 // nil means 1
	Compute  DataType
}

// Op is an operation of a graph: one of the types below.
type Op interface {
	createDescriptor(b *descriptorBuilder) Descriptor
}

// ConvForward computes Y = Alpha·conv(X, W) + Beta·Y. An Alpha of 0 means 1.
type ConvForward struct {
	Conv        Conv
	X, W, Y     Tensor
	Alpha, Beta float32
}

// ConvBackwardData computes DX = Alpha·convᵀ(DY, W) + Beta·DX, which is also the forward
// pass of a transposed convolution. An Alpha of 0 means 1.
type ConvBackwardData struct {
	Conv        Conv
	DX, W, DY   Tensor
	Alpha, Beta float32
}

// ConvBackwardFilter computes DW = Alpha·(gradient of W) + Beta·DW. An Alpha of 0 means 1.
type ConvBackwardFilter struct {
	Conv        Conv
	X, DW, DY   Tensor
	Alpha, Beta float32
}

// Pointwise computes each element separately: Y = X + B, X − B, X·B or max(X, 0). Dimensions of B
// with size 1 are broadcast. PointwiseReLUBack computes DX, which is DY where X > 0 and 0
// elsewhere.
type Pointwise struct {
	Mode    PointwiseMode
	Compute DataType
	X, B, Y Tensor
	DX, DY  Tensor
}

// Genstats computes Σ X and Σ X² over all dimensions but the channels. Sum and SqSum have
// the shape 1,C,1,(1,)1 and are fp32.
type Genstats struct {
	X, Sum, SqSum Tensor
	Compute       DataType
}

// BNBackwardWeights computes the gradients of a batch norm's scale and bias, DBias = Σ DY
// and DScale = Σ DY·(X − Mean)·InvStd over all dimensions but the channels. It also
// computes the factors of the gradient of the batch norm's input, EqDY·DY + EqX·X + EqBias.
// All tensors but X and DY have the shape 1,C,1,(1,)1 and are fp32. cuDNN supports this
// operation only after the data gradient of a convolution and the gradient of ReLU
// (DgradDreluBNBwdWeight in its developer guide).
type BNBackwardWeights struct {
	X, Mean, InvStd, Scale, DY Tensor
	DScale, DBias              Tensor
	EqDY, EqX, EqBias          Tensor
	Compute                    DataType
}

// descriptorBuilder creates descriptors. It stores the first error, after which its methods do
// nothing.
type descriptorBuilder struct {
	lib     *Library
	err     error
	made    []Descriptor
	tensors map[int64]cachedTensor
}

type cachedTensor struct {
	spec Tensor
	desc Descriptor
}

func (l *Library) newDescriptorBuilder() *descriptorBuilder {
	return &descriptorBuilder{lib: l, tensors: map[int64]cachedTensor{}}
}

func (b *descriptorBuilder) newDescriptor(t DescriptorType) Descriptor {
	if b.err != nil {
		return 0
	}
	d, s := b.lib.CreateDescriptor(t)
	if s != Success {
		b.err = b.lib.checkStatus(fmt.Sprintf("cudnnBackendCreateDescriptor of type %d", t), s)
		return 0
	}
	b.made = append(b.made, d)
	return d
}

func (b *descriptorBuilder) setAttribute(d Descriptor, name Attribute, t AttributeType, n int, values unsafe.Pointer) {
	if b.err != nil {
		return
	}
	if s := b.lib.SetAttribute(d, name, t, int64(n), values); s != Success {
		b.err = b.lib.checkStatus(fmt.Sprintf("cudnnBackendSetAttribute %d", name), s)
	}
}

func (b *descriptorBuilder) setInts(d Descriptor, name Attribute, v ...int64) {
	b.setAttribute(d, name, TypeInt64, len(v), unsafe.Pointer(unsafe.SliceData(v)))
}

func (b *descriptorBuilder) setEnum(d Descriptor, name Attribute, t AttributeType, v int32) {
	b.setAttribute(d, name, t, 1, unsafe.Pointer(&v))
}

func (b *descriptorBuilder) setFloat(d Descriptor, name Attribute, v float32) {
	b.setAttribute(d, name, TypeFloat, 1, unsafe.Pointer(&v))
}

func (b *descriptorBuilder) setBool(d Descriptor, name Attribute, v bool) {
	b.setAttribute(d, name, TypeBoolean, 1, unsafe.Pointer(&v))
}

func (b *descriptorBuilder) setDescriptors(d Descriptor, name Attribute, v ...Descriptor) {
	b.setAttribute(d, name, TypeDescriptor, len(v), unsafe.Pointer(unsafe.SliceData(v)))
}

func (b *descriptorBuilder) setHandle(d Descriptor, name Attribute, h Handle) {
	b.setAttribute(d, name, TypeHandle, 1, unsafe.Pointer(&h))
}

func (b *descriptorBuilder) finalize(d Descriptor, description string) {
	if b.err != nil {
		return
	}
	if s := b.lib.Finalize(d); s != Success {
		b.err = b.lib.checkStatus("cudnnBackendFinalize of "+description, s)
	}
}

// release destroys all descriptors that b has created, the last one first.
func (b *descriptorBuilder) release() error {
	var errs []error
	for _, d := range slices.Backward(b.made) {
		if s := b.lib.DestroyDescriptor(d); s != Success {
			errs = append(errs, b.lib.checkStatus("cudnnBackendDestroyDescriptor", s))
		}
	}
	b.made = nil
	return errors.Join(errs...)
}

// tensorDescriptor returns the descriptor of t. It creates one descriptor per tensor ID.
func (b *descriptorBuilder) tensorDescriptor(t Tensor) Descriptor {
	if b.err != nil {
		return 0
	}
	if known, ok := b.tensors[t.ID]; ok {
		if !known.spec.equal(t) {
			b.err = fmt.Errorf("describe tensor %d: two different descriptions, %v and %v", t.ID, known.spec, t)
		}
		return known.desc
	}
	if len(t.Dims) == 0 || len(t.strides()) != len(t.Dims) {
		b.err = fmt.Errorf("describe tensor %d: got %d dimensions and %d strides, want the same number of both", t.ID, len(t.Dims), len(t.strides()))
		return 0
	}
	d := b.newDescriptor(DescTensor)
	b.setInts(d, AttrTensorID, t.ID)
	b.setEnum(d, AttrTensorType, TypeDataType, int32(t.Type))
	b.setInts(d, AttrTensorAlignment, t.alignment())
	b.setInts(d, AttrTensorDims, t.Dims...)
	b.setInts(d, AttrTensorStrides, t.strides()...)
	b.setBool(d, AttrTensorVirtual, t.Virtual)
	b.finalize(d, fmt.Sprintf("tensor %d %s %v", t.ID, t.Type, t.Dims))
	b.tensors[t.ID] = cachedTensor{spec: t, desc: d}
	return d
}
