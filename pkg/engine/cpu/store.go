package cpu

import (
	"fmt"
	"slices"

	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
	"lockstep/pkg/internal/plan"
)

// tensorRegion is the position of a persistent tensor in a flat buffer.
type tensorRegion struct {
	offset int // floats
	shape  []int
	layout tensor.Layout
}

func (r tensorRegion) size() int { return r.layout.FloatCount(r.shape) }

// tensorStore contains parameters, states and optimizer slots, which keep their values from step
// to step. Several executables may share a store.
type tensorStore struct {
	params, states     []float32
	paramAt, stateAt   map[string]tensorRegion
	paramSeq, stateSeq []string             // names in the order of the program
	slots              map[string][]float32 // by slot; each has the layout of params
}

// Names of the optimizer's slots, as in "optimizer.<slot>.<param>".
const (
	slotM        = "m"
	slotV        = "v"
	slotMomentum = "momentum"
)

// optimizerSlotNames lists the slots in the order of Names.
func optimizerSlotNames() []string { return []string{slotM, slotV, slotMomentum} }

// paramOrder returns the order of the program's parameters in the flat buffers: bucket by
// bucket, in the order of each bucket, then the parameters that are in no bucket.
func paramOrder(p *plan.Program) []int {
	var order []int
	seen := make([]bool, len(p.Params))
	for _, b := range p.Buckets {
		for _, i := range b.Params {
			if i >= 0 && i < len(seen) && !seen[i] {
				seen[i] = true
				order = append(order, i)
			}
		}
	}
	for i := range p.Params {
		if !seen[i] {
			order = append(order, i)
		}
	}
	return order
}

func newTensorStore(p *plan.Program, layouts []tensor.Layout) (*tensorStore, error) {
	s := &tensorStore{paramAt: map[string]tensorRegion{}, stateAt: map[string]tensorRegion{}, slots: map[string][]float32{}}
	total := 0
	for _, i := range paramOrder(p) {
		id := p.Params[i].Tensor
		name := p.Tensors[id].Name
		if _, double := s.paramAt[name]; double {
			return nil, fmt.Errorf("lay out parameters: duplicate name %q", name)
		}
		r := tensorRegion{total, slices.Clone(p.Tensors[id].Shape), layouts[id]}
		s.paramAt[name] = r
		total += tensor.RoundUp(r.size(), tensor.AlignmentFloats)
	}
	s.params = kernel.NewAlignedFloats(total)
	for _, q := range p.Params {
		s.paramSeq = append(s.paramSeq, p.Tensors[q.Tensor].Name)
	}
	total = 0
	for _, id := range p.States {
		name := p.Tensors[id].Name
		if _, double := s.stateAt[name]; double {
			return nil, fmt.Errorf("lay out states: duplicate name %q", name)
		}
		r := tensorRegion{total, slices.Clone(p.Tensors[id].Shape), layouts[id]}
		s.stateAt[name] = r
		s.stateSeq = append(s.stateSeq, name)
		total += tensor.RoundUp(r.size(), tensor.AlignmentFloats)
	}
	s.states = kernel.NewAlignedFloats(total)
	return s, nil
}

// checkContains returns an error for the first parameter or state of p that s does not
// contain, or contains with another shape or layout.
func (s *tensorStore) checkContains(p *plan.Program, layouts []tensor.Layout) error {
	check := func(kind string, at map[string]tensorRegion, id int) error {
		t := p.Tensors[id]
		r, ok := at[t.Name]
		switch {
		case !ok:
			return fmt.Errorf("share %ss: the executable to share with has no %s %q", kind, kind, t.Name)
		case !slices.Equal(r.shape, t.Shape) || r.layout != layouts[id]:
			return fmt.Errorf("share %ss: %q has shape %v here and %v in the executable to share with", kind, t.Name, t.Shape, r.shape)
		}
		return nil
	}
	for _, q := range p.Params {
		if err := check("parameter", s.paramAt, q.Tensor); err != nil {
			return err
		}
	}
	for _, id := range p.States {
		if err := check("state", s.stateAt, id); err != nil {
			return err
		}
	}
	return nil
}

// ensureOptimizerSlot allocates the flat buffer of an optimizer slot, all zeros, if it does not exist yet.
func (s *tensorStore) ensureOptimizerSlot(name string) []float32 {
	if s.slots[name] == nil {
		s.slots[name] = kernel.NewAlignedFloats(len(s.params))
	}
	return s.slots[name]
}

func (r tensorRegion) view(flat []float32) []float32 {
	n := r.size()
	return flat[r.offset : r.offset+n : r.offset+n]
}

func (s *tensorStore) bytes() int64 {
	n := len(s.params) + len(s.states)
	for _, b := range s.slots {
		n += len(b)
	}
	return 4 * int64(n)
}
