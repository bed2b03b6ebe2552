package clibtest

import (
	"slices"

	"lockstep/pkg/internal/clib/cudnn"
)

// checkFusionPattern returns an error status if cuDNN has no engine for the graph ops. It accepts
// the graphs in the section on specialized engines of cuDNN's developer guide, with the
// restrictions listed there, and any operation followed by operations that run-time
// compilation can append. Convolutions that apply a batch norm as they read (ConvBNfprop and
// ConvBNwgrad) are not simulated.
func (d *cudnnSimulator) checkFusionPattern(ops []*operation) cudnn.Status {
	if slices.ContainsFunc(ops, func(o *operation) bool { return o.Kind == cudnn.DescBNBackwardWeights }) {
		return d.checkBatchNormGradientPattern(ops)
	}
	for i, o := range ops {
		if i > 0 && o.Kind != cudnn.DescPointwiseOp && o.Kind != cudnn.DescGenstats {
			return d.failWithStatus(cudnn.GraphNotSupported, "%v cannot follow another operation", o)
		}
	}
	return cudnn.Success
}

// opKinds returns the kind of each operation, or its mode if it is a pointwise operation.
func opKinds(ops []*operation) []any {
	var list []any
	for _, o := range ops {
		if o.Kind == cudnn.DescPointwiseOp {
			list = append(list, o.Mode)
		} else {
			list = append(list, o.Kind)
		}
	}
	return list
}

// supportsBatchNormFusion reports whether the device supports graphs that fuse convolutions with batch
// norms. It does with compute capability 8.0 and above, except 8.9.
func (d *cudnnSimulator) supportsBatchNormFusion() bool {
	c := d.m.opt.Capability
	return c[0] >= 8 && c != [2]int{8, 9}
}

// checkFP16Tensors checks that the tensors in list are fp16, four-dimensional, packed
// channels-last and aligned to 16 bytes. It also checks that each tensor in vectors has c
// elements, one per channel.
func (d *cudnnSimulator) checkFP16Tensors(list []*tensor, c int64, vectors ...*tensor) cudnn.Status {
	for _, t := range list {
		switch {
		case t.Type != cudnn.Float16:
			return d.failWithStatus(cudnn.TypeNotSupported, "%v is not fp16", t)
		case len(t.Dims) != 4:
			return d.failWithStatus(cudnn.ShapeNotSupported, "%v does not have four dimensions", t)
		case !slices.Equal(t.Strides, cudnn.ChannelsLastStrides(t.Dims)):
			return d.failWithStatus(cudnn.LayoutNotSupported, "%v with strides %v is not packed channels-last", t, t.Strides)
		}
	}
	for _, t := range list {
		if t.Align%16 != 0 {
			return d.failWithStatus(cudnn.NotSupported, "%v is aligned to %d bytes, not 16", t, t.Align)
		}
	}
	for _, t := range vectors {
		if !slices.Equal(t.Dims, []int64{1, c, 1, 1}) {
			return d.failWithStatus(cudnn.ShapeNotSupported, "%v does not have one element for each of %d channels", t, c)
		}
	}
	return cudnn.Success
}

