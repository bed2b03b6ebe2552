package plan

import (
	"fmt"
	"math"
	"slices"

	"lockstep/pkg/internal/english"
)

// PipelineStage is one stage of a pipeline: consecutive layers of a program, with a separate program for
// each pass. A tensor that one of these programs computes and another one reads is an output of
// the former and an input of the latter.
type PipelineStage struct {
	Forward, Backward *Program
	Layers            [2]int // the stage consists of layers Layers[0] to Layers[1]−1
	FLOPs             int64  // floating-point operations of both passes, see Program.FLOPs
	// Activations[s] lists the IDs, in ascending order, of the tensors in the whole program that
	// stage s computes in its forward pass and that this stage reads in either pass.
	Activations [][]int
	// Gradients[s] lists the tensors that stage s computes in its backward pass and that
	// this stage reads in its own backward pass.
	Gradients [][]int
}

// StageInputName returns the name of a stage program's input for a tensor that another program
// computes. id is the ID of the tensor in the whole program.
func StageInputName(id int) string { return fmt.Sprintf("#%d", id) }

// StageOutputName returns the name of a stage program's output for the tensor with the given ID
// in p, the whole program.
func (p *Program) StageOutputName(id int) string {
	if t := p.Tensors[id]; t.Role == Output {
		return t.Name
	}
	return StageInputName(id)
}

// CutIntoStages divides p, a program with a backward pass, into the given number of stages of
// consecutive layers. A layer begins with a convolution or a linear layer. The division minimizes
// the number of operations (FLOPs) of the most expensive stage. Kernels without FLOPs, such as
// batch norms, and messages between stages count as free. Each kernel of p is in exactly one
// program of one stage.
func CutIntoStages(p *Program, stages int) ([]PipelineStage, error) {
	c := stageCutter{whole: p, layerOf: make([]int, len(p.Kernels)), producer: make([]int, len(p.Tensors))}
	if err := c.assignKernelsToLayers(); err != nil {
		return nil, fmt.Errorf("cut network into stages: %w", err)
	}
	if stages < 1 || stages > len(c.flops) {
		return nil, fmt.Errorf("cut network into stages: got %s for a network of %s (convolutions and linear layers): use at most %s",
			english.FormatCount(stages, "stage"), english.FormatCount(len(c.flops), "layer"), english.FormatCount(len(c.flops), "worker"))
	}
	ends := balanceStages(c.flops, stages)
	c.stageOf = make([]int, len(p.Kernels))
	for at, layer := range c.layerOf {
		c.stageOf[at], _ = slices.BinarySearch(ends, layer+1)
	}
	list := make([]PipelineStage, stages)
	for s := range list {
		list[s] = c.newStage(s, stages)
		from := 0
		if s > 0 {
			from = ends[s-1]
		}
		list[s].Layers = [2]int{from, ends[s]}
		for _, n := range c.flops[from:ends[s]] {
			list[s].FLOPs += n
		}
		for _, pass := range []*Program{list[s].Forward, list[s].Backward} {
			if err := Validate(pass); err != nil {
				return nil, fmt.Errorf("cut network into stages: stage %d is inconsistent, which is a bug of package plan: %w", s, err)
			}
		}
	}
	return list, nil
}

type stageCutter struct {
	whole    *Program
	layerOf  []int   // by kernel
	stageOf  []int   // by kernel
	producer []int   // by tensor: the kernel that writes it, or −1
	flops    []int64 // by layer, of both passes
}

