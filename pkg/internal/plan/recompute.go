package plan

import (
	"fmt"
	"math"
	"slices"
)

// AddRecomputation returns a program with the same results as p that needs less memory for
// activations. It splits the forward pass into segments and keeps only the activations that
// a later segment reads. The kernels of a segment run a second time before the first
// backward kernel that reads their results (Chen et al., Training Deep Nets with Sublinear
// Memory Cost, 2016, arXiv:1604.06174). The last segment, whose gradients are computed
// first, keeps all of its activations.
//
// AddRecomputation tries a few dozen splits and chooses the one that needs the least memory for
// activations. It returns p itself if no split needs less, or if p has no backward pass. It
// does not change p.
//
// Every kernel gets the same values in the same order, so the results are identical bit for
// bit. A training batch norm that runs again updates scratch tensors instead of the running
// statistics, which must be updated only once per step. Some engines compute a batch norm's
// statistics together with the convolution before it, so these two always run again
// together. A synchronized batch norm that runs again uses the saved statistics, so that
// workers do not exchange them again.
//
// Call AddRecomputation before ConvertToMixedPrecision.
func AddRecomputation(p *Program) (*Program, error) {
	r := newRecomputePlanner(p)
	best := p
	least := p.Memory().Activations
	for _, cuts := range r.listCandidateSegmentCuts() {
		c := r.buildProgram(cuts)
		if m := c.Memory().Activations; m < least {
			best, least = c, m
		}
	}
	if err := Validate(best); err != nil {
		return nil, fmt.Errorf("recompute activations: the result is inconsistent, which is a bug of package plan: %w", err)
	}
	return best, nil
}

// recomputePlanner contains, for each tensor of a program, which kernels use it.
type recomputePlanner struct {
	*Program
	producer []int  // by tensor ID: the forward kernel that writes the tensor, or −1
	reader   []int  // by tensor ID: the last forward kernel that reads the tensor, or −1
	saved    []bool // by tensor ID: whether a backward kernel reads the tensor
}

func newRecomputePlanner(p *Program) *recomputePlanner {
	n := len(p.Tensors)
	r := &recomputePlanner{Program: p, producer: slices.Repeat([]int{-1}, n), reader: slices.Repeat([]int{-1}, n), saved: make([]bool, n)}
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

// isRecomputable reports whether tensor id is an activation of the forward pass that is worth
// recomputing. Vectors, such as saved statistics, are too small.
func (r *recomputePlanner) isRecomputable(id int) bool {
	return id >= 0 && r.producer[id] >= 0 && r.Tensors[id].Role == Activation && len(r.Tensors[id].Shape) > 1
}

// listCandidateSegmentCuts returns lists of cuts to try. A cut is the index of the kernel before which
// the forward pass is split. The lists differ in how much of the memory of all activations a
// segment keeps: about 1/2, 1/2.8, 1/4, …
func (r *recomputePlanner) listCandidateSegmentCuts() (list [][]int) {
	if r.Forward == len(r.Program.Kernels) {
		return nil
	}
	kept := make([]int, r.Forward) // by kernel: the bytes of its results that the backward pass reads
	total := 0
	for at, k := range r.Kernels[:r.Forward] {
		for _, id := range k.Out {
			if r.isRecomputable(id) && r.saved[id] {
				kept[at] += 4 * r.Tensors[id].Elements()
			}
		}
		total += kept[at]
	}
	crossing := r.activationBytesAcrossCuts()
	for parts := 2.0; parts <= 96; parts *= math.Sqrt2 {
		cuts := chooseCuts(kept, crossing, float64(total)/parts)
		if len(cuts) > 0 && !slices.ContainsFunc(list, func(c []int) bool { return slices.Equal(c, cuts) }) {
			list = append(list, cuts)
		}
	}
	return list
}

// activationBytesAcrossCuts returns, for each forward kernel, the bytes of activations that later segments
// need if the forward pass is cut before this kernel. The value is −1 where a cut is not allowed:
// before the first kernel, and between a batch norm and the kernel before it.
func (r *recomputePlanner) activationBytesAcrossCuts() []int {
	bytes := make([]int, r.Forward)
	for id, t := range r.Tensors {
		if r.isRecomputable(id) {
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

// chooseCuts chooses cuts so that each segment keeps about budget bytes. kept contains, for each
// kernel, the bytes of those results that the backward pass reads. crossing is the result of
// activationBytesAcrossCuts. When a segment exceeds the budget, chooseCuts cuts it in its second half, where
// crossing is smallest.
func chooseCuts(kept, crossing []int, budget float64) (cuts []int) {
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

type programRebuilder struct {
	*recomputePlanner
	to      *Program       // the program that is built
	segment []int          // by forward kernel: its segment
	start   []int          // by segment: its first kernel; then the end of the last segment
	lost    []bool         // by tensor ID: whether the tensor must be recomputed
	copies  map[int]int    // tensor ID → ID of the recomputed tensor
	again   []bool         // by segment: whether it has been repeated
	running map[int][2]int // channels → IDs of the scratch running statistics
}

func (r *recomputePlanner) buildProgram(cuts []int) *Program {
	b := programRebuilder{
		recomputePlanner: r, to: r.clone(), copies: map[int]int{}, running: map[int][2]int{},
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
		if r.isRecomputable(id) {
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
				b.appendSegmentCopy(b.segment[r.producer[id]])
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
	b.to.setTensorLifetimes()
	return b.to
}

// appendSegmentCopy appends a copy of those kernels in a segment whose results the backward pass
// needs. It does nothing if the segment is already repeated.
func (b *programRebuilder) appendSegmentCopy(segment int) {
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
		// With the kernel before it, so that an engine computes the statistics in the same
		// way.
		if k.Op == OpBatchNorm && at > first && b.producer[k.In[0]] >= first {
			needed[at-1] = true
		}
	}
	for at := first; at < end; at++ {
		if needed[at] {
			b.appendKernelCopy(b.Kernels[at])
		}
	}
}

func (b *programRebuilder) appendKernelCopy(k Kernel) {
	k.In, k.Out = slices.Clone(k.In), slices.Clone(k.Out)
	k.Backward, k.Recomputed = true, true
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
				scratch[i] = b.addTensor(Tensor{Name: name, Shape: []int{channels}, Role: Constant})
			}
			b.running[channels] = scratch
		}
		k.In[3], k.In[4] = scratch[0], scratch[1]
	}
	for i, id := range k.Out {
		if id >= 0 {
			t := b.Tensors[id]
			t.Role = Activation
			k.Out[i] = b.addTensor(t)
			b.copies[id] = k.Out[i]
		}
	}
	b.to.Kernels = append(b.to.Kernels, k)
}

func (b *programRebuilder) addTensor(t Tensor) int {
	b.to.Tensors = append(b.to.Tensors, t)
	return len(b.to.Tensors) - 1
}
