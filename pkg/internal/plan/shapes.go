package plan

import (
	"errors"
	"fmt"
	"slices"
)

// validateShapes returns an error if the attributes or shapes of k do not match the documentation
// of its Op.
func validateShapes(p *Program, k Kernel) error {
	in := lookupShapes(p, k.In)
	if err := validateKernelAttr(k, in); err != nil {
		return err
	}
	want, err := inferResultShapes(p, k, in)
	if err != nil {
		return err
	}
	for i, id := range k.Out {
		if id >= 0 && !slices.Equal(p.Tensors[id].Shape, want[i]) {
			return fmt.Errorf("result %d has shape %v, want %v", i, p.Tensors[id].Shape, want[i])
		}
	}
	return nil
}

// validateKernelAttr checks the assumptions of the shape rules: windows and strides are at least
// 1, paddings are not negative, and feature maps have four or five dimensions.
func validateKernelAttr(k Kernel, in [][]int) error {
	for _, v := range append(slices.Clone(k.Attr.Kernel), k.Attr.Stride...) {
		if v < 1 {
			return fmt.Errorf("invalid window %v or stride %v: each number must be at least 1", k.Attr.Kernel, k.Attr.Stride)
		}
	}
	for _, v := range k.Attr.Pad {
		if v < 0 {
			return fmt.Errorf("invalid padding %v: no number may be negative", k.Attr.Pad)
		}
	}
	maps := 0
	switch k.Op {
	case OpBatchNorm, OpBatchNormBackward, OpSlice, OpPad, OpPadBackward, OpGlobalAvgPool, OpMaxPool, OpMaxPoolBackward, OpAvgPool, OpAvgPoolBackward:
		maps = 1
	case OpConcat:
		maps = 2
	case OpBiasBackward:
		if len(in[0]) != 2 {
			maps = 1
		}
	}
	for _, s := range in[:maps] {
		if !isFeatureMapShape(s) {
			return fmt.Errorf("invalid shape %v of a feature map: want [n,c,h,w] or [n,c,d,h,w]", s)
		}
	}
	return nil
}

func isFeatureMapShape(s []int) bool { return len(s) == 4 || len(s) == 5 }

// lookupShapes returns the shapes of the tensors with the given IDs. The shape for a negative ID
// is nil.
func lookupShapes(p *Program, ids []int) [][]int {
	s := make([][]int, len(ids))
	for i, id := range ids {
		if id >= 0 {
			s[i] = p.Tensors[id].Shape
		}
	}
	return s
}

// inferResultShapes returns the shapes of k's results for inputs with the shapes in. Where the
// inputs do not determine the shape, as for the data gradient of a convolution, it checks
// that the actual shape is possible, and returns it.
func inferResultShapes(p *Program, k Kernel, in [][]int) ([][]int, error) {
	out := lookupShapes(p, k.Out)
	switch k.Op {
	case OpConv, OpConvBackwardData, OpConvBackwardWeights, OpConvTranspose, OpConvTransposeBackwardData, OpConvTransposeBackwardWeights:
		return inferConvShapes(k, in, out[0])
	case OpLinear, OpLinearBackwardData, OpLinearBackwardWeights:
		return inferLinearShapes(k, in)
	case OpBiasBackward:
		return [][]int{{in[0][1]}}, nil
	case OpBatchNorm, OpBatchNormBackward:
		return inferBatchNormShapes(k, in)
	case OpReLU, OpLeakyReLU, OpTanh, OpCast:
		return in[:1], checkLeakyReLUSlope(k)
	case OpReLUBackward, OpAdd, OpLeakyReLUBackward, OpTanhBackward:
		return in[:1], errors.Join(checkEqualShapes(in...), checkLeakyReLUSlope(k))
	case OpMaxPool, OpMaxPoolBackward, OpAvgPool, OpAvgPoolBackward, OpGlobalAvgPool, OpGlobalAvgPoolBackward:
		return inferPoolShapes(k, in, out[0])
	case OpConcat, OpSlice, OpReshape, OpPad, OpPadBackward:
		return inferCopyShapes(k, in, out[0])
	case OpBCEWithLogits, OpBCEWithLogitsBackward, OpSoftmaxCrossEntropy, OpSoftmaxCrossEntropyBackward, OpDiceBCE, OpDiceBCEBackward,
		OpPixelCrossEntropy, OpPixelCrossEntropyBackward, OpL1, OpL1Backward:
		return inferLossShapes(p, k, in)
	}
	return nil, fmt.Errorf("unknown operation")
}

