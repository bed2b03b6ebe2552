package layer

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/internal/plan"
)

// Call is a kernel with its operands.
type Call struct {
	plan.Kernel
	Inputs, Outputs []tensor.Operand
	// fused is set if a concatenation or a slice is not stored, since the kernels that
	// read it take the values from its operands, or if a sum has been computed by
	// the gradient of a max pooling, or if that gradient is to be added to its output.
	Fused bool
	// tallied is set if the next kernel is a batch norm of the output, in training: it
	// needs the statistics.
	Tallied bool
	// norm is where a batch norm writes the constants with which the kernels that
	// read its output normalize; nil if the output is stored.
	Norm []float32
	// index says which element of its window each maximum of a max pooling is. If
	// indexed is set, another kernel writes it before.
	Index   []byte
	Indexed bool
}

// errorf is an error that names the kernel and its shapes.
func (c Call) errorf(format string, args ...any) error {
	list := func(ops []tensor.Operand) string {
		var s []string
		for _, o := range ops {
			if o.Present() {
				s = append(s, fmt.Sprint(o.Logical))
			}
		}
		return strings.Join(s, " ")
	}
	return fmt.Errorf("kernel %s %q with shapes %s → %s: %s", c.Op, c.Name, list(c.Inputs), list(c.Outputs), fmt.Sprintf(format, args...))
}

// triple reads an attribute with a number for each spatial dimension of a shape;
// the dimensions that it lacks get the number lacking.
func triple(v, shape []int, least, lacking int) (all [3]int, ok bool) {
	n := len(shape) - 2
	if len(v) != n || n < 1 || n > 3 || slices.Min(v) < least {
		return all, false
	}
	all = [3]int{lacking, lacking, lacking}
	copy(all[3-n:], v)
	return all, true
}
