package cpu

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
)

// pieces returns the pieces of memory that an activation consists of.
func (l *loader) pieces(id int) []tensor.Piece {
	o := &l.origins[id]
	s := tensor.Folded(l.program.Tensors[id].Shape)
	n := tensor.Blocks(s[1])
	switch o.how {
	case joined:
		list := l.pieces(o.of[0])
		for _, p := range l.pieces(o.of[1]) {
			p.First += tensor.Blocks(l.program.Tensors[o.of[0]].Shape[1])
			list = append(list, p)
		}
		return list
	case sliced:
		p := l.pieces(o.of[0])[0]
		p.Data, p.Count = p.Data[o.at*s[2]*s[3]*kernel.Lanes:], n
		return []tensor.Piece{p}
	case normalized:
		p := l.pieces(o.of[0])[0]
		p.Norm = o.norm
		return []tensor.Piece{p}
	case overwriting:
		return l.pieces(o.of[0])
	}
	return []tensor.Piece{{Count: n, Data: l.data[id], Image: n * s[2] * s[3] * kernel.Lanes}}
}