// assignKernelsToLayers assigns every kernel to a layer. Kernels without FLOPs, such as a batch norm, belong
// to the layer before them. A kernel of the backward pass belongs to the layer whose parameters
// or activations it reads. If it reads only gradients, it belongs to the first of the layers that
// compute these gradients.
func (c *stageCutter) assignKernelsToLayers() error {
	p := c.whole
	if len(p.Kernels) == p.Forward {
		return fmt.Errorf("the program has no backward pass")
	}
	for id := range c.producer {
		c.producer[id] = -1
	}
	layerOfTensor := make([]int, len(p.Tensors)) // of a parameter or the result of a forward kernel; −1: none
	for id := range layerOfTensor {
		layerOfTensor[id] = -1
	}
	for at, k := range p.Kernels {
		switch {
		case k.Recomputed:
			return fmt.Errorf("recomputed activations cannot be cut: set recompute to false")
		case k.Attr.Sync:
			return fmt.Errorf("synchronized batch norms cannot be cut: set sync_batchnorm to false")
		case !k.Backward:
			if n := len(c.flops); n == 0 || p.FLOPs(k) > 0 && c.flops[n-1] > 0 {
				c.flops = append(c.flops, 0)
			}
			c.layerOf[at] = len(c.flops) - 1
		default:
			layer, err := c.layerOfBackwardKernel(at, layerOfTensor)
			if err != nil {
				return err
			}
			c.layerOf[at] = layer
		}
		c.flops[c.layerOf[at]] += p.FLOPs(k)
		for _, id := range k.Out {
			if id >= 0 {
				c.producer[id] = at
				if !k.Backward {
					layerOfTensor[id] = c.layerOf[at]
				}
			}
		}
		for _, id := range k.In {
			if p.Tensors[id].Role != Parameter || k.Backward {
				continue
			}
			if l := layerOfTensor[id]; l >= 0 && l != c.layerOf[at] {
				return fmt.Errorf("two layers share parameter %s, which a pipeline does not support", p.Tensors[id].Name)
			}
			layerOfTensor[id] = c.layerOf[at]
		}
	}
	return nil
}

// layerOfBackwardKernel returns the layer of the backward kernel with index at. layerOfTensor
// contains the layers of parameters and forward results by tensor ID.
func (c *stageCutter) layerOfBackwardKernel(at int, layerOfTensor []int) (int, error) {
	p, k := c.whole, c.whole.Kernels[at]
	layer, first := -1, math.MaxInt // first: the first layer of those that compute the gradients which k reads
	byParameter := false
	for _, id := range k.In {
		if from := c.producer[id]; from >= p.Forward {
			first = min(first, c.layerOf[from])
		} else if l := layerOfTensor[id]; l >= 0 && !byParameter {
			layer = max(layer, l)
			if p.Tensors[id].Role == Parameter {
				layer, byParameter = l, true
			}
		}
	}
	for _, id := range k.Out {
		for _, q := range p.Params {
			if q.Grad == id && id >= 0 {
				layer = layerOfTensor[q.Tensor]
			}
		}
	}
	switch {
	case layer < 0 && first == math.MaxInt:
		return 0, fmt.Errorf("kernel %d (%s) of the backward pass belongs to no layer", at, k.Op)
	case layer < 0:
		return first, nil
	case layer > first:
		return 0, fmt.Errorf("kernel %d (%s) of layer %d needs the gradient of layer %d before it", at, k.Op, layer, first)
	}
	return layer, nil
}

// balanceStages divides layers with the given costs into stages of at least one layer, so that
// the cost of the most expensive stage is minimal. For each stage, it returns the number of
// layers up to the end of the stage.
func balanceStages(cost []int64, stages int) []int {
	n := len(cost)
	sums := make([]int64, n+1)
	for i, v := range cost {
		sums[i+1] = sums[i] + v
	}
	// least[s][i]: the least largest cost if s+1 stages have the first i layers, and
	// start[s][i]: the first layer of the last of these stages.
	least, start := make([][]int64, stages), make([][]int, stages)
	for s := range stages {
		least[s], start[s] = make([]int64, n+1), make([]int, n+1)
		for i := s + 1; i <= n; i++ {
			if s == 0 {
				least[s][i] = sums[i]
				continue
			}
			least[s][i] = math.MaxInt64
			for j := s; j < i; j++ {
				if v := max(least[s-1][j], sums[i]-sums[j]); v < least[s][i] {
					least[s][i], start[s][i] = v, j
				}
			}
		}
	}
	ends := make([]int, stages)
	for s, i := stages-1, n; s >= 0; s-- {
		ends[s] = i
		i = start[s][i]
	}
	return ends
}