// checkLeakyReLUSlope checks that the slope of a leaky ReLU is positive, because the gradient infers
// the sign of the input from the output.
func checkLeakyReLUSlope(k Kernel) error {
	if (k.Op == OpLeakyReLU || k.Op == OpLeakyReLUBackward) && !(k.Attr.Slope > 0) {
		return fmt.Errorf("invalid slope %v: it must be above 0", k.Attr.Slope)
	}
	return nil
}

// inferPoolShapes is inferResultShapes for pooling kernels. out is the actual shape of the
// result.
func inferPoolShapes(k Kernel, in [][]int, out []int) ([][]int, error) {
	switch k.Op {
	case OpMaxPool, OpAvgPool:
		s, err := pooledShape(k, in[0])
		return [][]int{s}, err
	case OpMaxPoolBackward:
		s, err := pooledShape(k, in[0])
		if err != nil {
			return nil, err
		}
		return in[:1], checkEqualShapes(s, in[1], in[2])
	case OpAvgPoolBackward:
		s, err := pooledShape(k, out)
		if err != nil {
			return nil, err
		}
		return [][]int{out}, checkEqualShapes(s, in[0])
	case OpGlobalAvgPool:
		return [][]int{in[0][:2]}, nil
	}
	if !isFeatureMapShape(out) {
		return nil, fmt.Errorf("invalid shape %v of a feature map: want [n,c,h,w] or [n,c,d,h,w]", out)
	}
	return [][]int{out}, checkEqualShapes(in[0], out[:2])
}

// inferCopyShapes is inferResultShapes for kernels that copy elements, such as OpConcat. out is
// the actual shape of the result.
func inferCopyShapes(k Kernel, in [][]int, out []int) ([][]int, error) {
	switch k.Op {
	case OpConcat:
		a, b := slices.Clone(in[0]), slices.Clone(in[1])
		s := slices.Clone(a)
		s[1] += b[1]
		a[1], b[1] = 0, 0
		return [][]int{s}, checkEqualShapes(a, b)
	case OpSlice:
		s := slices.Clone(in[0])
		if out != nil {
			if len(out) != len(s) {
				return nil, fmt.Errorf("invalid slice: input has shape %v and result has shape %v, want the same number of dimensions", s, out)
			}
			s[1] = out[1]
		}
		if k.Attr.Offset < 0 || k.Attr.Offset+s[1] > in[0][1] {
			return nil, fmt.Errorf("invalid slice: got channels %d to %d (exclusive), but the input has %d channels", k.Attr.Offset, k.Attr.Offset+s[1], in[0][1])
		}
		return [][]int{s}, nil
	case OpReshape:
		if a, b := (Tensor{Shape: in[0]}), (Tensor{Shape: out}); len(out) == 0 || a.Elements() != b.Elements() {
			return nil, fmt.Errorf("shapes %v and %v have different numbers of elements", out, in[0])
		}
		return [][]int{out}, nil
	}
	spatial := len(in[0]) - 2
	if len(k.Attr.Pad) != spatial || len(k.Attr.PadEnd) != spatial || slices.Min(k.Attr.PadEnd) < 0 {
		return nil, fmt.Errorf("invalid padding %v before and %v after a map of shape %v", k.Attr.Pad, k.Attr.PadEnd, in[0])
	}
	s := slices.Clone(in[0])
	for i := range spatial {
		if k.Op == OpPad {
			s[2+i] += k.Attr.Pad[i] + k.Attr.PadEnd[i]
		} else {
			s[2+i] -= k.Attr.Pad[i] + k.Attr.PadEnd[i]
		}
	}
	return [][]int{s}, nil
}

