package plan

import (
	"fmt"
	"math"
	"slices"
)

// Recompute is p with less to keep from the forward pass for the backward pass:
// the forward pass is cut into segments, of which only what a later segment
// reads is kept, and the kernels of a segment run a second time before the first
// backward kernel that reads what they write (Chen et al., Training Deep Nets
// with Sublinear Memory Cost, 2016, arXiv:1604.06174). The last segment, whose
// gradients come first, is kept whole. The cuts are those of some dozen tried
// for which Memory is least; where none helps, and in a program without backward
// pass, p is as it was. It is not changed.
//
// Every kernel gets the same values in the same order, so that the results
// have the same bits. A training batch norm that runs again updates constants in
// place of the running statistics, which move once a step. Where an engine takes
// a batch norm's statistics with the convolution just before it, the two run
// again together. A synchronised one takes the statistics that it has saved, so
// that they are not exchanged again.
//
// Apply it before MixedPrecision.
func Recompute(p *Program) (*Program, error) {
	r := newRecomputing(p)
	best := p
	least := p.Memory().Activations
	for _, cuts := range r.candidates() {
		c := r.build(cuts)
		if m := c.Memory().Activations; m < least {
			best, least = c, m
		}
	}
	if err := Validate(best); err != nil {
		return nil, fmt.Errorf("recompute activations: the result is inconsistent, which is a bug of package plan: %w", err)
	}
	return best, nil
}

// recomputing is what Recompute knows of its program.
type recomputing struct {
	*Program
	producer []int  // by tensor: the forward kernel that writes it, −1 where none does
	reader   []int  // by tensor: the last forward kernel that reads it, −1 where none does
	saved    []bool // by tensor: a backward kernel reads it
}

func newRecomputing(p *Program) *recomputing {
	n := len(p.Tensors)
	r := &recomputing{Program: p, producer: slices.Repeat([]int{-1}, n), reader: slices.Repeat([]int{-1}, n), saved: make([]bool, n)}
	for at, k := range p.Kernels {
		for _, id := range k.In {
			switch {
			case id < 0:
			case k.Backward:
				r.saved[id] = true
			default:
				r.reader[id] = at
			}
		}
		for _, id := range k.Out {
			if id >= 0 && !k.Backward {
				r.producer[id] = at
			}
		}
	}
	return r
}

// large says whether id is an activation of the forward pass that is worth
// recomputing: saved statistics and the like are not.
func (r *recomputing) large(id int) bool {
	return id >= 0 && r.producer[id] >= 0 && r.Tensors[id].Role == Activation && len(r.Tensors[id].Shape) > 1
}

// candidates are lists of cuts, each before the kernel of that index, for
// segments that keep about a half, a third, a fourth … of what all keep.
func (r *recomputing) candidates() (list [][]int) {
	if r.Forward == len(r.Program.Kernels) {
		return nil
	}
	kept := make([]int, r.Forward) // bytes that the backward pass needs of each kernel
	total := 0
	for at, k := range r.Kernels[:r.Forward] {
		for _, id := range k.Out {
			if r.large(id) && r.saved[id] {
				kept[at] += 4 * r.Tensors[id].Elements()
			}
		}
		total += kept[at]
	}
	crossing := r.crossing()
	for parts := 2.0; parts <= 96; parts *= math.Sqrt2 {
		cuts := cut(kept, crossing, float64(total)/parts)
		if len(cuts) > 0 && !slices.ContainsFunc(list, func(c []int) bool { return slices.Equal(c, cuts) }) {
			list = append(list, cuts)
		}
	}
	return list
}

// crossing is, for a cut before each forward kernel, the bytes that are kept for
// it; negative where no cut may be: between a batch norm and what it normalises.
func (r *recomputing) crossing() []int {
	bytes := make([]int, r.Forward)
	for id, t := range r.Tensors {
		if r.large(id) {
			for at := r.producer[id] + 1; at <= r.reader[id]; at++ {
				bytes[at] += 4 * t.Elements()
			}
		}
	}
	for at, k := range r.Kernels[:r.Forward] {
		if at == 0 || k.Op == OpBatchNorm && slices.Contains(r.Kernels[at-1].Out, k.In[0]) {
			bytes[at] = -1
		}
	}
	return bytes
}

// cut chooses cuts so that segments keep some budget of bytes: where a segment is
// beyond it, the cut of its later half that the fewest bytes cross.
func cut(kept, crossing []int, budget float64) (cuts []int) {
	start := 0
	for {
		sum, best := 0.0, -1
		at := start
		for ; at < len(kept); at++ {
			if at > start && sum >= budget/2 && crossing[at] >= 0 && (best < 0 || crossing[at] <= crossing[best]) {
				best = at
			}
			if sum += float64(kept[at]); sum > budget && best >= 0 {
				break
			}
		}
		if at == len(kept) {
			return cuts
		}
		cuts = append(cuts, best)
		start = best
	}
}

