package plan

import "slices"

// ReceptiveField describes the part of its input that a network reads for one part of its output,
// in pixels or voxels. It applies to images that are larger than the receptive field.
type ReceptiveField struct {
	// Step is the largest product of strides in the network, such as 2^depth for a U-Net. A window
	// of an image gives the same output as the image, except near the window's border, only if the
	// window begins and ends at multiples of Step.
	Step int
	// Reach is the largest distance between an output and an input on which the output depends.
	// Padding also counts as an input if it would have another value in a larger image. Reach
	// applies to a part of the output that begins and ends at multiples of Step.
	Reach int
}

// Halo returns how far a window must extend beyond the part of its output that is used: Reach,
// rounded up to a multiple of Step.
func (f ReceptiveField) Halo() int { return (f.Reach + f.Step - 1) / f.Step * f.Step }

// ReceptiveField returns the receptive field of an output with respect to an input, over all
// spatial dimensions. ok is false if the field is not bounded, as after global pooling or a
// linear layer. ok is also false if the size of the input is not a multiple of the size of the
// output or of a layer between them, as with convolutions without padding.
func (p *Program) ReceptiveField(input, output string) (f ReceptiveField, ok bool) {
	in, out := p.FindTensor(Input, input), p.FindTensor(Output, output)
	if in < 0 || out < 0 || len(p.Tensors[in].Shape) < 3 || len(p.Tensors[out].Shape) != len(p.Tensors[in].Shape) {
		return f, false
	}
	f.Step = 1
	for d := range p.Tensors[in].Shape[2:] {
		reads := map[int]boundaryReach{out: {}}
		for _, k := range slices.Backward(p.Kernels[:p.Forward]) {
			b, read := reads[k.Out[0]]
			if !read {
				continue
			}
			b, sources, bounded := p.inputBoundaryReach(k, d, b)
			if !bounded {
				return ReceptiveField{}, false
			}
			for _, id := range sources {
				reads[id] = reads[id].union(b)
			}
		}
		if _, found := reads[in]; !found {
			return ReceptiveField{}, false
		}
		size := p.Tensors[in].Shape[2+d]
		for id, b := range reads {
			own := p.Tensors[id].Shape[2+d]
			if size%own != 0 {
				return ReceptiveField{}, false
			}
			for step := f.Step; f.Step%(size/own) != 0; { // the least common multiple
				f.Step += step
			}
			f.Reach = max(f.Reach, max(b.before, b.after)*(size/own))
		}
	}
	return f, true
}

// boundaryReach describes how far outputs read across a boundary in a tensor, along one
// dimension. Outputs after the boundary read `before` elements before it. Outputs before the
// boundary read `after` elements after it.
type boundaryReach struct{ before, after int }

func (b boundaryReach) union(c boundaryReach) boundaryReach {
	return boundaryReach{max(b.before, c.before), max(b.after, c.after)}
}

// inputBoundaryReach returns the boundaryReach of the inputs of k in spatial dimension d, given
// b, the boundaryReach of its output. sources are the activations that k reads. ok is false if
// the receptive field of k is not bounded.
func (p *Program) inputBoundaryReach(k Kernel, d int, b boundaryReach) (in boundaryReach, sources []int, ok bool) {
	size := func(id int) int { return p.Tensors[id].Shape[2+d] }
	number := func(v []int, otherwise int) int {
		if len(v) == 0 {
			return otherwise
		}
		return v[d]
	}
	x, y := k.In[0], k.Out[0]
	if len(p.Tensors[x].Shape) != len(p.Tensors[y].Shape) {
		return b, nil, false
	}
	pad, stride := number(k.Attr.Pad, 0), number(k.Attr.Stride, 1)
	switch k.Op {
	case OpConv, OpMaxPool, OpAvgPool:
		window := number(k.Attr.Kernel, 0)
		if k.Op == OpConv {
			window = size(k.In[1])
		}
		// Output o reads the inputs o·stride−pad … o·stride−pad+window−1. The last output before
		// the boundary is −1.
		in = boundaryReach{before: b.before*stride + pad, after: (b.after-1)*stride - pad + window}
		return in, k.In[:1], size(y)*stride == size(x)
	case OpConvTranspose:
		// Output o reads the inputs i with 0 ≤ o−i·stride+pad < window.
		window := size(k.In[1])
		in = boundaryReach{
			before: floorDivide(b.before-pad+window-1, stride),
			after:  floorDivide(b.after-1+pad, stride) + 1,
		}
		return in, k.In[:1], size(y) == size(x)*stride
	case OpConcat, OpAdd:
		return b, k.In, true
	case OpReLU, OpLeakyReLU, OpTanh, OpCast, OpSlice:
		return b, k.In[:1], true
	case OpBatchNorm:
		return b, k.In[:1], !k.Attr.Training
	case OpReshape:
		return b, k.In[:1], slices.Equal(p.Tensors[x].Shape, p.Tensors[y].Shape)
	}
	return b, nil, false
}

// floorDivide returns a/b, rounded down. b must be positive.
func floorDivide(a, b int) int {
	if a < 0 {
		return -((b - 1 - a) / b)
	}
	return a / b
}
