package reference

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/internal/plan"
)

// store contains the persistent tensors by name: parameters, states and the optimizer's
// slots. Programs that share parameters have the same store.
type store[T number] struct {
	names   []string // parameters and states, in the program's order
	params  []string
	shapes  map[string][]int
	tensors map[string][]T
	// slots contains the optimizer's slots by full name. An absent slot is zero: an
	// optimizer that is not used takes no memory.
	slots map[string][]T
}

// slotPrefixes returns the prefixes of the names of all slots.
func slotPrefixes() []string {
	return []string{"optimizer.m.", "optimizer.v.", "optimizer.momentum."}
}

// newStore allocates the parameters and states of p.
func newStore[T number](p *plan.Program) *store[T] {
	s := &store[T]{shapes: map[string][]int{}, tensors: map[string][]T{}, slots: map[string][]T{}}
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

// tensor returns the memory of t. It returns an error if the store lacks t or has another
// shape.
func (s *store[T]) tensor(t plan.Tensor) ([]T, error) {
	shape, ok := s.shapes[t.Name]
	if !ok {
		return nil, fmt.Errorf("share parameters: the other program has no tensor %s", t.Name)
	}
	if !slices.Equal(shape, t.Shape) {
		return nil, fmt.Errorf("share parameters: %s has shape %v in the other program, want %v", t.Name, shape, t.Shape)
	}
	return s.tensors[t.Name], nil
}

// slot returns the memory of an optimizer's slot, and allocates it at the first call.
func (s *store[T]) slot(prefix, param string) []T {
	name := prefix + param
	if s.slots[name] == nil {
		s.slots[name] = make([]T, len(s.tensors[param]))
	}
	return s.slots[name]
}

// all lists the names of all persistent tensors. The list does not depend on which slots
// are allocated, so that all ranks agree.
func (s *store[T]) all() []string {
	names := slices.Clone(s.names)
	for _, prefix := range slotPrefixes() {
		for _, p := range s.params {
			names = append(names, prefix+p)
		}
	}
	return names
}

// split splits the name of a slot; ok is false if name is not the name of a slot.
func (s *store[T]) split(name string) (prefix, param string, ok bool) {
	for _, prefix := range slotPrefixes() {
		if param, found := strings.CutPrefix(name, prefix); found && slices.Contains(s.params, param) {
			return prefix, param, true
		}
	}
	return "", "", false
}

// get returns a copy of a persistent tensor.
func (s *store[T]) get(name string) ([]float64, error) {
	if v, ok := s.tensors[name]; ok {
		return widen(v), nil
	}
	if _, param, ok := s.split(name); ok {
		if v := s.slots[name]; v != nil {
			return widen(v), nil
		}
		return make([]float64, len(s.tensors[param])), nil
	}
	return nil, fmt.Errorf("get %s: there is no parameter, state or optimiser slot of this name", name)
}

// set replaces the values of a persistent tensor. Setting a slot to zero does not
// allocate it.
func (s *store[T]) set(name string, v []float64) error {
	dst, ok := s.tensors[name]
	if !ok {
		prefix, param, found := s.split(name)
		if !found {
			return fmt.Errorf("set %s: there is no parameter, state or optimiser slot of this name", name)
		}
		if s.slots[name] == nil && len(v) == len(s.tensors[param]) && !slices.ContainsFunc(v, func(f float64) bool { return f != 0 }) {
			return nil
		}
		dst = s.slot(prefix, param)
	}
	if len(v) != len(dst) {
		return fmt.Errorf("set %s: %d values for %d elements", name, len(v), len(dst))
	}
	for i, f := range v {
		dst[i] = T(f)
	}
	return nil
}

// elements returns the number of values in the store.
func (s *store[T]) elements() int64 {
	n := 0
	for _, v := range s.tensors {
		n += len(v)
	}
	for _, v := range s.slots {
		n += len(v)
	}
	return int64(n)
}

// widen converts v to float64.
func widen[T number](v []T) []float64 {
	w := make([]float64, len(v))
	for i, f := range v {
		w[i] = float64(f)
	}
	return w
}

// fill sets every element of v to to.
func fill[T number](v []T, to T) {
	for i := range v {
		v[i] = to
	}
}