func inferLossShapes(p *Program, k Kernel, in [][]int) ([][]int, error) {
	result := [][]int{{1}}
	if len(in) == 3 {
		if err := checkEqualShapes(in[2], []int{1}); err != nil {
			return nil, err
		}
		result = in[:1]
	}
	switch k.Op {
	case OpSoftmaxCrossEntropy, OpSoftmaxCrossEntropyBackward:
		switch {
		case len(in[0]) != 2:
			return nil, fmt.Errorf("logits have shape %v, want [n,k]", in[0])
		case p.Tensors[k.In[1]].Role != Input:
			return nil, fmt.Errorf("the target (tensor %d) is not an input of the program", k.In[1])
		case !(k.Attr.Smoothing >= 0 && k.Attr.Smoothing < 1):
			return nil, fmt.Errorf("label smoothing is %v, want at least 0 and below 1", k.Attr.Smoothing)
		}
		return result, checkEqualShapes(in[1], []int{in[0][0], 1})
	case OpDiceBCE, OpDiceBCEBackward:
		switch w := k.Attr.DiceWeight; {
		case !isFeatureMapShape(in[0]):
			return nil, fmt.Errorf("logits have shape %v, want [n,c,h,w] or [n,c,d,h,w]", in[0])
		case !(w > 0 && w <= 1):
			return nil, fmt.Errorf("got Dice weight %v, want above 0 and at most 1", w)
		}
	case OpPixelCrossEntropy, OpPixelCrossEntropyBackward:
		if err := checkPixelCrossEntropy(p, k, in[0]); err != nil {
			return nil, err
		}
		want := slices.Clone(in[0])
		want[1] = 1
		return result, checkEqualShapes(in[1], want)
	case OpL1, OpL1Backward:
		switch {
		case !(k.Attr.ExpWeight >= 0):
			return nil, fmt.Errorf("the weight of the exponential term is %v, want 0 or more", k.Attr.ExpWeight)
		case k.Attr.ExpWeight > 0 && len(in[0]) < 2:
			return nil, fmt.Errorf("a loss with an exponential term needs two dimensions or more, got shape %v", in[0])
		}
	}
	return result, checkEqualShapes(in[0], in[1])
}

// checkPixelCrossEntropy checks the attributes and the target of k for logits of the given shape.
func checkPixelCrossEntropy(p *Program, k Kernel, logits []int) error {
	switch a := k.Attr; {
	case !isFeatureMapShape(logits) || logits[1] < 2:
		return fmt.Errorf("logits have shape %v, want [n,k,h,w] or [n,k,d,h,w] with at least 2 classes", logits)
	case p.Tensors[k.In[1]].Role != Input:
		return fmt.Errorf("the target (tensor %d) is not an input of the program", k.In[1])
	case a.Ignore < logits[1]:
		return fmt.Errorf("the target of ignored pixels is %d, want %d or more for %d classes", a.Ignore, logits[1], logits[1])
	case a.ClassWeights != nil && (len(a.ClassWeights) != logits[1] || !(slices.Min(a.ClassWeights) >= 0)):
		return fmt.Errorf("the class weights are %v, want %d numbers of at least 0", a.ClassWeights, logits[1])
	case !(a.DiceWeight >= 0 && a.DiceWeight <= 1):
		return fmt.Errorf("got Dice weight %v, want 0 to 1", a.DiceWeight)
	}
	return nil
}

// inferLinearShapes is inferResultShapes for kernels that compute x, w or y in y = x·wᵀ.
func inferLinearShapes(k Kernel, in [][]int) ([][]int, error) {
	for _, s := range in[:2] {
		if len(s) != 2 {
			return nil, fmt.Errorf("got shape %v, want [n,k]", s)
		}
	}
	a, b := in[0], in[1]
	switch k.Op {
	case OpLinearBackwardData: // w [m,k], dy [n,m]
		return [][]int{{b[0], a[1]}}, checkEqualShapes(a[:1], b[1:])
	case OpLinearBackwardWeights: // x [n,k], dy [n,m]
		return [][]int{{b[1], a[1]}}, checkEqualShapes(a[:1], b[:1])
	}
	if len(in) == 3 {
		if err := checkEqualShapes(in[2], b[:1]); err != nil {
			return nil, err
		}
	}
	return [][]int{{a[0], b[0]}}, checkEqualShapes(a[1:], b[1:])
}

