package cuda

import (
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/internal/device"
)

// noiseBytes is the size of the noise that is generated on the host. Larger blocks contain
// copies of it.
const noiseBytes = 1 << 20

// fillWithNoise fills the memory that convolutions read with noise. The time of a
// convolution depends on its operands' bits, since zeros need less power. Weights that
// other executables share are not changed.
func (x *executable) fillWithNoise() error {
	if x.engine.options.Convolution != "auto" {
		return nil
	}
	for _, b := range x.noiseBlocks() {
		if err := x.gpu.noise(b.block, b.typ); err != nil {
			return err
		}
	}
	return nil
}

// typed is memory that contains numbers of one type.
type typed struct {
	block
	typ device.Type
}

// noiseBlocks returns the memory that may be overwritten while a program is loaded.
func (x *executable) noiseBlocks() []typed {
	list := []typed{{x.memory.arena, x.low}, {x.memory.fixed, x.low}}
	if x.store.users == 1 { // nobody has set or trained these weights yet
		list = append(list, typed{x.store.masters, device.F32}, typed{x.store.copies, x.low})
	}
	return list
}

// noise fills memory with numbers between −1 and 1.
func (g *gpu) noise(b block, typ device.Type) error {
	if b.bytes == 0 {
		return nil
	}
	n := min(b.bytes, noiseBytes)
	v := make([]float32, n/int64(typ.Size()))
	state := uint32(1)
	for i := range v {
		state = state*1664525 + 1013904223 // linear congruential generator of Numerical Recipes
		v[i] = float32(int32(state)) / (1 << 31)
	}
	if err := g.write(b.ptr, number.Encode(typ, v)); err != nil {
		return err
	}
	for done := n; done < b.bytes; {
		m := min(done, b.bytes-done)
		if err := g.driver.MemcpyDtoDAsync(b.ptr.Add(done), b.ptr, m, g.compute); err != nil {
			return g.failed(err)
		}
		done += m
	}
	return nil
}

// clear sets the memory that tuning has overwritten to zero and writes the constants again.
func (x *executable) clear() error {
	list := []typed{{block: x.memory.grads}, {block: x.memory.scratch}, {block: x.memory.arena}}
	if x.engine.options.Convolution == "auto" {
		list = append(list, x.noiseBlocks()...)
	}
	for _, b := range list {
		if b.bytes == 0 {
			continue
		}
		if err := x.gpu.driver.MemsetD8Async(b.ptr, 0, b.bytes, x.gpu.compute); err != nil {
			return x.gpu.failed(err)
		}
	}
	return x.fillConstants()
}
