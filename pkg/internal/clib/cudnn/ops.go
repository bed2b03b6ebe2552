package cudnn

import "fmt"

func ones(n int) []int64 {
	v := make([]int64, n)
	for i := range v {
		v[i] = 1
	}
	return v
}

func (b *builder) conv(c Conv) Descriptor {
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
		b.err = fmt.Errorf("describe convolution: paddings %v and %v, strides %v, dilations %v are not of one length", c.Pad, post, stride, dilation)
	}
	d := b.create(DescConvolution)
	b.ints(d, AttrConvSpatialDims, int64(n))
	b.enum(d, AttrConvCompType, TypeDataType, int32(c.Compute))
	b.enum(d, AttrConvMode, TypeConvolutionMode, crossCorrelation)
	b.ints(d, AttrConvPrePaddings, c.Pad...)
	b.ints(d, AttrConvPostPaddings, post...)
	b.ints(d, AttrConvDilations, dilation...)
	b.ints(d, AttrConvStrides, stride...)
	b.finalize(d, "convolution")
	return d
}

func orOne(alpha float32) float32 {
	if alpha == 0 {
		return 1
	}
	return alpha
}

func (o ConvForward) describe(b *builder) Descriptor {
	c, x, w, y := b.conv(o.Conv), b.tensor(o.X), b.tensor(o.W), b.tensor(o.Y)
	d := b.create(DescConvForward)
	b.descriptors(d, AttrForwardConv, c)
	b.descriptors(d, AttrForwardX, x)
	b.descriptors(d, AttrForwardW, w)
	b.descriptors(d, AttrForwardY, y)
	b.float(d, AttrForwardAlpha, orOne(o.Alpha))
	b.float(d, AttrForwardBeta, o.Beta)
	b.finalize(d, "forward convolution")
	return d
}

func (o ConvBackwardData) describe(b *builder) Descriptor {
	c, dx, w, dy := b.conv(o.Conv), b.tensor(o.DX), b.tensor(o.W), b.tensor(o.DY)
	d := b.create(DescConvData)
	b.descriptors(d, AttrDataConv, c)
	b.descriptors(d, AttrDataDX, dx)
	b.descriptors(d, AttrDataW, w)
	b.descriptors(d, AttrDataDY, dy)
	b.float(d, AttrDataAlpha, orOne(o.Alpha))
	b.float(d, AttrDataBeta, o.Beta)
	b.finalize(d, "convolution, gradient of the data")
	return d
}

func (o ConvBackwardFilter) describe(b *builder) Descriptor {
	c, x, dw, dy := b.conv(o.Conv), b.tensor(o.X), b.tensor(o.DW), b.tensor(o.DY)
	d := b.create(DescConvFilter)
	b.descriptors(d, AttrFilterConv, c)
	b.descriptors(d, AttrFilterX, x)
	b.descriptors(d, AttrFilterDW, dw)
	b.descriptors(d, AttrFilterDY, dy)
	b.float(d, AttrFilterAlpha, orOne(o.Alpha))
	b.float(d, AttrFilterBeta, o.Beta)
	b.finalize(d, "convolution, gradient of the filter")
	return d
}

func (o Pointwise) describe(b *builder) Descriptor {
	p := b.create(DescPointwise)
	b.enum(p, AttrPointwiseMode, TypePointwiseMode, int32(o.Mode))
	b.enum(p, AttrPointwisePrec, TypeDataType, int32(o.Compute))
	b.finalize(p, "pointwise")
	x := b.tensor(o.X)
	var second, out Descriptor
	secondAttr, outAttr := AttrOpB, AttrOpY
	switch o.Mode {
	case PointwiseAdd, PointwiseMul, PointwiseSub:
		second, out = b.tensor(o.B), b.tensor(o.Y)
	case PointwiseReLUBack:
		second, out = b.tensor(o.DY), b.tensor(o.DX)
		secondAttr, outAttr = AttrOpDY, AttrOpDX
	default:
		out = b.tensor(o.Y)
	}
	d := b.create(DescPointwiseOp)
	b.descriptors(d, AttrOpPointwise, p)
	b.descriptors(d, AttrOpX, x)
	if second != 0 {
		b.descriptors(d, secondAttr, second)
	}
	b.descriptors(d, outAttr, out)
	b.finalize(d, fmt.Sprintf("pointwise operation %d", o.Mode))
	return d
}

func (o Genstats) describe(b *builder) Descriptor {
	const sumAndSquares = 0
	x, sum, square := b.tensor(o.X), b.tensor(o.Sum), b.tensor(o.SqSum)
	d := b.create(DescGenstats)
	b.enum(d, AttrGenstatsMode, TypeGenstatsMode, sumAndSquares)
	b.enum(d, AttrGenstatsPrec, TypeDataType, int32(o.Compute))
	b.descriptors(d, AttrGenstatsX, x)
	b.descriptors(d, AttrGenstatsSum, sum)
	b.descriptors(d, AttrGenstatsSqSum, square)
	b.finalize(d, "statistics")
	return d
}

func (o BNBackwardWeights) describe(b *builder) Descriptor {
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
		made[i] = b.tensor(t.tensor)
	}
	d := b.create(DescBNBackwardWeights)
	b.enum(d, AttrBNBackwardPrec, TypeDataType, int32(o.Compute))
	for i, t := range operands {
		b.descriptors(d, t.name, made[i])
	}
	b.finalize(d, "gradient of a batch norm's parameters")
	return d
}
