package reference

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/internal/plan"
)

// tensorStore contains the persistent tensors by name: parameters, states and optimizer slots.
// Programs that share parameters have the same store.
type tensorStore[T number] struct {
	names   []string // parameters and states, in the program's order
	params  []string
	shapes  map[string][]int
	tensors map[string][]T
	// slots contains the optimizer slots by full name. A slot that is not in the map is
	// zero, so that unused optimizers need no memory.
	slots map[string][]T
}

func optimizerSlotPrefixes() []string {
	return []string{"optimizer.m.", "optimizer.v.", "optimizer.momentum."}
}

func newTensorStore[T number](p *plan.Program) *tensorStore[T] {
	s := &tensorStore[T]{shapes: map[string][]int{}, tensors: map[string][]T{}, slots: map[string][]T{}}
	for _, t := range p.Tensors {
		if t.Role != plan.Parameter && t.Role != plan.State {
			continue
		}
		s.names = append(s.names, t.Name)
		if t.Role == plan.Parameter {
			s.params = append(s.params, t.Name)
		}
		s.shapes[t.Name] = t.Shape
		s.tensors[t.Name] = make([]T, t.Elements())
	}
	return s
}

// findTensor returns the memory of t. It returns an error if the store does not contain t, or
// contains it with another shape.
func (s *tensorStore[T]) findTensor(t plan.Tensor) ([]T, error) {
	shape, ok := s.shapes[t.Name]
	if !ok {
		return nil, fmt.Errorf("share parameters: the other program has no tensor %s", t.Name)
	}
	if !slices.Equal(shape, t.Shape) {
		return nil, fmt.Errorf("share parameters: %s has shape %v in the other program, want %v", t.Name, shape, t.Shape)
	}
	return s.tensors[t.Name], nil
}

// ensureOptimizerSlot returns an optimizer slot of a parameter, and allocates it if it does not exist
// yet.
func (s *tensorStore[T]) ensureOptimizerSlot(prefix, param string) []T {
	name := prefix + param
	if s.slots[name] == nil {
		s.slots[name] = make([]T, len(s.tensors[param]))
	}
	return s.slots[name]
}

// allNames returns the names of all persistent tensors. They do not depend on which slots
// are allocated, so that all ranks agree.
func (s *tensorStore[T]) allNames() []string {
	names := slices.Clone(s.names)
	for _, prefix := range optimizerSlotPrefixes() {
		for _, p := range s.params {
			names = append(names, prefix+p)
		}
	}
	return names
}

// parseSlotName splits the name of an optimizer slot into its prefix and the name of the
// parameter. ok is false if name is not the name of a slot.
func (s *tensorStore[T]) parseSlotName(name string) (prefix, param string, ok bool) {
	for _, prefix := range optimizerSlotPrefixes() {
		if param, found := strings.CutPrefix(name, prefix); found && slices.Contains(s.params, param) {
			return prefix, param, true
		}
	}
	return "", "", false
}

// get returns the values of a persistent tensor. It returns zeros for a slot that does not
// exist yet.
func (s *tensorStore[T]) get(name string) ([]float64, error) {
	if v, ok := s.tensors[name]; ok {
		return toFloat64(v), nil
	}
	if _, param, ok := s.parseSlotName(name); ok {
		if v := s.slots[name]; v != nil {
			return toFloat64(v), nil
		}
		return make([]float64, len(s.tensors[param])), nil
	}
	return nil, fmt.Errorf("get tensor: the program has no parameter, state or optimizer slot %q", name)
}

// set sets the values of a persistent tensor. It does not allocate a slot that would be all
// zeros.
func (s *tensorStore[T]) set(name string, v []float64) error {
	dst, ok := s.tensors[name]
	if !ok {
		prefix, param, found := s.parseSlotName(name)
		if !found {
			return fmt.Errorf("set tensor: the program has no parameter, state or optimizer slot %q", name)
		}
		if s.slots[name] == nil && len(v) == len(s.tensors[param]) && !slices.ContainsFunc(v, func(f float64) bool { return f != 0 }) {
			return nil
		}
		dst = s.ensureOptimizerSlot(prefix, param)
	}
	if len(v) != len(dst) {
		return fmt.Errorf("set tensor %q: got %d values, want %d", name, len(v), len(dst))
	}
	for i, f := range v {
		dst[i] = T(f)
	}
	return nil
}

func (s *tensorStore[T]) elementCount() int64 {
	n := 0
	for _, v := range s.tensors {
		n += len(v)
	}
	for _, v := range s.slots {
		n += len(v)
	}
	return int64(n)
}

func toFloat64[T number](v []T) []float64 {
	w := make([]float64, len(v))
	for i, f := range v {
		w[i] = float64(f)
	}
	return w
}

func fill[T number](v []T, x T) {
	for i := range v {
		v[i] = x
	}
}
