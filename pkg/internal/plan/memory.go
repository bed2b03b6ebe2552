package plan

import "lockstep/pkg/internal/device"

// Memory is what a program needs, in bytes of float32 (or of the 16-bit types
// that MixedPrecision stores) and of logical shapes: what an engine adds by its
// layouts and its scratch space is its own affair.
type Memory struct {
	// Activations is the arena of everything that lives within a step: what the
	// forward pass keeps for the backward pass, outputs and gradients of
	// activations, at the moment when it is most.
	Activations int
	Inputs      int
	Parameters  int
	Gradients   int // of the parameters
	States      int // running statistics
}

// Memory adds up what p needs, with the activations placed by Arena.
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
