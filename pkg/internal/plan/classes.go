package plan

import (
	"fmt"
	"slices"
)

// findClassLossKernel returns the kernel that reads the tensor with the given ID as class indexes. ok
// is false if there is no such kernel.
func (p *Program) findClassLossKernel(id int) (k Kernel, ok bool) {
	i := slices.IndexFunc(p.Kernels, func(k Kernel) bool {
		switch k.Op {
		case OpSoftmaxCrossEntropy, OpSoftmaxCrossEntropyBackward, OpPixelCrossEntropy, OpPixelCrossEntropyBackward:
			return k.In[1] == id
		}
		return false
	})
	if i < 0 {
		return Kernel{}, false
	}
	return p.Kernels[i], true
}

// ClassCount returns the number of classes if the tensor with the given ID is an input of
// class indexes, which OpSoftmaxCrossEntropy or OpPixelCrossEntropy reads. For other tensors
// it returns 0.
func (p *Program) ClassCount(id int) int {
	k, ok := p.findClassLossKernel(id)
	if !ok {
		return 0
	}
	return p.Tensors[k.In[0]].Shape[1]
}

// CheckClassIndexes checks v, the values of the tensor with the given ID, if the tensor is an
// input of class indexes. Each value must be an integer from 0 to the number of classes − 1.
// OpPixelCrossEntropy also allows Attr.Ignore. Engines call CheckClassIndexes before they set an
// input, so that their kernels need no bounds checks.
func CheckClassIndexes[T float32 | float64](p *Program, id int, v []T) error {
	k, ok := p.findClassLossKernel(id)
	if !ok {
		return nil
	}
	classes, ignored := p.Tensors[k.In[0]].Shape[1], k.Attr.Ignore // 0, which is a class, if none are ignored
	for i, c := range v {
		if c >= 0 && c < T(classes) && c == T(int(c)) || c == T(ignored) {
			continue
		}
		what, or := "sample", ""
		if ignored > 0 {
			what, or = "pixel", fmt.Sprintf(" (or %d: ignored)", ignored)
		}
		return fmt.Errorf("set input %q: invalid class %v of %s %d: the network has classes 0 to %d%s: check the labels, or build the network with more classes", p.Tensors[id].Name, c, what, i, classes-1, or)
	}
	return nil
}
