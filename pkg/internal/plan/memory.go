package plan

import "lockstep/pkg/internal/device"

// Memory is the memory that a program needs, in bytes, for float32 or the 16-bit types
// that MixedPrecision chose. It does not include an engine's padding and workspace.
type Memory struct {
	// Activations is the size of the arena of all tensors that live within a step:
	// activations for the backward pass, outputs and gradients of activations.
	Activations int
	Inputs      int
	Parameters  int
	Gradients   int // gradients of the parameters
	States      int // running statistics
}

// Memory returns the memory that p needs, with the activations placed by Arena.
func (p *Program) Memory() Memory {
	var m Memory
	var list []Interval
	for _, t := range p.Tensors {
		width := 4
		if t.Stored != device.Host {
			width = t.Stored.Size()
		}
		bytes := width * t.Elements()
		switch t.Role {
		case Activation, Output:
			if t.First >= 0 {
				list = append(list, Interval{Size: bytes, First: t.First, Last: t.Last})
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
	_, m.Activations = Arena(list)
	return m
}