// rebuilding is the state of one program with cuts.
type rebuilding struct {
	*recomputing
	to      *Program
	segment []int       // by forward kernel
	start   []int       // by segment: its first kernel; and the end of the last
	lost    []bool      // by tensor: it is not kept
	copies  map[int]int // tensor → its second edition
	again   []bool      // by segment: it has run again
	running map[int][2]int
}

// build is the program whose forward pass is cut before the kernels cuts.
func (r *recomputing) build(cuts []int) *Program {
	b := rebuilding{
		recomputing: r, to: r.clone(), copies: map[int]int{}, running: map[int][2]int{},
		start: slices.Concat([]int{0}, cuts, []int{r.Forward}), segment: make([]int, r.Forward), lost: make([]bool, len(r.Tensors)),
	}
	last := len(cuts)
	b.again = make([]bool, last+1)
	for s := range b.again {
		for at := b.start[s]; at < b.start[s+1]; at++ {
			b.segment[at] = s
		}
	}
	for id := range r.Tensors {
		if r.large(id) {
			s := b.segment[r.producer[id]]
			b.lost[id] = s < last && (r.reader[id] < 0 || b.segment[r.reader[id]] == s)
		}
	}
	b.to.Kernels = slices.Clone(r.Kernels[:r.Forward])
	moved := make([]int, len(r.Kernels))
	for at, k := range r.Kernels[r.Forward:] {
		k.In = slices.Clone(k.In)
		for i, id := range k.In {
			if id >= 0 && b.lost[id] {
				b.repeat(b.segment[r.producer[id]])
				k.In[i] = b.copies[id]
			}
		}
		moved[r.Forward+at] = len(b.to.Kernels)
		b.to.Kernels = append(b.to.Kernels, k)
	}
	for i, g := range b.to.Buckets {
		b.to.Buckets[i].Ready = moved[g.Ready]
	}
	for i := range b.to.Tensors {
		b.to.Tensors[i].First, b.to.Tensors[i].Last = -1, -1
	}
	b.to.lifetimes()
	return b.to
}

// repeat runs again what the backward pass needs of a segment.
func (b *rebuilding) repeat(segment int) {
	if b.again[segment] {
		return
	}
	b.again[segment] = true
	first, end := b.start[segment], b.start[segment+1]
	needed := make([]bool, len(b.Kernels))
	wanted := map[int]bool{}
	for at := end - 1; at >= first; at-- {
		k := b.Kernels[at]
		needed[at] = needed[at] || slices.ContainsFunc(k.Out, func(id int) bool {
			return id >= 0 && b.lost[id] && (b.saved[id] || wanted[id])
		})
		if !needed[at] {
			continue
		}
		for _, id := range k.In {
			wanted[id] = true
		}
		// What lies between a batch norm and what it normalises stays there, so
		// that an engine takes the statistics in the same way.
		if k.Op == OpBatchNorm && at > first && b.producer[k.In[0]] >= first {
			needed[at-1] = true
		}
	}
	for at := first; at < end; at++ {
		if needed[at] {
			b.copy(b.Kernels[at])
		}
	}
}

// copy appends a second edition of a forward kernel.
func (b *rebuilding) copy(k Kernel) {
	k.In, k.Out = slices.Clone(k.In), slices.Clone(k.Out)
	k.Backward, k.Again = true, true
	for i, id := range k.In {
		if c, ok := b.copies[id]; ok {
			k.In[i] = c
		}
	}
	switch {
	case k.Op == OpBatchNorm && k.Attr.Sync:
		k.In[3], k.In[4] = k.Out[1], k.Out[2]
		k.Out = k.Out[:1]
		k.Attr.Training, k.Attr.Sync, k.Attr.Saved = false, false, true
	case k.Op == OpBatchNorm && k.Attr.Training:
		channels := b.Tensors[k.In[3]].Elements()
		scratch, ok := b.running[channels]
		if !ok {
			for i, name := range []string{"scratch.mean", "scratch.variance"} {
				scratch[i] = b.add(Tensor{Name: name, Shape: []int{channels}, Role: Constant})
			}
			b.running[channels] = scratch
		}
		k.In[3], k.In[4] = scratch[0], scratch[1]
	}
	for i, id := range k.Out {
		if id >= 0 {
			t := b.Tensors[id]
			t.Role = Activation
			k.Out[i] = b.add(t)
			b.copies[id] = k.Out[i]
		}
	}
	b.to.Kernels = append(b.to.Kernels, k)
}

// add gives a tensor an id.
func (b *rebuilding) add(t Tensor) int {
	b.to.Tensors = append(b.to.Tensors, t)
	return len(b.to.Tensors) - 1
}
