package cpu

import (
	"slices"

	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/internal/plan"
)

// matchMaxPoolGradients finds, for each gradient of a max pooling, the kernel that stores the
// indexes of its maxima. That is the gradient's kernel itself if the program has no forward
// pass.
func (l *loader) matchMaxPoolGradients() {
	kernels := l.program.Kernels
	l.pooling = make([]int, len(kernels))
	for at, k := range kernels {
		l.pooling[at] = at
		if k.Op != plan.OpMaxPoolBackward {
			continue
		}
		for i, f := range kernels[:at] {
			if f.Op == plan.OpMaxPool && f.In[0] == k.In[0] && f.Out[0] == k.In[1] &&
				slices.Equal(f.Attr.Kernel, k.Attr.Kernel) && slices.Equal(f.Attr.Stride, k.Attr.Stride) &&
				slices.Equal(f.Attr.Pad, k.Attr.Pad) && f.Attr.PadZeros == k.Attr.PadZeros {
				l.pooling[at] = i
			}
		}
	}
}

// listMaxPoolIndexes returns the kernels that store indexes of maxima, and the lifetime of each
// kernel's indexes.
func (l *loader) listMaxPoolIndexes() (kernels []int, lifetimes []plan.BufferLifetime) {
	place := map[int]int{} // kernel → position in the lists
	for at, k := range l.program.Kernels {
		if k.Op != plan.OpMaxPool && k.Op != plan.OpMaxPoolBackward {
			continue
		}
		from := l.pooling[at]
		i, ok := place[from]
		if !ok {
			y := k.Out[0]
			if k.Op == plan.OpMaxPoolBackward {
				y = k.In[1]
			}
			i = len(kernels)
			place[from] = i
			size := l.layouts[y].FloatCount(l.program.Tensors[y].Shape) / 4 // bytes
			kernels, lifetimes = append(kernels, at), append(lifetimes, plan.BufferLifetime{Size: tensor.RoundUp(size, tensor.AlignmentFloats), First: at})
		}
		lifetimes[i].Last = at
	}
	return kernels, lifetimes
}
