package cuda

import (
	"fmt"
	"slices"

	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
)

// channelMultiple divides the channel count of every padded tensor: cuDNN's tensor-core
// kernels read eight 16-bit elements at a time, and the engine's own kernels read 16 bytes
// at a time.
const channelMultiple = 8

// tensorStorageForm is the order in which the elements of a tensor are stored.
type tensorStorageForm uint8

const (
	vectorForm tensorStorageForm = iota // [c] padded; or a scalar
	mapForm                             // [n,c,spatial…] as [n][spatial…][c padded]; [n,c] has no spatial dimension
	denseForm                           // [n,c,spatial…] as [n][spatial…][c], not padded: for losses
	weightForm                          // [k,c,spatial…] as [k padded][spatial…][c padded]
	rawForm                             // bytes that only the engine's own kernels read; shape is the number of bytes
)

func (f tensorStorageForm) String() string {
	return [...]string{"vector", "feature map", "dense map", "weight", "scratch"}[f]
}

// layout describes how a tensor is stored, with any number of spatial dimensions.
type layout struct {
	form  tensorStorageForm
	typ   device.ElementType
	shape []int
}

// rows returns the size of the first dimension, including padding. It returns 1 for a vector.
func (l layout) rows() int {
	switch l.form {
	case mapForm, denseForm:
		return l.shape[0]
	case weightForm:
		return roundUp(l.shape[0], channelMultiple)
	}
	return 1
}

// spatialShape returns the dimensions after the channels, or nil for a vector.
func (l layout) spatialShape() []int {
	if l.form == vectorForm || l.form == rawForm {
		return nil
	}
	return l.shape[2:]
}

func (l layout) positionsPerRow() int { return elementCount(l.spatialShape()) }

func (l layout) channels() int {
	if l.form == vectorForm || l.form == rawForm {
		return elementCount(l.shape)
	}
	return l.shape[1]
}

func (l layout) paddedChannels() int {
	if l.form == denseForm {
		return l.channels()
	}
	return roundUp(l.channels(), channelMultiple)
}

func (l layout) positionCount() int { return l.rows() * l.positionsPerRow() }

// paddedElementCount returns the number of elements, including padding.
func (l layout) paddedElementCount() int { return l.rows() * l.positionsPerRow() * l.paddedChannels() }

// bytes returns the size in bytes, including padding.
func (l layout) bytes() int {
	if l.form == rawForm {
		return l.shape[0]
	}
	return l.paddedElementCount() * l.typ.Size()
}

// forEachStridedRun calls f for runs of elements that are evenly spaced in memory: element i <
// count of a run has the logical index logical+i and the memory index memory+i·stride.
func (l layout) forEachStridedRun(f func(logical, memory, count, stride int)) {
	if l.form == vectorForm {
		f(0, 0, elementCount(l.shape), 1)
		return
	}
	c, area, pad := l.channels(), l.positionsPerRow(), l.paddedChannels()
	for i := range l.shape[0] {
		for j := range c {
			f((i*c+j)*area, i*area*pad+j, area, pad)
		}
	}
}

// packToLayout copies src, in logical order, to dst, which has l.size() elements. It does not write the
// padding.
func packToLayout[T, S float32 | float64](l layout, dst []T, src []S) {
	l.forEachStridedRun(func(logical, memory, count, stride int) {
		for _, v := range src[logical : logical+count] {
			dst[memory] = T(v)
			memory += stride
		}
	})
}

// unpackFromLayout is the inverse of pack.
func unpackFromLayout[T, S float32 | float64](l layout, dst []T, src []S) {
	l.forEachStridedRun(func(logical, memory, count, stride int) {
		out := dst[logical : logical+count]
		for i := range out {
			out[i] = T(src[memory])
			memory += stride
		}
	})
}

// chooseLayouts chooses the layout of each tensor:
//   - Weights of convolutions, and sums of their gradients, have weightForm.
//   - Other tensors with channels are feature maps of type low.
//   - Vectors and the gradients of weights are fp32 in every precision. So are the targets of
//     losses: a mask of 0 and 1 would be exact in any type, but a soft mask would not.
func chooseLayouts(p *plan.Program, low device.ElementType) ([]layout, error) {
	list := make([]layout, len(p.Tensors))
	for i, t := range p.Tensors {
		list[i] = layout{form: mapForm, typ: low, shape: t.Shape}
		switch {
		case len(t.Shape) == 1:
			list[i].form, list[i].typ = vectorForm, device.F32
		case len(t.Shape) == 0:
			return nil, fmt.Errorf("tensor %q has no dimensions; the cuda engine supports shapes [c] and [n,c,…]", t.Name)
		}
	}
	weight := func(id int, typ device.ElementType) (changed bool) {
		if id < 0 || list[id].form == vectorForm || list[id].form == weightForm && list[id].typ == typ {
			return false
		}
		list[id].form, list[id].typ = weightForm, typ
		return true
	}
	for _, k := range p.Kernels {
		switch k.Op {
		case plan.OpConv, plan.OpConvTranspose, plan.OpLinear:
			weight(k.In[1], low)
		case plan.OpConvBackwardData, plan.OpConvTransposeBackwardData, plan.OpLinearBackwardData:
			weight(k.In[0], low)
		case plan.OpConvBackwardWeights, plan.OpConvTransposeBackwardWeights, plan.OpLinearBackwardWeights:
			weight(k.Out[0], device.F32)
		}
	}
	chooseLossLayouts(p, list)
	for changed := true; changed; {
		changed = false
		for _, k := range p.Kernels {
			if k.Op != plan.OpAdd && k.Op != plan.OpSlice {
				continue
			}
			ids := slices.Concat(k.In, k.Out)
			at := slices.IndexFunc(ids, func(id int) bool {
				return id >= 0 && list[id].form == weightForm && list[id].typ == device.F32
			})
			for _, id := range ids {
				if at >= 0 && weight(id, device.F32) {
					changed = true
				}
			}
		}
	}
	for _, q := range p.Params {
		if q.Grad < 0 {
			continue
		}
		w, g := list[q.Tensor], list[q.Grad]
		// Parameters that no convolution reads as weights need the form of their gradients,
		// too.
		if g.form != w.form || !slices.Equal(w.shape, g.shape) {
			return nil, fmt.Errorf("parameter %q is stored as a %s of shape %v, but its gradient as a %s of shape %v", q.Name, w.form, w.shape, g.form, g.shape)
		}
		list[q.Grad].typ = device.F32
	}
	return list, nil
}

// chooseLossLayouts chooses denseForm for the targets of losses, and for the logits of head
// convolutions and their gradients.
func chooseLossLayouts(p *plan.Program, list []layout) {
	dense := func(id int) {
		if id >= 0 && list[id].form == mapForm {
			list[id].form, list[id].typ = denseForm, device.F32
		}
	}
	for _, k := range p.Kernels {
		switch k.Op {
		case plan.OpBCEWithLogits, plan.OpBCEWithLogitsBackward, plan.OpL1, plan.OpL1Backward,
			plan.OpSoftmaxCrossEntropy, plan.OpSoftmaxCrossEntropyBackward, plan.OpDiceBCE, plan.OpDiceBCEBackward:
			dense(k.In[1])
		case plan.OpConv:
			if h := matchHeadConvolution(p, k); h.ok {
				dense(k.Out[0])
				dense(h.gradient)
			}
		}
	}
}

func elementCount(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }
