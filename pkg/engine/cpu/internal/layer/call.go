package layer

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/internal/plan"
)

// Operation is a kernel of a program with its operands and with decisions on how to compute it.
type Operation struct {
	plan.Kernel
	Inputs, Outputs []tensor.Operand
	// Fused changes how three kinds of operations are computed. A concatenation or a slice
	// is not computed; readers of its result read its operands. A gradient of a max pooling
	// is added to its output instead of overwriting it. A sum is not computed, because such
	// a gradient has already been added to its other operand.
	Fused bool
	// NeedsStatistics is true if the next operation is a batch norm in training whose input is
	// this operation's output.
	NeedsStatistics bool
	// Norm receives the constants of a batch norm whose output is not stored; readers of
	// the output normalize the input with them. Norm is nil if the output is stored.
	Norm []float32
	// Index contains, for each maximum of a max pooling, the index of the element in its
	// window. Indexed is set if an earlier operation writes Index.
	Index   []byte
	Indexed bool
}

func (c Operation) errorf(format string, args ...any) error {
	list := func(ops []tensor.Operand) string {
		var s []string
		for _, o := range ops {
			if o.IsPresent() {
				s = append(s, fmt.Sprint(o.Logical))
			}
		}
		return strings.Join(s, " ")
	}
	return fmt.Errorf("kernel %s %q with shapes %s → %s: %s", c.Op, c.Name, list(c.Inputs), list(c.Outputs), fmt.Sprintf(format, args...))
}

// attributePerAxis expands the values v of an attribute to depth, height and width; an axis
// that shape does not have gets the value missing. ok reports whether v has one value for each
// spatial dimension of shape, all at least minimum.
func attributePerAxis(v, shape []int, minimum, missing int) (all [3]int, ok bool) {
	n := len(shape) - 2
	if len(v) != n || n < 1 || n > 3 || slices.Min(v) < minimum {
		return all, false
	}
	all = [3]int{missing, missing, missing}
	copy(all[3-n:], v)
	return all, true
}