// inferConvShapes is inferResultShapes for kernels that compute one of x, w and y in y = conv(x, w)
// or y = conv_transpose(x, w) from the other two. out is the actual shape of the result.
func inferConvShapes(k Kernel, in [][]int, out []int) ([][]int, error) {
	var x, w, y []int
	switch k.Op {
	case OpConv, OpConvTranspose:
		x, w, y = in[0], in[1], out
	case OpConvBackwardData, OpConvTransposeBackwardData:
		x, w, y = out, in[0], in[1]
	default:
		x, w, y = in[0], out, in[1]
	}
	spatial := len(x) - 2
	if !isFeatureMapShape(x) || len(w) != len(x) || len(y) != len(x) || len(k.Attr.Stride) != spatial || len(k.Attr.Pad) != spatial {
		return nil, fmt.Errorf("x %v, w %v, y %v, stride %v and padding %v have inconsistent numbers of dimensions", x, w, y, k.Attr.Stride, k.Attr.Pad)
	}
	if len(in) == 3 {
		if err := checkEqualShapes(in[2], y[1:2]); err != nil {
			return nil, err
		}
	}
	big, small, wc := x, y, []int{w[1], w[0]} // channels of x and y in w
	if k.Op == OpConvTranspose || k.Op == OpConvTransposeBackwardData || k.Op == OpConvTransposeBackwardWeights {
		big, small, wc = y, x, []int{w[0], w[1]}
	}
	ok := x[0] == y[0] && x[1] == wc[0] && y[1] == wc[1]
	for i := range spatial {
		full := big[2+i] + 2*k.Attr.Pad[i] - w[2+i]
		ok = ok && full >= 0 && small[2+i] == full/k.Attr.Stride[i]+1
	}
	if !ok {
		return nil, fmt.Errorf("x %v, w %v and y %v do not fit stride %v and padding %v", x, w, y, k.Attr.Stride, k.Attr.Pad)
	}
	return [][]int{out}, nil
}

func inferBatchNormShapes(k Kernel, in [][]int) ([][]int, error) {
	c := []int{in[0][1]}
	vectors, maps := in[1:], [][]int{in[0]}
	if k.Op == OpBatchNormBackward {
		vectors, maps = slices.Concat(in[1:4], in[min(6, len(in)):]), append(maps, in[4:min(6, len(in))]...)
		if k.Attr.ReLU != (len(in) >= 6) {
			if k.Attr.ReLU {
				return nil, fmt.Errorf("the gradient of a batch norm with ReLU has %d inputs, want 6 or 7", len(in))
			}
			return nil, fmt.Errorf("the gradient of a batch norm without ReLU has %d inputs, want 5", len(in))
		}
	} else if k.Attr.Training != (len(k.Out) == 3) {
		if k.Attr.Training {
			return nil, fmt.Errorf("a batch norm in training has %d results, want 3", len(k.Out))
		}
		return nil, fmt.Errorf("a batch norm outside of training has %d results, want 1", len(k.Out))
	} else if k.Attr.Training && k.Attr.Saved || k.Attr.Sync && !k.Attr.Training {
		return nil, fmt.Errorf("invalid combination of batch norm attributes: training %v, saved %v, sync %v", k.Attr.Training, k.Attr.Saved, k.Attr.Sync)
	}
	if err := checkEqualShapes(append(slices.Clone(vectors), c)...); err != nil {
		return nil, err
	}
	return [][]int{in[0], c, c}, checkEqualShapes(maps...)
}

func pooledShape(k Kernel, x []int) ([]int, error) {
	a := k.Attr
	spatial := len(x) - 2
	padded := len(a.Pad) > 0 && k.Op != OpAvgPool && k.Op != OpAvgPoolBackward
	if !isFeatureMapShape(x) || len(a.Kernel) != spatial || len(a.Stride) != spatial || len(a.Pad) > 0 && (len(a.Pad) != spatial || !padded) || a.PadZeros && !padded {
		return nil, fmt.Errorf("invalid window %v, stride %v or padding %v for a map of shape %v", a.Kernel, a.Stride, a.Pad, x)
	}
	s := slices.Clone(x)
	for i := range spatial {
		pad := 0
		if padded {
			pad = a.Pad[i]
		}
		if pad >= a.Kernel[i] || x[2+i]+2*pad < a.Kernel[i] {
			return nil, fmt.Errorf("invalid window %v, stride %v or padding %v for a map of shape %v", a.Kernel, a.Stride, a.Pad, x)
		}
		s[2+i] = (x[2+i]+2*pad-a.Kernel[i])/a.Stride[i] + 1
	}
	return s, nil
}

func checkEqualShapes(shapes ...[]int) error {
	for _, s := range shapes[1:] {
		if !slices.Equal(s, shapes[0]) {
			return fmt.Errorf("shapes %v and %v differ", shapes[0], s)
		}
	}
	return nil
}
