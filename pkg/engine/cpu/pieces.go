package cpu

import "lockstep/pkg/engine/cpu/internal/kernel"

// pieces lists the pieces of an activation.
func (l *loader) pieces(id int) []piece {
	o := &l.origins[id]
	s := folded(l.program.Tensors[id].Shape)
	n := blocks(s[1])
	switch o.how {
	case joined:
		list := l.pieces(o.of[0])
		for _, p := range l.pieces(o.of[1]) {
			p.first += blocks(l.program.Tensors[o.of[0]].Shape[1])
			list = append(list, p)
		}
		return list
	case sliced:
		p := l.pieces(o.of[0])[0]
		p.data, p.count = p.data[o.at*s[2]*s[3]*kernel.Lanes:], n
		return []piece{p}
	case normalized:
		p := l.pieces(o.of[0])[0]
		p.norm = o.norm
		return []piece{p}
	case shared:
		return l.pieces(o.of[0])
	}
	return []piece{{count: n, data: l.data[id], image: n * s[2] * s[3] * kernel.Lanes}}
}
