package plan

import (
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
	case OpBiasBackward, OpBatchNorm, OpBatchNormBackward, OpSlice:
		maps = 1
	case OpConcat:
		maps = 2
	}
	for _, s := range in[:maps] {
		if len(s) != 4 {
			return fmt.Errorf("a feature map has shape %v, not [n,c,h,w]", s)
		}
	}
	return nil
}

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
	switch k.Op {
	case OpConv, OpConvBackwardData, OpConvBackwardWeights, OpConvTranspose, OpConvTransposeBackwardData, OpConvTransposeBackwardWeights:
		return convShapes(p, k, in)
	case OpBiasBackward:
		return [][]int{{in[0][1]}}, nil
	case OpBatchNorm, OpBatchNormBackward:
		return normShapes(k, in)
	case OpReLU:
		return in[:1], nil
	case OpReLUBackward, OpAdd:
		return in[:1], equal(in...)
	case OpMaxPool:
		s, err := pooled(k, in[0])
		return [][]int{s}, err
	case OpMaxPoolBackward:
		s, err := pooled(k, in[0])
		if err != nil {
			return nil, err
		}
		return in[:1], equal(s, in[1], in[2])
	case OpConcat:
		a, b := in[0], in[1]
		s := []int{a[0], a[1] + b[1], a[2], a[3]}
		return [][]int{s}, equal([]int{a[0], a[2], a[3]}, []int{b[0], b[2], b[3]})
	case OpSlice:
		s := slices.Clone(in[0])
		if k.Out[0] >= 0 {
			if len(p.Tensors[k.Out[0]].Shape) != 4 {
				return nil, fmt.Errorf("a slice has shape %v, not [n,c,h,w]", p.Tensors[k.Out[0]].Shape)
			}
			s[1] = p.Tensors[k.Out[0]].Shape[1]
		}
		if k.Attr.Offset < 0 || k.Attr.Offset+s[1] > in[0][1] {
			return nil, fmt.Errorf("channels %d to %d of %d", k.Attr.Offset, k.Attr.Offset+s[1], in[0][1])
		}
		return [][]int{s}, nil
	case OpBCEWithLogits:
		return [][]int{{1}}, equal(in[0], in[1])
	case OpBCEWithLogitsBackward:
		if err := equal(in[2], []int{1}); err != nil {
			return nil, err
		}
		return in[:1], equal(in[0], in[1])
	}
	return nil, fmt.Errorf("operation is not known")
}

// convShapes verifies y = conv(x, w) or y = conv_transpose(x, w), whichever
// two of the three are inputs.
func convShapes(p *Program, k Kernel, in [][]int) ([][]int, error) {
	if k.Out[0] < 0 {
		return nil, fmt.Errorf("no result")
	}
	out := p.Tensors[k.Out[0]].Shape
	var x, w, y []int
	switch k.Op {
	case OpConv, OpConvTranspose:
		x, w, y = in[0], in[1], out
	case OpConvBackwardData, OpConvTransposeBackwardData:
		x, w, y = out, in[0], in[1]
	default:
		x, w, y = in[0], out, in[1]
	}
	if len(x) != 4 || len(w) != 4 || len(y) != 4 || len(k.Attr.Stride) != 2 || len(k.Attr.Pad) != 2 {
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
	for i := range 2 {
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
	}
	if err := equal(append(slices.Clone(vectors), c)...); err != nil {
		return nil, err
	}
	return [][]int{in[0], c, c}, equal(maps...)
}

func pooled(k Kernel, x []int) ([]int, error) {
	if len(k.Attr.Kernel) != 2 || len(k.Attr.Stride) != 2 || len(x) != 4 || x[2] < k.Attr.Kernel[0] || x[3] < k.Attr.Kernel[1] {
		return nil, fmt.Errorf("window %v with stride %v over %v", k.Attr.Kernel, k.Attr.Stride, x)
	}
	return []int{x[0], x[1], (x[2]-k.Attr.Kernel[0])/k.Attr.Stride[0] + 1, (x[3]-k.Attr.Kernel[1])/k.Attr.Stride[1] + 1}, nil
}

func equal(shapes ...[]int) error {
	for _, s := range shapes[1:] {
		if !slices.Equal(s, shapes[0]) {
			return fmt.Errorf("shapes %v and %v differ", shapes[0], s)
		}
	}
	return nil
}
