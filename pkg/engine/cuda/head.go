package cuda

import (
	"slices"

	"lockstep/pkg/internal/plan"
)

// headConvolution describes the last convolution of a segmentation network: a 1×1
// convolution with one output channel, whose result is read only by a loss. cuDNN would pad
// the channel to eight, and so read and write eight times as much. Our own kernels read the
// input once, store the logits in fp32, and use the fp32 master weights.
type headConvolution struct {
	ok       bool
	gradient int // tensor id of the logits' gradient, −1 without a backward pass
}

// matchHeadConvolution returns the headConvolution that kernel k computes. Its field ok is true
// if k is a head convolution and the engine's own kernels support all readers of the result and
// of its gradient.
func matchHeadConvolution(p *plan.Program, k plan.Kernel) headConvolution {
	h := headConvolution{gradient: -1}
	if k.Op != plan.OpConv || !isSinglePointwiseFilter(p, k.In[1], k.Attr) || p.Tensors[k.In[1]].Role != plan.Parameter {
		return h
	}
	z := k.Out[0]
	for _, r := range p.Kernels {
		if !slices.Contains(r.In, z) {
			continue
		}
		switch {
		case (r.Op == plan.OpBCEWithLogits || r.Op == plan.OpDiceBCE) && r.In[0] == z && r.In[1] != z:
		case (r.Op == plan.OpBCEWithLogitsBackward || r.Op == plan.OpDiceBCEBackward) && r.In[0] == z && r.In[1] != z && h.gradient < 0:
			h.gradient = r.Out[0]
		default:
			return headConvolution{gradient: -1}
		}
	}
	for _, r := range p.Kernels {
		if h.gradient < 0 || !slices.Contains(r.In, h.gradient) {
			continue
		}
		switch {
		case r.Op == plan.OpBiasBackward:
		case r.Op == plan.OpConvBackwardWeights && isSinglePointwiseFilter(p, r.Out[0], r.Attr) && r.In[0] != h.gradient:
		case r.Op == plan.OpConvBackwardData && isSinglePointwiseFilter(p, r.In[0], r.Attr):
		default:
			return headConvolution{gradient: -1}
		}
	}
	h.ok = p.Tensors[z].Role != plan.Gradient && (h.gradient < 0 || p.Tensors[h.gradient].Role == plan.Activation)
	return h
}

// isSinglePointwiseFilter reports whether the weights w are one filter of size 1, and a has
// stride 1 and no padding.
func isSinglePointwiseFilter(p *plan.Program, w int, a plan.KernelAttr) bool {
	s := p.Tensors[w].Shape
	if len(s) < 3 || s[0] != 1 || elementCount(s[2:]) != 1 {
		return false
	}
	for i := range a.Stride {
		if a.Stride[i] != 1 || a.Pad[i] != 0 {
			return false
		}
	}
	return true
}
