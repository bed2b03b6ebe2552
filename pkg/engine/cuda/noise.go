package cuda

import (
	"lockstep/pkg/engine/cuda/internal/number"
	"lockstep/pkg/internal/device"
)

// noisePatternBytes is the size of the noise that is generated on the host. The GPU repeats it
// to fill larger blocks.
const noisePatternBytes = 1 << 20

// fillOperandsWithNoise fills the memory that convolutions read with noise, because the time of a
// convolution depends on the bits of its operands (zeros need less power). It does not
// change weights that other executables share.
func (x *executable) fillOperandsWithNoise() error {
	if x.engine.options.Convolution != "auto" {
		return nil
	}
	for _, b := range x.noiseBlocks() {
		if err := x.gpu.fillNoise(b.memoryBlock, b.typ); err != nil {
			return err
		}
	}
	return nil
}

type typedBlock struct {
	memoryBlock
	typ device.ElementType
}

// noiseBlocks returns the memory blocks that loading may overwrite with noise, with the element
// type of each.
func (x *executable) noiseBlocks() []typedBlock {
	list := []typedBlock{{x.memory.arena, x.low}, {x.memory.fixed, x.low}}
	if x.store.users == 1 { // no other executable uses these weights
		list = append(list, typedBlock{x.store.masters, device.F32}, typedBlock{x.store.copies, x.low})
	}
	return list
}

// fillNoise fills b with pseudo-random numbers between −1 and 1, as elements of type typ.
func (g *gpu) fillNoise(b memoryBlock, typ device.ElementType) error {
	if b.bytes == 0 {
		return nil
	}
	n := min(b.bytes, noisePatternBytes)
	v := make([]float32, n/int64(typ.Size()))
	state := uint32(1)
	for i := range v {
		state = state*1664525 + 1013904223 // linear congruential generator of Numerical Recipes
		v[i] = float32(int32(state)) / (1 << 31)
	}
	if err := g.writeMemory(b.ptr, number.Encode(typ, v)); err != nil {
		return err
	}
	for done := n; done < b.bytes; {
		m := min(done, b.bytes-done)
		if err := g.driver.MemcpyDtoDAsync(b.ptr.Add(done), b.ptr, m, g.compute); err != nil {
			return g.explainLostGPU(err)
		}
		done += m
	}
	return nil
}

func (x *executable) clearMemoryAfterTuning() error {
	list := []typedBlock{{memoryBlock: x.memory.grads}, {memoryBlock: x.memory.scratch}, {memoryBlock: x.memory.arena}}
	if x.engine.options.Convolution == "auto" {
		list = append(list, x.noiseBlocks()...)
	}
	for _, b := range list {
		if b.bytes == 0 {
			continue
		}
		if err := x.gpu.driver.MemsetD8Async(b.ptr, 0, b.bytes, x.gpu.compute); err != nil {
			return x.gpu.explainLostGPU(err)
		}
	}
	return x.fillConstants()
}