func (c *stageCutter) newStage(stage, stages int) PipelineStage {
	s := PipelineStage{Activations: make([][]int, stages), Gradients: make([][]int, stages)}
	for at, k := range c.whole.Kernels {
		if c.stageOf[at] != stage {
			continue
		}
		for _, id := range k.In {
			from := c.producer[id]
			switch {
			case from < 0 || c.stageOf[from] == stage:
			case c.whole.Kernels[from].Backward:
				s.Gradients[c.stageOf[from]] = append(s.Gradients[c.stageOf[from]], id)
			default:
				s.Activations[c.stageOf[from]] = append(s.Activations[c.stageOf[from]], id)
			}
		}
	}
	for _, lists := range [][][]int{s.Activations, s.Gradients} {
		for i, ids := range lists {
			slices.Sort(ids)
			lists[i] = slices.Compact(ids)
		}
	}
	s.Forward, s.Backward = c.newPassProgram(stage, false), c.newPassProgram(stage, true)
	return s
}

func (c *stageCutter) newPassProgram(stage int, backward bool) *Program {
	whole := c.whole
	p := &Program{Loss: -1}
	belongs := func(at int) bool { return c.stageOf[at] == stage && whole.Kernels[at].Backward == backward }
	leaves := make([]bool, len(whole.Tensors)) // a kernel of another program reads the tensor
	used := make([]bool, len(whole.Tensors))
	for at, k := range whole.Kernels {
		for _, id := range k.In {
			leaves[id] = leaves[id] || !belongs(at)
			used[id] = used[id] || belongs(at)
		}
		for _, id := range k.Out {
			if id >= 0 {
				used[id] = used[id] || belongs(at)
			}
		}
	}
	ids := make([]int, len(whole.Tensors)) // by ID in whole: the ID in p
	for id, t := range whole.Tensors {
		q := slices.IndexFunc(whole.Params, func(q Param) bool { return q.Tensor == id })
		if !used[id] && !(backward && q >= 0 && used[whole.Params[q].Grad]) {
			continue
		}
		t.First, t.Last = -1, -1
		if from := c.producer[id]; from >= 0 && !belongs(from) {
			t.Role, t.Name = Input, StageInputName(id)
		} else if t.Role == Activation && leaves[id] {
			t.Role, t.Name = Output, StageInputName(id)
		}
		ids[id] = len(p.Tensors)
		p.Tensors = append(p.Tensors, t)
		switch {
		case id == whole.Loss:
			p.Loss = ids[id]
		case t.Role == Input:
			p.Inputs = append(p.Inputs, ids[id])
		case t.Role == Output:
			p.Outputs = append(p.Outputs, ids[id])
		case t.Role == State:
			p.States = append(p.States, ids[id])
		case t.Role == Parameter:
			p.Params = append(p.Params, Param{Name: t.Name, Tensor: ids[id], Grad: -1, Bucket: -1})
		}
	}
	for at, k := range whole.Kernels {
		if belongs(at) {
			k.In, k.Out = remapTensorIDs(k.In, ids), remapTensorIDs(k.Out, ids)
			p.Kernels = append(p.Kernels, k)
		}
	}
	if !backward {
		p.Forward = len(p.Kernels)
	}
	p.setTensorLifetimes()
	if backward {
		for i, q := range p.Params {
			of := slices.IndexFunc(whole.Params, func(w Param) bool { return w.Name == q.Name })
			p.Params[i].Grad = ids[whole.Params[of].Grad]
		}
		p.assignGradientBuckets(Options{BucketBytes: math.MaxInt, FirstBucketBytes: math.MaxInt})
	}
	return p
}

// remapTensorIDs replaces each tensor ID in list by ids[ID]. It keeps −1, which stands for an absent
// tensor.
func remapTensorIDs(list, ids []int) []int {
	out := make([]int, len(list))
	for i, id := range list {
		out[i] = id
		if id >= 0 {
			out[i] = ids[id]
		}
	}
	return out
}
