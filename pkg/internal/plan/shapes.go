package plan

import (
	"errors"
	"fmt"
	"slices"
)

// validateShapes verifies k's attributes and shapes against the contract of
// its Op.
func validateShapes(p *Program, k Kernel) error {
	in := shapesOf(p, k.In)
	if err := validateAttr(k, in); err != nil {
		return err
	}
	want, err := resultShapes(p, k, in)
	if err != nil {
		return err
	}
	for i, id := range k.Out {
		if id >= 0 && !slices.Equal(p.Tensors[id].Shape, want[i]) {
			return fmt.Errorf("result %d has shape %v, not %v", i, p.Tensors[id].Shape, want[i])
		}
	}
	return nil
}

// validateAttr verifies what the rules of the operations rely on: windows,
// strides and paddings that are none, and feature maps of four dimensions.
func validateAttr(k Kernel, in [][]int) error {
	for _, v := range append(slices.Clone(k.Attr.Kernel), k.Attr.Stride...) {
		if v < 1 {
			return fmt.Errorf("window %v with stride %v: each must be at least 1", k.Attr.Kernel, k.Attr.Stride)
		}
	}
	for _, v := range k.Attr.Pad {
		if v < 0 {
			return fmt.Errorf("padding %v is negative", k.Attr.Pad)
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
		if !isMap(s) {
			return fmt.Errorf("a feature map has shape %v, not [n,c,h,w] or [n,c,d,h,w]", s)
		}
	}
	return nil
}

// isMap says whether s is the shape of an image's or a volume's feature map.
func isMap(s []int) bool { return len(s) == 4 || len(s) == 5 }

func shapesOf(p *Program, ids []int) [][]int {
	s := make([][]int, len(ids))
	for i, id := range ids {
		if id >= 0 {
			s[i] = p.Tensors[id].Shape
		}
	}
	return s
}

// resultShapes are the shapes that k's results must have, given its inputs'.
// Where an input's shape is not the result of the others (a transposed
// convolution has several), the result is taken as given and the forward
// relation is verified instead.
func resultShapes(p *Program, k Kernel, in [][]int) ([][]int, error) {
	out := shapesOf(p, k.Out)
	switch k.Op {
	case OpConv, OpConvBackwardData, OpConvBackwardWeights, OpConvTranspose, OpConvTransposeBackwardData, OpConvTransposeBackwardWeights:
		return convShapes(k, in, out[0])
	case OpLinear, OpLinearBackwardData, OpLinearBackwardWeights:
		return linearShapes(k, in)
	case OpBiasBackward:
		return [][]int{{in[0][1]}}, nil
	case OpBatchNorm, OpBatchNormBackward:
		return normShapes(k, in)
	case OpReLU, OpLeakyReLU, OpTanh, OpCast:
		return in[:1], slope(k)
	case OpReLUBackward, OpAdd, OpLeakyReLUBackward, OpTanhBackward:
		return in[:1], errors.Join(equal(in...), slope(k))
	case OpMaxPool, OpMaxPoolBackward, OpAvgPool, OpAvgPoolBackward, OpGlobalAvgPool, OpGlobalAvgPoolBackward:
		return poolShapes(k, in, out[0])
	case OpConcat, OpSlice, OpReshape, OpPad, OpPadBackward:
		return movedShapes(k, in, out[0])
	case OpBCEWithLogits, OpBCEWithLogitsBackward, OpSoftmaxCrossEntropy, OpSoftmaxCrossEntropyBackward, OpDiceBCE, OpDiceBCEBackward, OpL1, OpL1Backward:
		return lossShapes(p, k, in)
	}
	return nil, fmt.Errorf("operation is not known")
}

// slope verifies that of a leaky ReLU, whose sign its gradient relies on.
func slope(k Kernel) error {
	if (k.Op == OpLeakyReLU || k.Op == OpLeakyReLUBackward) && !(k.Attr.Slope > 0) {
		return fmt.Errorf("slope is %v: it must be above 0", k.Attr.Slope)
	}
	return nil
}

// poolShapes are those of the poolings; a gradient's input has the shape out.
func poolShapes(k Kernel, in [][]int, out []int) ([][]int, error) {
	switch k.Op {
	case OpMaxPool, OpAvgPool:
		s, err := pooled(k, in[0])
		return [][]int{s}, err
	case OpMaxPoolBackward:
		s, err := pooled(k, in[0])
		if err != nil {
			return nil, err
		}
		return in[:1], equal(s, in[1], in[2])
	case OpAvgPoolBackward:
		s, err := pooled(k, out)
		if err != nil {
			return nil, err
		}
		return [][]int{out}, equal(s, in[0])
	case OpGlobalAvgPool:
		return [][]int{in[0][:2]}, nil
	}
	if !isMap(out) {
		return nil, fmt.Errorf("a feature map has shape %v, not [n,c,h,w] or [n,c,d,h,w]", out)
	}
	return [][]int{out}, equal(in[0], out[:2])
}

// movedShapes are those of the operations that move elements alone.
func movedShapes(k Kernel, in [][]int, out []int) ([][]int, error) {
	switch k.Op {
	case OpConcat:
		a, b := slices.Clone(in[0]), slices.Clone(in[1])
		s := slices.Clone(a)
		s[1] += b[1]
		a[1], b[1] = 0, 0
		return [][]int{s}, equal(a, b)
	case OpSlice:
		s := slices.Clone(in[0])
		if out != nil {
			if len(out) != len(s) {
				return nil, fmt.Errorf("a slice of shape %v has shape %v", s, out)
			}
			s[1] = out[1]
		}
		if k.Attr.Offset < 0 || k.Attr.Offset+s[1] > in[0][1] {
			return nil, fmt.Errorf("channels %d to %d of %d", k.Attr.Offset, k.Attr.Offset+s[1], in[0][1])
		}
		return [][]int{s}, nil
	case OpReshape:
		if a, b := (Tensor{Shape: in[0]}), (Tensor{Shape: out}); len(out) == 0 || a.Elements() != b.Elements() {
			return nil, fmt.Errorf("shape %v has not the elements of %v", out, in[0])
		}
		return [][]int{out}, nil
	}
	spatial := len(in[0]) - 2
	if len(k.Attr.Pad) != spatial || len(k.Attr.PadEnd) != spatial || slices.Min(k.Attr.PadEnd) < 0 {
		return nil, fmt.Errorf("padding %v in front and %v behind %v", k.Attr.Pad, k.Attr.PadEnd, in[0])
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

// lossShapes are those of the losses and of their gradients.
func lossShapes(p *Program, k Kernel, in [][]int) ([][]int, error) {
	result := [][]int{{1}}
	if len(in) == 3 {
		if err := equal(in[2], []int{1}); err != nil {
			return nil, err
		}
		result = in[:1]
	}
	switch k.Op {
	case OpSoftmaxCrossEntropy, OpSoftmaxCrossEntropyBackward:
		if len(in[0]) != 2 || p.Tensors[k.In[1]].Role != Input || !(k.Attr.Smoothing >= 0 && k.Attr.Smoothing < 1) {
			return nil, fmt.Errorf("logits of shape %v with smoothing %v, whose classes are tensor %d: logits are [n,k], classes an input, and smoothing at least 0 and below 1",
				in[0], k.Attr.Smoothing, k.In[1])
		}
		return result, equal(in[1], []int{in[0][0], 1})
	case OpDiceBCE, OpDiceBCEBackward:
		if w := k.Attr.DiceWeight; !isMap(in[0]) || !(w > 0 && w <= 1) {
			return nil, fmt.Errorf("weight %v of the Dice term over %v", w, in[0])
		}
	case OpL1, OpL1Backward:
		if !(k.Attr.ExpWeight >= 0) || k.Attr.ExpWeight > 0 && len(in[0]) < 2 {
			return nil, fmt.Errorf("weight %v of the exponential term over %v", k.Attr.ExpWeight, in[0])
		}
	}
	return result, equal(in[0], in[1])
}

// linearShapes verifies y = x·wᵀ, whichever two of the three are inputs.
func linearShapes(k Kernel, in [][]int) ([][]int, error) {
	for _, s := range in[:2] {
		if len(s) != 2 {
			return nil, fmt.Errorf("shape %v is not [n,k]", s)
		}
	}
	a, b := in[0], in[1]
	switch k.Op {
	case OpLinearBackwardData: // w [m,k], dy [n,m]
		return [][]int{{b[0], a[1]}}, equal(a[:1], b[1:])
	case OpLinearBackwardWeights: // x [n,k], dy [n,m]
		return [][]int{{b[1], a[1]}}, equal(a[:1], b[:1])
	}
	if len(in) == 3 {
		if err := equal(in[2], b[:1]); err != nil {
			return nil, err
		}
	}
	return [][]int{{a[0], b[0]}}, equal(a[1:], b[1:])
}

// convShapes verifies y = conv(x, w) or y = conv_transpose(x, w), whichever
// two of the three are inputs.
func convShapes(k Kernel, in [][]int, out []int) ([][]int, error) {
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
	if !isMap(x) || len(w) != len(x) || len(y) != len(x) || len(k.Attr.Stride) != spatial || len(k.Attr.Pad) != spatial {
		return nil, fmt.Errorf("shapes %v, %v, %v with stride %v and padding %v", x, w, y, k.Attr.Stride, k.Attr.Pad)
	}
	if len(in) == 3 {
		if err := equal(in[2], y[1:2]); err != nil {
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

func normShapes(k Kernel, in [][]int) ([][]int, error) {
	c := []int{in[0][1]}
	vectors, maps := in[1:], [][]int{in[0]}
	if k.Op == OpBatchNormBackward {
		vectors, maps = slices.Concat(in[1:4], in[min(6, len(in)):]), append(maps, in[4:min(6, len(in))]...)
		if k.Attr.ReLU != (len(in) >= 6) {
			return nil, fmt.Errorf("%d inputs with ReLU %v", len(in), k.Attr.ReLU)
		}
	} else if k.Attr.Training != (len(k.Out) == 3) {
		return nil, fmt.Errorf("%d results with training %v", len(k.Out), k.Attr.Training)
	} else if k.Attr.Training && k.Attr.Saved || k.Attr.Sync && !k.Attr.Training {
		return nil, fmt.Errorf("training %v with saved statistics %v and synchronised ones %v", k.Attr.Training, k.Attr.Saved, k.Attr.Sync)
	}
	if err := equal(append(slices.Clone(vectors), c)...); err != nil {
		return nil, err
	}
	return [][]int{in[0], c, c}, equal(maps...)
}

// pooled is the shape of a pooling's result over x.
func pooled(k Kernel, x []int) ([]int, error) {
	a := k.Attr
	spatial := len(x) - 2
	padded := len(a.Pad) > 0 && k.Op != OpAvgPool && k.Op != OpAvgPoolBackward
	if !isMap(x) || len(a.Kernel) != spatial || len(a.Stride) != spatial || len(a.Pad) > 0 && (len(a.Pad) != spatial || !padded) || a.PadZeros && !padded {
		return nil, fmt.Errorf("window %v with stride %v and padding %v over %v", a.Kernel, a.Stride, a.Pad, x)
	}
	s := slices.Clone(x)
	for i := range spatial {
		pad := 0
		if padded {
			pad = a.Pad[i]
		}
		if pad >= a.Kernel[i] || x[2+i]+2*pad < a.Kernel[i] {
			return nil, fmt.Errorf("window %v with stride %v and padding %v over %v", a.Kernel, a.Stride, a.Pad, x)
		}
		s[2+i] = (x[2+i]+2*pad-a.Kernel[i])/a.Stride[i] + 1
	}
	return s, nil
}

func equal(shapes ...[]int) error {
	for _, s := range shapes[1:] {
		if !slices.Equal(s, shapes[0]) {
			return fmt.Errorf("shapes %v and %v differ", shapes[0], s)
		}
	}
	return nil
}
