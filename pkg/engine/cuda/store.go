package cuda

import (
	"fmt"
	"slices"

	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
)

// region is where a persistent tensor lies in a flat buffer.
type region struct {
	offset int // elements
	layout layout
}

// regionAlign is the multiple, in elements, that the regions of a flat buffer are padded to.
const regionAlign = alignment / 4

// store holds what outlives a step: weights, states and the optimiser's slots.
// Executables that share have one store.
type store struct {
	gpu      *gpu
	low      device.Type // of the copies
	masters  block       // fp32
	copies   block       // of type low; none where that is fp32
	states   block
	slots    map[string]block // by the slot's name; laid out as masters
	elements int              // of masters

	paramAt, stateAt   map[string]region
	paramSeq, stateSeq []string // names, in the program's order

	stale bool // the copies are older than the weights
	users int  // executables
}

// slotNames lists the optimiser's slots in the order of Names, where they are
// "optimizer.<slot>.<param>".
func slotNames() []string { return []string{"m", "v", "momentum"} }

// paramOrder lists the program's parameters as they lie in the flat buffers:
// bucket after bucket, in a bucket as they become final, then those without.
func paramOrder(p *plan.Program) []int {
	var order []int
	for _, b := range p.Buckets {
		order = append(order, b.Params...)
	}
	for i := range p.Params {
		if p.Params[i].Bucket < 0 {
			order = append(order, i)
		}
	}
	return order
}

// newStore lays out the parameters and states of p, without memory.
func newStore(g *gpu, p *plan.Program, layouts []layout, low device.Type) (*store, error) {
	s := &store{gpu: g, low: low, paramAt: map[string]region{}, stateAt: map[string]region{}, slots: map[string]block{}, stale: true}
	for _, i := range paramOrder(p) {
		id := p.Params[i].Tensor
		name := p.Tensors[id].Name
		if _, double := s.paramAt[name]; double {
			return nil, fmt.Errorf("lay out parameters: two are named %q", name)
		}
		s.paramAt[name] = region{s.elements, layouts[id]}
		s.elements += roundUp(layouts[id].size(), regionAlign)
	}
	for _, q := range p.Params {
		s.paramSeq = append(s.paramSeq, p.Tensors[q.Tensor].Name)
	}
	size := 0
	for _, id := range p.States {
		name := p.Tensors[id].Name
		if _, double := s.stateAt[name]; double {
			return nil, fmt.Errorf("lay out states: two are named %q", name)
		}
		l := layouts[id]
		l.typ = device.F32 // statistics are fp32, whatever the precision
		s.stateAt[name] = region{size, l}
		s.stateSeq = append(s.stateSeq, name)
		size += roundUp(l.size(), regionAlign)
	}
	s.masters.bytes, s.states.bytes = int64(4*s.elements), int64(4*size)
	if low != device.F32 {
		s.copies.bytes = int64(low.Size() * s.elements)
	}
	return s, nil
}

// covers reports the first parameter or state of p that s lacks or has in
// another shape.
func (s *store) covers(p *plan.Program, layouts []layout) error {
	check := func(kind string, at map[string]region, id int) error {
		t := p.Tensors[id]
		r, ok := at[t.Name]
		switch {
		case !ok:
			return fmt.Errorf("share %ss: the executable to share with has no %s %q", kind, kind, t.Name)
		case !slices.Equal(r.layout.shape, t.Shape) || r.layout.form != layouts[id].form:
			return fmt.Errorf("share %ss: %q has shape %v here and %v in the executable to share with", kind, t.Name, t.Shape, r.layout.shape)
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

// allocate gives s its memory, all zero.
func (s *store) allocate() error {
	for _, b := range []*block{&s.masters, &s.copies, &s.states} {
		if err := s.gpu.allocate(b); err != nil {
			return err
		}
	}
	return nil
}

// slot returns the flat buffer of an optimiser slot and makes it, zero, where
// it does not exist yet.
func (s *store) slot(name string) (block, error) {
	if b, ok := s.slots[name]; ok {
		return b, nil
	}
	b := block{bytes: s.masters.bytes}
	if err := s.gpu.allocate(&b); err != nil {
		return b, err
	}
	s.slots[name] = b
	return b, nil
}

// bytes is the memory of s.
func (s *store) bytes() int64 {
	n := s.masters.bytes + s.copies.bytes + s.states.bytes
	for _, b := range s.slots {
		n += b.bytes
	}
	return n
}

// release frees s when its last user is gone.
func (s *store) release() error {
	if s.users--; s.users > 0 {
		return nil
	}
	var first error
	for _, b := range append([]block{s.masters, s.copies, s.states}, s.slotBlocks()...) {
		if err := s.gpu.free(b); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (s *store) slotBlocks() []block {
	var list []block
	for _, name := range slotNames() {
		if b, ok := s.slots[name]; ok {
			list = append(list, b)
		}
	}
	return list
}
