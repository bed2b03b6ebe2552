package plan

import "lockstep/pkg/internal/device"

// MemoryUse contains the numbers of bytes that a program needs for its tensors. Elements are
// float32, or the 16-bit types that ConvertToMixedPrecision chose. The padding and workspace of
// an engine are not included.
type MemoryUse struct {
	// Activations is the size of the arena for all tensors that live within a step:
	// activations, their gradients, and outputs.
	Activations int
	Inputs      int
	Parameters  int
	Gradients   int // gradients of the parameters
	States      int // running statistics
}

// Memory returns the memory of p with activations placed by LayOutArena.
func (p *Program) Memory() MemoryUse {
	var m MemoryUse
	var list []BufferLifetime
	for _, t := range p.Tensors {
		width := 4
		if t.Stored != device.Host {
			width = t.Stored.Size()
		}
		bytes := width * t.Elements()
		switch t.Role {
		case Activation, Output:
			if t.First >= 0 {
				list = append(list, BufferLifetime{Size: bytes, First: t.First, Last: t.Last})
			}
		case Input:
			m.Inputs += bytes
		case Parameter:
			m.Parameters += bytes
		case Gradient:
			m.Gradients += bytes
		case State:
			m.States += bytes
		}
	}
	_, m.Activations = LayOutArena(list)
	return m
}
