package reference

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/internal/plan"
)

// store holds what persists between steps, by name: parameters, states and the
// optimiser's slots. Programs that share parameters have one store.
type store[T number] struct {
	names   []string // parameters and states, in the program's order
	params  []string
	shapes  map[string][]int
	tensors map[string][]T
	// slots are the optimiser's, by their full name. One that is absent is
	// zero: an optimiser that is not used takes no memory.
	slots map[string][]T
}

// slotPrefixes are the names of the slots that there can be.
func slotPrefixes() []string {
	return []string{"optimizer.m.", "optimizer.v.", "optimizer.momentum."}
}

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

// tensor is the memory of t, which must be there with t's shape.
func (s *store[T]) tensor(t plan.Tensor) ([]T, error) {
	shape, ok := s.shapes[t.Name]
	if !ok {
		return nil, fmt.Errorf("share parameters: the other program has no %s", t.Name)
	}
	if !slices.Equal(shape, t.Shape) {
		return nil, fmt.Errorf("share parameters: %s has shape %v there and %v here", t.Name, shape, t.Shape)
	}
	return s.tensors[t.Name], nil
}

// slot is the memory of an optimiser's slot, made when it is first asked for.
func (s *store[T]) slot(prefix, param string) []T {
	name := prefix + param
	if s.slots[name] == nil {
		s.slots[name] = make([]T, len(s.tensors[param]))
	}
	return s.slots[name]
}

// all lists every persistent name: always the same ones, so that ranks agree.
func (s *store[T]) all() []string {
	names := slices.Clone(s.names)
	for _, prefix := range slotPrefixes() {
		for _, p := range s.params {
			names = append(names, prefix+p)
		}
	}
	return names
}

// split takes the name of a slot apart.
func (s *store[T]) split(name string) (prefix, param string, ok bool) {
	for _, prefix := range slotPrefixes() {
		if param, found := strings.CutPrefix(name, prefix); found && slices.Contains(s.params, param) {
			return prefix, param, true
		}
	}
	return "", "", false
}

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

// elements is how many numbers the store holds.
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

func widen[T number](v []T) []float64 {
	w := make([]float64, len(v))
	for i, f := range v {
		w[i] = float64(f)
	}
	return w
}

func fill[T number](v []T, to T) {
	for i := range v {
		v[i] = to
	}
}