// checkBatchNormGradientPattern checks a graph that computes the gradients of a batch norm's
// parameters. The graph must have cuDNN's pattern DgradDreluBNBwdWeight.
func (d *cudnnSimulator) checkBatchNormGradientPattern(ops []*operation) cudnn.Status {
	want := []any{
		cudnn.DescConvData, cudnn.PointwiseSub, cudnn.PointwiseMul, cudnn.PointwiseMul, cudnn.PointwiseAdd,
		cudnn.PointwiseReLUBack, cudnn.DescBNBackwardWeights,
	}
	switch {
	case !d.supportsBatchNormFusion() || d.m.opt.Capability[0] > 9:
		return d.failWithStatus(cudnn.GraphNotSupported, "compute capability %v has no data gradient with the gradient sums of a batch norm", d.m.opt.Capability)
	case d.m.opt.CUDNNVersion < 90800:
		return d.failWithStatus(cudnn.GraphNotSupported, "version %s does not support DgradDreluBNBwdWeight", cudnn.FormatVersion(d.m.opt.CUDNNVersion))
	case !slices.Equal(opKinds(ops), want):
		return d.failWithStatus(cudnn.GraphNotSupported, "%s: want the pattern DgradDreluBNBwdWeight", describeOps(ops))
	}
	conv, normed, back, sums := ops[0], ops[4], ops[5], ops[6]
	for _, o := range ops[:5] {
		if !o.Out[0].Virtual {
			return d.failWithStatus(cudnn.GraphNotSupported, "%v is not virtual", o.Out[0])
		}
	}
	x, mean, invstd, scale := sums.In[0], sums.In[1], sums.In[2], sums.In[3]
	chain := back.In[0].ID == normed.Out[0].ID && back.In[1].ID == conv.Out[0].ID && sums.In[4].ID == back.Out[0].ID &&
		ops[1].In[0].ID == x.ID && ops[1].In[1].ID == mean.ID && ops[2].In[1].ID == invstd.ID && ops[3].In[1].ID == scale.ID
	if !chain || back.Out[0].Virtual {
		return d.failWithStatus(cudnn.GraphNotSupported, "%s: each operation must read the output of the one before it", describeOps(ops))
	}
	vectors := append([]*tensor{mean, invstd, scale, normed.In[1]}, sums.Out...)
	for _, t := range vectors {
		if t.Type != cudnn.Float32 {
			return d.failWithStatus(cudnn.TypeNotSupported, "%v is not fp32", t)
		}
	}
	return d.checkFP16Tensors([]*tensor{conv.In[0], conv.In[1], x, back.Out[0]}, x.Dims[1], vectors...)
}

// newBatchNormGradient converts desc to the operation that computes the gradients of a batch norm's
// parameters.
func (d *cudnnSimulator) newBatchNormGradient(desc *descriptor) (*operation, cudnn.Status) {
	o := &operation{Kind: desc.kind}
	for _, name := range []cudnn.Attribute{cudnn.AttrBNBackwardX, cudnn.AttrBNBackwardMean, cudnn.AttrBNBackwardInvStd, cudnn.AttrBNBackwardScale, cudnn.AttrBNBackwardDY} {
		o.In = append(o.In, d.tensorFromAttribute(desc, name))
	}
	for _, name := range []cudnn.Attribute{cudnn.AttrBNBackwardDScale, cudnn.AttrBNBackwardDBias, cudnn.AttrBNBackwardEqDY, cudnn.AttrBNBackwardEqX, cudnn.AttrBNBackwardEqBias} {
		o.Out = append(o.Out, d.tensorFromAttribute(desc, name))
	}
	x, dy := o.In[0], o.In[4]
	if !slices.Equal(x.Dims, dy.Dims) {
		return nil, d.failWithStatus(cudnn.ShapeMismatch, "%v and its gradient %v have different dimensions", x, dy)
	}
	return o, d.checkTensorTypes(o)
}

// computeBatchNormGradients computes the gradients of a batch norm's scale and bias, which are sums
// over all dimensions but the channels (Ioffe and Szegedy, Batch Normalization, 2015,
// arXiv:1502.03167, section 3). It also computes eqDY, eqX and eqBias, with which the gradient of
// the batch norm's input is eqDY·dy + eqX·x + eqBias.
func computeBatchNormGradients(in []*denseTensor) []*denseTensor {
	x, mean, invstd, scale, dy := in[0], in[1].v, in[2].v, in[3].v, in[4]
	c := x.dims[1]
	vector := func() *denseTensor { return &denseTensor{dims: []int64{1, c, 1, 1}, v: make([]float32, c)} }
	dscale, dbias, eqDY, eqX, eqBias := vector(), vector(), vector(), vector(), vector()
	for i, g := range dy.v {
		k := int64(i) % c
		dbias.v[k] += g
		dscale.v[k] += g * (x.v[i] - mean[k]) * invstd[k]
	}
	n := float32(int64(len(x.v)) / c)
	for k := range c {
		a := scale[k] * invstd[k]
		eqDY.v[k] = a
		eqX.v[k] = -a * invstd[k] * dscale.v[k] / n
		eqBias.v[k] = -a*dbias.v[k]/n - eqX.v[k]*mean[k]
	}
	return []*denseTensor{dscale, dbias, eqDY, eqX, eqBias}
}
