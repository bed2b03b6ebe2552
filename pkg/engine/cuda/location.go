package cuda

import (
	driver "lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/plan"
)

// tensorAlignmentBytes is the alignment in bytes of all tensors in flat buffers. It equals the
// alignment of cuMemAlloc, and no kernel requires more.
const tensorAlignmentBytes = 256

// gpuMemorySpace identifies a flat buffer in GPU memory.
type gpuMemorySpace uint8

const (
	arenaSpace  gpuMemorySpace = iota // activations, which share memory if their lifetimes do not overlap
	fixedSpace                        // inputs and constants: written by the host, never overwritten by tasks
	masterSpace                       // the optimizer's fp32 weights
	lowSpace                          // low-precision copies of the weights
	stateSpace
	gradSpace
	noSpace // of tensors that no task uses
)

// tensorLocation is the position of a tensor in GPU memory: in memory of its own, or in some
// channels of another tensor.
type tensorLocation struct {
	layout
	space  gpuMemorySpace
	offset int // bytes from the beginning of the space
	pitch  int // number of elements from one spatial position to the next
}

// layOutTensors places activations, outputs, inputs and constants. arena and fixed are the
// sizes of arenaSpace and fixedSpace in bytes.
func layOutTensors(p *plan.Program, l loweredProgram) (places []tensorLocation, arena, fixed int) {
	places = make([]tensorLocation, len(l.layouts))
	for id := range places {
		places[id] = tensorLocation{layout: l.layouts[id], space: noSpace, pitch: l.layouts[id].paddedChannels()}
	}
	life := l.lifetimes(p)
	var ids []int
	var list []plan.BufferLifetime
	for id := range places {
		role := plan.Activation
		if id < len(p.Tensors) {
			role = p.Tensors[id].Role
		}
		switch role {
		case plan.Input, plan.Constant:
			places[id].space, places[id].offset = fixedSpace, fixed
			fixed += roundUp(places[id].bytes(), tensorAlignmentBytes)
		case plan.Activation, plan.Output:
			if _, aliased := l.aliases[id]; !aliased && life[id].Last >= 0 {
				life[id].Size = roundUp(places[id].bytes(), tensorAlignmentBytes)
				ids, list = append(ids, id), append(list, life[id])
			}
		}
	}
	offsets, arena := plan.LayOutArena(list)
	for i, id := range ids {
		places[id].space, places[id].offset = arenaSpace, offsets[i]
	}
	for id := range l.aliases {
		root, channel := l.rootTensor(id)
		r := places[root]
		places[id].space, places[id].pitch = r.space, r.pitch
		places[id].offset = r.offset + channel*r.typ.Size()
	}
	return places, arena, fixed
}

// rootTensor returns the tensor in which tensor id is stored, and the index of id's first
// channel in it. If id is not an alias, it returns id and 0.
func (l loweredProgram) rootTensor(id int) (root, channel int) {
	for a, ok := l.aliases[id]; ok; a, ok = l.aliases[id] {
		id, channel = a.parent, channel+a.channel
	}
	return id, channel
}

// lifetimes returns the first and the last task that use each tensor, directly or through
// an alias. Aliases themselves have no lifetime: their Last is −1.
func (l loweredProgram) lifetimes(p *plan.Program) []plan.BufferLifetime {
	life := make([]plan.BufferLifetime, len(l.layouts))
	for id := range life {
		life[id] = plan.BufferLifetime{First: len(l.tasks), Last: -1}
	}
	for at, t := range l.tasks {
		for _, id := range t.tensorIDs() {
			if id >= 0 {
				r, _ := l.rootTensor(id)
				life[r].First, life[r].Last = min(life[r].First, at), max(life[r].Last, at)
			}
		}
	}
	for id, q := range p.Tensors {
		if q.Role == plan.Output && life[id].Last >= 0 {
			life[id].Last = len(l.tasks) // the host reads it after the last task
		}
	}
	return life
}

func (p tensorLocation) address(bases [noSpace]driver.Ptr) driver.Ptr {
	return bases[p.space].Add(int64(p.offset))
}
