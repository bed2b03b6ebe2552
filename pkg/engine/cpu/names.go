package cpu

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/pkg/engine/cpu/internal/tensor"
)

const optimizerSlotPrefix = "optimizer."

// Names returns the names of all parameters, states and possible optimizer slots. They are
// the same for every optimizer, so that all ranks agree.
func (x *executable) Names() []string {
	names := append(append([]string(nil), x.store.paramSeq...), x.store.stateSeq...)
	for _, slot := range optimizerSlotNames() {
		for _, p := range x.store.paramSeq {
			names = append(names, optimizerSlotPrefix+slot+"."+p)
		}
	}
	return names
}

// parseSlotName parses the name of an optimizer slot, "optimizer.<slot>.<param>". r is the
// parameter's region. ok is false if name is not the name of a slot.
func (x *executable) parseSlotName(name string) (slot string, r tensorRegion, ok bool) {
	rest, isSlot := strings.CutPrefix(name, optimizerSlotPrefix)
	if !isSlot {
		return "", tensorRegion{}, false
	}
	for _, slot := range optimizerSlotNames() {
		if param, found := strings.CutPrefix(rest, slot+"."); found {
			r, ok := x.store.paramAt[param]
			return slot, r, ok
		}
	}
	return "", tensorRegion{}, false
}

// Get returns the values of a parameter, state or optimizer slot, in logical order. It returns
// zeros for a slot that does not exist yet.
func (x *executable) Get(name string) ([]float64, error) {
	read := func(r tensorRegion, flat []float32) []float64 {
		v := make([]float64, tensor.ElementCount(r.shape))
		tensor.Unpack(r.layout, r.shape, v, r.view(flat))
		return v
	}
	if r, ok := x.store.paramAt[name]; ok {
		return read(r, x.store.params), nil
	}
	if r, ok := x.store.stateAt[name]; ok {
		return read(r, x.store.states), nil
	}
	if slot, r, ok := x.parseSlotName(name); ok {
		if x.store.slots[slot] == nil {
			return make([]float64, tensor.ElementCount(r.shape)), nil
		}
		return read(r, x.store.slots[slot]), nil
	}
	return nil, fmt.Errorf("get tensor: the program has no parameter, state or optimizer slot %q", name)
}

// Set sets the values of a persistent tensor to v, which is in logical order.
func (x *executable) Set(name string, v []float64) error {
	slot, r, isSlot := x.parseSlotName(name)
	param, isParam := x.store.paramAt[name]
	state, isState := x.store.stateAt[name]
	switch {
	case isParam:
		r = param
	case isState:
		r = state
	case !isSlot:
		return fmt.Errorf("set tensor: the program has no parameter, state or optimizer slot %q", name)
	}
	if len(v) != tensor.ElementCount(r.shape) {
		return fmt.Errorf("set tensor %q: got %d values, want %d for shape %v", name, len(v), tensor.ElementCount(r.shape), r.shape)
	}
	flat := x.store.params
	switch {
	case isState:
		flat = x.store.states
	case isSlot:
		if x.store.slots[slot] == nil && !slices.ContainsFunc(v, func(f float64) bool { return f != 0 }) {
			return nil // a slot that does not exist is zero, and needs no memory
		}
		flat = x.store.ensureOptimizerSlot(slot)
	}
	tensor.Pack(r.layout, r.shape, r.view(flat), v)
	return nil
}

// Gradient returns a parameter's gradient after the last Step, in logical order.
func (x *executable) Gradient(param string) ([]float64, error) {
	r, ok := x.gradients.at[param]
	if !ok {
		return nil, fmt.Errorf("read gradient: the program computes no gradient of a parameter %q", param)
	}
	v := make([]float64, tensor.ElementCount(r.shape))
	tensor.Unpack(r.layout, r.shape, v, r.view(x.gradients.flat))
	return v, nil
}
