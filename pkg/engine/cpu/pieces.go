package cpu

import (
	"lockstep/pkg/engine/cpu/internal/kernel"
	"lockstep/pkg/engine/cpu/internal/tensor"
)

func (l *loader) listMemoryPieces(id int) []tensor.MemoryPiece {
	o := &l.origins[id]
	s := tensor.ShapeTo4D(l.program.Tensors[id].Shape)
	n := tensor.ChannelBlockCount(s[1])
	switch o.kind {
	case concatenated:
		list := l.listMemoryPieces(o.sources[0])
		for _, p := range l.listMemoryPieces(o.sources[1]) {
			p.First += tensor.ChannelBlockCount(l.program.Tensors[o.sources[0]].Shape[1])
			list = append(list, p)
		}
		return list
	case sliced:
		p := l.listMemoryPieces(o.sources[0])[0]
		p.Data, p.Count = p.Data[o.first*s[2]*s[3]*kernel.Lanes:], n
		return []tensor.MemoryPiece{p}
	case normalized:
		p := l.listMemoryPieces(o.sources[0])[0]
		p.Norm = o.norm
		return []tensor.MemoryPiece{p}
	case overwriting:
		return l.listMemoryPieces(o.sources[0])
	}
	return []tensor.MemoryPiece{{Count: n, Data: l.data[id], Image: n * s[2] * s[3] * kernel.Lanes}}
}
