package plan

import "fmt"

// ClassCount returns the number of classes if the tensor with the given ID is an input of
// class indexes, which OpSoftmaxCrossEntropy reads. For other tensors it returns 0.
func (p *Program) ClassCount(id int) int {
	for _, k := range p.Kernels {
		if k.Op == OpSoftmaxCrossEntropy && k.In[1] == id {
			return p.Tensors[k.In[0]].Shape[1]
		}
	}
	return 0
}

// CheckClasses returns an error if a value in v is not a class index, an integer from 0 to
// classes−1. name is the name of the input. Engines call it before they set the input, so
// that their kernels need no bounds checks.
func CheckClasses[T float32 | float64](name string, v []T, classes int) error {
	for i, c := range v {
		if !(c >= 0 && c < T(classes)) || c != T(int(c)) {
			return fmt.Errorf("set input %q: invalid class %v of sample %d: the network has classes 0 to %d: check the labels, or build the network with more classes", name, c, i, classes-1)
		}
	}
	return nil
}
