package cuda

import (
	"fmt"
	"slices"

	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
)

// region is the position of a persistent tensor in a flat buffer.
type region struct {
	offset int // elements
	layout layout
}

// regionAlignmentElements is the alignment of regions in flat buffers, in fp32 elements.
const regionAlignmentElements = tensorAlignmentBytes / 4

// tensorStore contains everything that outlives a step: weights, states and optimizer slots.
// Executables that share parameters use the same store.
type tensorStore struct {
	gpu      *gpu
	low      device.ElementType // type of the copies
	masters  memoryBlock        // fp32 weights
	copies   memoryBlock        // copies of the weights in type low; not allocated if low is fp32
	states   memoryBlock
	slots    map[string]memoryBlock // by the slot's name; same layout as masters
	elements int                    // number of elements of masters

	paramAt, stateAt   map[string]region
	paramSeq, stateSeq []string // names, in the program's order

	stale bool // the weights have been set since the copies were made
	users int  // number of executables that use the store
}

// optimizerSlotNames returns the names of the optimizer slots, in the order in which Names lists them.
func optimizerSlotNames() []string { return []string{"m", "v", "momentum"} }

// paramOrder returns the indexes of the program's parameters in the order of the flat buffers:
// bucket after bucket, and within a bucket in the order in which gradients become final.
// Parameters without gradients come last.
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

// newTensorStore returns a store for the parameters and states of p. It does not allocate GPU
// memory yet.
func newTensorStore(g *gpu, p *plan.Program, layouts []layout, low device.ElementType) (*tensorStore, error) {
	s := &tensorStore{gpu: g, low: low, paramAt: map[string]region{}, stateAt: map[string]region{}, slots: map[string]memoryBlock{}, stale: true}
	for _, i := range paramOrder(p) {
		id := p.Params[i].Tensor
		name := p.Tensors[id].Name
		if _, double := s.paramAt[name]; double {
			return nil, fmt.Errorf("lay out parameters: duplicate name %q", name)
		}
		s.paramAt[name] = region{s.elements, layouts[id]}
		s.elements += roundUp(layouts[id].paddedElementCount(), regionAlignmentElements)
	}
	for _, q := range p.Params {
		s.paramSeq = append(s.paramSeq, p.Tensors[q.Tensor].Name)
	}
	size := 0
	for _, id := range p.States {
		name := p.Tensors[id].Name
		if _, double := s.stateAt[name]; double {
			return nil, fmt.Errorf("lay out states: duplicate name %q", name)
		}
		l := layouts[id]
		l.typ = device.F32 // statistics are fp32 in every precision
		s.stateAt[name] = region{size, l}
		s.stateSeq = append(s.stateSeq, name)
		size += roundUp(l.paddedElementCount(), regionAlignmentElements)
	}
	s.masters.bytes, s.states.bytes = int64(4*s.elements), int64(4*size)
	if low != device.F32 {
		s.copies.bytes = int64(low.Size() * s.elements)
	}
	return s, nil
}

// checkContains returns an error for the first parameter or state of p that s does not
// contain, or contains with another shape or layout.
func (s *tensorStore) checkContains(p *plan.Program, layouts []layout) error {
	check := func(kind string, at map[string]region, id int) error {
		t := p.Tensors[id]
		r, ok := at[t.Name]
		switch {
		case !ok:
			return fmt.Errorf("share executable: the shared executable has no %s %q", kind, t.Name)
		case !slices.Equal(r.layout.shape, t.Shape) || r.layout.form != layouts[id].form:
			return fmt.Errorf("share executable: %s %q has shape %v, but %v in the shared executable", kind, t.Name, t.Shape, r.layout.shape)
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

func (s *tensorStore) allocateBuffers() error {
	for _, b := range []*memoryBlock{&s.masters, &s.copies, &s.states} {
		if err := s.gpu.allocate(b); err != nil {
			return err
		}
	}
	return nil
}

// ensureOptimizerSlot returns the buffer of an optimizer slot. If the slot does not exist yet, it
// allocates the buffer and fills it with zeros.
func (s *tensorStore) ensureOptimizerSlot(name string) (memoryBlock, error) {
	if b, ok := s.slots[name]; ok {
		return b, nil
	}
	b := memoryBlock{bytes: s.masters.bytes}
	if err := s.gpu.allocate(&b); err != nil {
		return b, err
	}
	s.slots[name] = b
	return b, nil
}

func (s *tensorStore) bytes() int64 {
	n := s.masters.bytes + s.copies.bytes + s.states.bytes
	for _, b := range s.slots {
		n += b.bytes
	}
	return n
}

// release removes one user of s, and frees s if it was the last.
func (s *tensorStore) release() error {
	if s.users--; s.users > 0 {
		return nil
	}
	var first error
	for _, b := range append([]memoryBlock{s.masters, s.copies, s.states}, s.slotBlocks()...) {
		if err := s.gpu.free(b); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (s *tensorStore) slotBlocks() []memoryBlock {
	var list []memoryBlock
	for _, name := range optimizerSlotNames() {
		if b, ok := s.slots[name]; ok {
			list = append(list, b)
		}
	}
	return list
}
