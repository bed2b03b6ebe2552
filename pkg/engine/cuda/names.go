package cuda

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/engine/cuda/internal/number"
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/device"
)

const optimizerSlotPrefix = "optimizer."

// Names returns all parameters and states, and every slot that any optimizer may have, so
// that the list is the same on all ranks.
func (x *executable) Names() []string {
	names := append(slices.Clone(x.store.paramSeq), x.store.stateSeq...)
	for _, slot := range optimizerSlotNames() {
		for _, p := range x.store.paramSeq {
			names = append(names, optimizerSlotPrefix+slot+"."+p)
		}
	}
	return names
}

// persistentTensor is the location of a tensor that outlives a step.
type persistentTensor struct {
	region
	slot string      // name of an optimizer slot; empty for a parameter or state
	flat memoryBlock // flat buffer that contains the tensor; not allocated for a slot that is not in use yet
}

func (s *tensorStore) findTensor(name string) (persistentTensor, error) {
	if r, ok := s.paramAt[name]; ok {
		return persistentTensor{region: r, flat: s.masters}, nil
	}
	if r, ok := s.stateAt[name]; ok {
		return persistentTensor{region: r, flat: s.states}, nil
	}
	if rest, ok := strings.CutPrefix(name, optimizerSlotPrefix); ok {
		for _, slot := range optimizerSlotNames() {
			if param, found := strings.CutPrefix(rest, slot+"."); found {
				if r, ok := s.paramAt[param]; ok {
					return persistentTensor{r, slot, s.slots[slot]}, nil
				}
			}
		}
	}
	return persistentTensor{}, fmt.Errorf("the program has no parameter, state or optimizer slot %q", name)
}

func (r region) address(flat driver.Ptr) driver.Ptr { return flat.Add(int64(4 * r.offset)) }

func (g *gpu) readFloats(r region, flat driver.Ptr) ([]float64, error) {
	data, err := g.readMemory(r.address(flat), int64(4*r.layout.paddedElementCount()))
	if err != nil {
		return nil, err
	}
	v := make([]float64, elementCount(r.layout.shape))
	unpackFromLayout(r.layout, v, number.Decode(device.F32, data))
	return v, nil
}

// Get returns the values of a persistent tensor, in logical order. It returns zeros for a slot
// that is not in use yet.
func (x *executable) Get(name string) (v []float64, err error) {
	err = x.do(func() error {
		p, err := x.store.findTensor(name)
		if err != nil {
			return err
		}
		if p.flat.ptr == 0 {
			v = make([]float64, elementCount(p.layout.shape))
			return nil
		}
		v, err = x.gpu.readFloats(p.region, p.flat.ptr)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("get tensor: %w", err)
	}
	return v, nil
}

func (x *executable) Set(name string, v []float64) error {
	err := x.do(func() error {
		p, err := x.store.findTensor(name)
		if err != nil {
			return err
		}
		l := p.layout
		if len(v) != elementCount(l.shape) {
			return fmt.Errorf("%q: got %d values, want %d for shape %v", name, len(v), elementCount(l.shape), l.shape)
		}
		if p.slot != "" && p.flat.ptr == 0 {
			if !slices.ContainsFunc(v, func(f float64) bool { return f != 0 }) {
				return nil // an unused slot is equivalent to zeros
			}
			if p.flat, err = x.store.ensureOptimizerSlot(p.slot); err != nil {
				return err
			}
		}
		memory := make([]float32, l.paddedElementCount())
		packToLayout(l, memory, v)
		x.store.stale = true
		return x.gpu.writeMemory(p.address(p.flat.ptr), number.Encode(device.F32, memory))
	})
	if err != nil {
		return fmt.Errorf("set tensor: %w", err)
	}
	return nil
}

// Gradient returns a parameter's gradient in the last Step in logical order, divided by the
// loss scale and clipped.
func (x *executable) Gradient(param string) (v []float64, err error) {
	err = x.do(func() error {
		r, ok := x.exchange.gradAt[param]
		if !ok {
			return fmt.Errorf("the program computes no gradient for %q", param)
		}
		if v, err = x.gpu.readFloats(r, x.memory.grads.ptr); err != nil {
			return err
		}
		for i := range v {
			v[i] *= x.last.clip / x.last.scale // exact without clipping, since the scale is a power of two
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read gradient: %w", err)
	}
	return v, nil
}
