package cpu

import "lockstep/pkg/engine/cpu/internal/kernel"

// piece is where some successive channel blocks of an activation lie. Most
// activations are one piece of memory of their own; a concatenation may be its
// parts where they are, a slice a piece of something larger, and a batch norm's
// output what it normalises, with the constants to do so when it is read.
type piece struct {
	first, count int       // channel blocks of the activation
	data         []float32 // from block first of image 0 on
	image        int       // floats from image to image
	norm         []float32 // constants of kernel.Set.Normalize for each block; nil: none
}

// plane is the number of floats of a channel block of an image.
func (o operand) plane() int { return o.Shape[2] * o.Shape[3] * kernel.Lanes }

// whole says whether o is one piece that is read as it lies.
func (o operand) whole() bool { return len(o.pieces) == 1 && o.pieces[0].norm == nil }

// block is the memory of channel block c of image n, from its first pixel on,
// and the constants to normalise it with, nil where there are none.
func (o operand) block(n, c int) (data, norm []float32) {
	for i := range o.pieces {
		p := &o.pieces[i]
		if c >= p.first+p.count {
			continue
		}
		at := c - p.first
		if p.norm != nil {
			norm = p.norm[at*kernel.NormFloats:]
		}
		return p.data[n*p.image+at*o.plane():], norm
	}
	return nil, nil // there is no such block
}

// pieces lists the pieces of an activation.
func (x *executable) pieces(id int) []piece {
	o := &x.origins[id]
	s := folded(x.program.Tensors[id].Shape)
	n := blocks(s[1])
	switch o.how {
	case joined:
		list := x.pieces(o.of[0])
		for _, p := range x.pieces(o.of[1]) {
			p.first += blocks(x.program.Tensors[o.of[0]].Shape[1])
			list = append(list, p)
		}
		return list
	case sliced:
		p := x.pieces(o.of[0])[0]
		p.data, p.count = p.data[o.at*s[2]*s[3]*kernel.Lanes:], n
		return []piece{p}
	case normalized:
		p := x.pieces(o.of[0])[0]
		p.norm = o.norm
		return []piece{p}
	case shared:
		return x.pieces(o.of[0])
	}
	return []piece{{count: n, data: x.data[id], image: n * s[2] * s[3] * kernel.Lanes}}
}
