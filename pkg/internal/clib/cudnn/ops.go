package cudnn

import "fmt"

func ones(n int) []int64 {
	v := make([]int64, n)
	for i := range v {
		v[i] = 1
	}
	return v
}

func (b *descriptorBuilder) convolutionDescriptor(c Conv) Descriptor {
	const crossCorrelation = 1
	n := len(c.Pad)
	post, stride, dilation := c.PostPad, c.Stride, c.Dilation
	if post == nil {
		post = c.Pad
	}
	if stride == nil {
		stride = ones(n)
	}
	if dilation == nil {
		dilation = ones(n)
	}
	if b.err == nil && (n == 0 || len(post) != n || len(stride) != n || len(dilation) != n) {
		b.err = fmt.Errorf("describe convolution: paddings %v and %v, strides %v and dilations %v must have the same length", c.Pad, post, stride, dilation)
	}
	d := b.newDescriptor(DescConvolution)
	b.setInts(d, AttrConvSpatialDims, int64(n))
	b.setEnum(d, AttrConvCompType, TypeDataType, int32(c.Compute))
	b.setEnum(d, AttrConvMode, TypeConvolutionMode, crossCorrelation)
	b.setInts(d, AttrConvPrePaddings, c.Pad...)
	b.setInts(d, AttrConvPostPaddings, post...)
	b.setInts(d, AttrConvDilations, dilation...)
	b.setInts(d, AttrConvStrides, stride...)
	b.finalize(d, "convolution")
	return d
}

func oneIfZero(alpha float32) float32 {
	if alpha == 0 {
		return 1
	}
	return alpha
}

func (o ConvForward) createDescriptor(b *descriptorBuilder) Descriptor {
	c, x, w, y := b.convolutionDescriptor(o.Conv), b.tensorDescriptor(o.X), b.tensorDescriptor(o.W), b.tensorDescriptor(o.Y)
	d := b.newDescriptor(DescConvForward)
	b.setDescriptors(d, AttrForwardConv, c)
	b.setDescriptors(d, AttrForwardX, x)
	b.setDescriptors(d, AttrForwardW, w)
	b.setDescriptors(d, AttrForwardY, y)
	b.setFloat(d, AttrForwardAlpha, oneIfZero(o.Alpha))
	b.setFloat(d, AttrForwardBeta, o.Beta)
	b.finalize(d, "forward convolution")
	return d
}

func (o ConvBackwardData) createDescriptor(b *descriptorBuilder) Descriptor {
	c, dx, w, dy := b.convolutionDescriptor(o.Conv), b.tensorDescriptor(o.DX), b.tensorDescriptor(o.W), b.tensorDescriptor(o.DY)
	d := b.newDescriptor(DescConvData)
	b.setDescriptors(d, AttrDataConv, c)
	b.setDescriptors(d, AttrDataDX, dx)
	b.setDescriptors(d, AttrDataW, w)
	b.setDescriptors(d, AttrDataDY, dy)
	b.setFloat(d, AttrDataAlpha, oneIfZero(o.Alpha))
	b.setFloat(d, AttrDataBeta, o.Beta)
	b.finalize(d, "convolution, gradient of the data")
	return d
}

func (o ConvBackwardFilter) createDescriptor(b *descriptorBuilder) Descriptor {
	c, x, dw, dy := b.convolutionDescriptor(o.Conv), b.tensorDescriptor(o.X), b.tensorDescriptor(o.DW), b.tensorDescriptor(o.DY)
	d := b.newDescriptor(DescConvFilter)
	b.setDescriptors(d, AttrFilterConv, c)
	b.setDescriptors(d, AttrFilterX, x)
	b.setDescriptors(d, AttrFilterDW, dw)
	b.setDescriptors(d, AttrFilterDY, dy)
	b.setFloat(d, AttrFilterAlpha, oneIfZero(o.Alpha))
	b.setFloat(d, AttrFilterBeta, o.Beta)
	b.finalize(d, "convolution, gradient of the filter")
	return d
}

func (o Pointwise) createDescriptor(b *descriptorBuilder) Descriptor {
	p := b.newDescriptor(DescPointwise)
	b.setEnum(p, AttrPointwiseMode, TypePointwiseMode, int32(o.Mode))
	b.setEnum(p, AttrPointwisePrec, TypeDataType, int32(o.Compute))
	b.finalize(p, "pointwise")
	x := b.tensorDescriptor(o.X)
	var second, out Descriptor
	secondAttr, outAttr := AttrOpB, AttrOpY
	switch o.Mode {
	case PointwiseAdd, PointwiseMul, PointwiseSub:
		second, out = b.tensorDescriptor(o.B), b.tensorDescriptor(o.Y)
	case PointwiseReLUBack:
		second, out = b.tensorDescriptor(o.DY), b.tensorDescriptor(o.DX)
		secondAttr, outAttr = AttrOpDY, AttrOpDX
	default:
		out = b.tensorDescriptor(o.Y)
	}
	d := b.newDescriptor(DescPointwiseOp)
	b.setDescriptors(d, AttrOpPointwise, p)
	b.setDescriptors(d, AttrOpX, x)
	if second != 0 {
		b.setDescriptors(d, secondAttr, second)
	}
	b.setDescriptors(d, outAttr, out)
	b.finalize(d, fmt.Sprintf("pointwise operation %d", o.Mode))
	return d
}

func (o Genstats) createDescriptor(b *descriptorBuilder) Descriptor {
	const sumAndSquares = 0
	x, sum, square := b.tensorDescriptor(o.X), b.tensorDescriptor(o.Sum), b.tensorDescriptor(o.SqSum)
	d := b.newDescriptor(DescGenstats)
	b.setEnum(d, AttrGenstatsMode, TypeGenstatsMode, sumAndSquares)
	b.setEnum(d, AttrGenstatsPrec, TypeDataType, int32(o.Compute))
	b.setDescriptors(d, AttrGenstatsX, x)
	b.setDescriptors(d, AttrGenstatsSum, sum)
	b.setDescriptors(d, AttrGenstatsSqSum, square)
	b.finalize(d, "statistics")
	return d
}

func (o BNBackwardWeights) createDescriptor(b *descriptorBuilder) Descriptor {
	operands := []struct {
		name   Attribute
		tensor Tensor
	}{
		{AttrBNBackwardMean, o.Mean},
		{AttrBNBackwardInvStd, o.InvStd},
		{AttrBNBackwardScale, o.Scale},
		{AttrBNBackwardX, o.X},
		{AttrBNBackwardDY, o.DY},
		{AttrBNBackwardDScale, o.DScale},
		{AttrBNBackwardDBias, o.DBias},
		{AttrBNBackwardEqDY, o.EqDY},
		{AttrBNBackwardEqX, o.EqX},
		{AttrBNBackwardEqBias, o.EqBias},
	}
	made := make([]Descriptor, len(operands))
	for i, t := range operands {
		made[i] = b.tensorDescriptor(t.tensor)
	}
	d := b.newDescriptor(DescBNBackwardWeights)
	b.setEnum(d, AttrBNBackwardPrec, TypeDataType, int32(o.Compute))
	for i, t := range operands {
		b.setDescriptors(d, t.name, made[i])
	}
	b.finalize(d, "gradient of a batch norm's parameters")
	return d
}
