package cuda

import (
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/plan"
)

// alignment of all tensors in flat buffers, in bytes: the same as cuMemAlloc's, and more
// than any kernel requires.
const alignment = 256

// space identifies a flat buffer of the GPU's memory.
type space uint8

const (
	arenaSpace  space = iota // activations, which share memory if their lifetimes do not overlap
	fixedSpace               // inputs and constants: set from outside, never overwritten
	masterSpace              // the optimizer's fp32 weights
	lowSpace                 // low-precision copies of the weights
	stateSpace
	gradSpace
	noSpace // not used
)

// location is where a tensor is in the GPU's memory: in memory of its own, or in the channels
// of another tensor.
type location struct {
	layout
	space  space
	offset int // bytes from the beginning of the space
	pitch  int // elements from one position to the next
}

// layOutTensors gives activations and inputs their locations, and returns how many bytes
// the arena and the fixed part need.
func layOutTensors(p *plan.Program, l lowered) (places []location, arena, fixed int) {
	places = make([]location, len(l.layouts))
	for id := range places {
		places[id] = location{layout: l.layouts[id], space: noSpace, pitch: l.layouts[id].padded()}
	}
	life := l.lifetimes(p)
	var ids []int
	var list []plan.Interval
	for id := range places {
		role := plan.Activation
		if id < len(p.Tensors) {
			role = p.Tensors[id].Role
		}
		switch role {
		case plan.Input, plan.Constant:
			places[id].space, places[id].offset = fixedSpace, fixed
			fixed += roundUp(places[id].bytes(), alignment)
		case plan.Activation, plan.Output:
			if _, aliased := l.aliases[id]; !aliased && life[id].Last >= 0 {
				life[id].Size = roundUp(places[id].bytes(), alignment)
				ids, list = append(ids, id), append(list, life[id])
			}
		}
	}
	offsets, arena := plan.Arena(list)
	for i, id := range ids {
		places[id].space, places[id].offset = arenaSpace, offsets[i]
	}
	for id := range l.aliases {
		root, channel := l.root(id)
		r := places[root]
		places[id].space, places[id].pitch = r.space, r.pitch
		places[id].offset = r.offset + channel*r.typ.Size()
	}
	return places, arena, fixed
}

// root returns the tensor that id is a view of, and the view's first channel; id itself if it
// is no alias.
func (l lowered) root(id int) (root, channel int) {
	for a, ok := l.aliases[id]; ok; a, ok = l.aliases[id] {
		id, channel = a.of, channel+a.channel
	}
	return id, channel
}

// lifetimes returns, for each tensor with memory of its own, the first and the last task
// that use it or a tensor that is a view of it.
func (l lowered) lifetimes(p *plan.Program) []plan.Interval {
	life := make([]plan.Interval, len(l.layouts))
	for id := range life {
		life[id] = plan.Interval{First: len(l.tasks), Last: -1}
	}
	for at, t := range l.tasks {
		for _, id := range t.touched() {
			if id >= 0 {
				r, _ := l.root(id)
				life[r].First, life[r].Last = min(life[r].First, at), max(life[r].Last, at)
			}
		}
	}
	for id, q := range p.Tensors {
		if q.Role == plan.Output && life[id].Last >= 0 {
			life[id].Last = len(l.tasks) // read from outside, after the last task
		}
	}
	return life
}

// address returns the tensor's address, given the addresses of the spaces.
func (p location) address(bases [noSpace]driver.Ptr) driver.Ptr {
	return bases[p.space].Add(int64(p.offset))
}
