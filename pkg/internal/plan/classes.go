package plan

import "fmt"

// Classes is the number of classes whose indexes the input of tensor id holds:
// those of the logits that OpSoftmaxCrossEntropy compares it with. 0: it holds
// no indexes.
func (p *Program) Classes(id int) int {
	for _, k := range p.Kernels {
		if k.Op == OpSoftmaxCrossEntropy && k.In[1] == id {
			return p.Tensors[k.In[0]].Shape[1]
		}
	}
	return 0
}

// CheckClasses reports the first of the values v of an input that is no index
// of one of the classes. An engine calls it before it takes the values, so that
// its kernels may index without looking.
func CheckClasses(name string, v []float32, classes int) error {
	for i, c := range v {
		if !(c >= 0 && c < float32(classes)) || c != float32(int(c)) {
			return fmt.Errorf("set input %q: class %v of sample %d: the network has classes 0 to %d: check the labels, or build the network with more classes", name, c, i, classes-1)
		}
	}
	return nil
}
