package cpu

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// unfused starts an engine that stores every tensor.
func unfused(t testing.TB, set string, threads int) engine.Engine {
	t.Helper()
	fused := openWith(t, set, threads, "auto")
	o := fused.Options()
	o.Fuse = false
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// alignedUNet returns a U-Net whose channels fill blocks, so that concatenations and
// slices need no memory, and whose maps do not fill Winograd's tiles.
func alignedUNet() model.UNet2DConfig {
	return model.UNet2DConfig{Base: 8, Depth: 2, InChannels: 1, OutChannels: 1, Height: 12, Width: 20, Norm: "batch"}
}

// TestOrigins counts the tensors of a U-Net of two levels that need no memory:
// all ten batch norms' outputs, both concatenations, their four gradients, the
// ten batch norms' gradients, and the poolings' with the sums of them.
func TestOrigins(t *testing.T) {
	count := func(e engine.Engine, c model.UNet2DConfig) (map[tensorOriginKind]int, int) {
		_, p := lowered(t, c, 2, nn.Train, plan.Options{Fuse: true})
		l := loaderOf(t, e, p)
		n := map[tensorOriginKind]int{}
		for _, o := range l.origins {
			n[o.kind]++
		}
		return n, len(l.x.arena)
	}
	with, less := count(open(t, "", 1), alignedUNet())
	if with[normalized] != 10 || with[concatenated] != 2 || with[sliced] != 4 || with[overwriting] != 14 {
		t.Errorf("origins are %v", with)
	}
	without, more := count(unfused(t, "", 1), alignedUNet())
	if len(without) != 1 || without[stored] == 0 {
		t.Errorf("without fusion origins are %v", without)
	}
	if less*4 > more*3 {
		t.Errorf("activations take %d floats with fusion and %d without", less, more)
	}
	// Five channels fill no block: what is concatenated must be copied, and so stored.
	odd, _ := count(open(t, "", 1), smallUNet())
	if odd[concatenated] != 0 || odd[sliced] != 0 || odd[normalized] == 0 {
		t.Errorf("with odd channels origins are %v", odd)
	}
}

// randomProgram is a program of random operations on activations of one size. Each reads
// outputs of earlier ones. Most tensors are read more than once.
type randomProgram struct {
	*plan.Program
	rng  *rand.Rand
	maps []int // activations
}

func (p *randomProgram) tensor(role plan.TensorRole, shape ...int) int {
	id := len(p.Tensors)
	p.Tensors = append(p.Tensors, plan.Tensor{Name: fmt.Sprint("t", id), Shape: shape, Role: role})
	switch role {
	case plan.Input:
		p.Inputs = append(p.Inputs, id)
	case plan.State:
		p.States = append(p.States, id)
	}
	return id
}

// any returns a random activation.
func (p *randomProgram) any() int { return p.maps[p.rng.IntN(len(p.maps))] }

// like adds an activation with the shape of id, but with the given channels.
func (p *randomProgram) like(id, channels int) int {
	s := p.Tensors[id].Shape
	id = p.tensor(plan.Activation, s[0], channels, s[2], s[3])
	p.maps = append(p.maps, id)
	return id
}

func (p *randomProgram) call(op plan.Op, a plan.KernelAttr, in, out []int) {
	p.Kernels = append(p.Kernels, plan.Kernel{Op: op, Name: "layer", Attr: a, In: in, Out: out})
}

// step appends one operation, or a few that belong together.
func (p *randomProgram) step() {
	x := p.any()
	s := p.Tensors[x].Shape
	c := s[1]
	vector := func() int { return p.tensor(plan.Input, c) }
	channels := []int{8, 16, 5, 24}[p.rng.IntN(4)]
	one := plan.KernelAttr{Stride: []int{1, 1}, Pad: []int{1, 1}}
	two := plan.KernelAttr{Kernel: []int{2, 2}, Stride: []int{2, 2}}
	point := plan.KernelAttr{Stride: []int{1, 1}, Pad: []int{0, 0}}
	norm := plan.KernelAttr{Training: true, ReLU: p.rng.IntN(2) == 0, Epsilon: 1e-3, Momentum: 0.1}
	switch p.rng.IntN(11) {
	case 0, 1: // a convolution, often followed by a batch norm and another convolution
		y := p.like(x, channels)
		p.call(plan.OpConv, one, []int{x, p.tensor(plan.Input, channels, c, 3, 3)}, []int{y})
		if p.rng.IntN(2) == 0 {
			return
		}
		x, c = y, channels
		fallthrough
	case 2, 3: // a batch norm, its readers, and perhaps its gradient
		gamma, beta := vector(), vector()
		y, mean, inv := p.like(x, c), p.tensor(plan.Activation, c), p.tensor(plan.Activation, c)
		p.call(plan.OpBatchNorm, norm, []int{x, gamma, beta, p.tensor(plan.State, c), p.tensor(plan.State, c)}, []int{y, mean, inv})
		if p.rng.IntN(3) > 0 {
			p.maps = p.maps[:len(p.maps)-1] // nothing but this reads it
			p.call(plan.OpConv, point, []int{y, p.tensor(plan.Input, channels, c, 1, 1)}, []int{p.like(x, channels)})
			p.call(plan.OpConvTranspose, one, []int{y, p.tensor(plan.Input, c, channels, 3, 3)}, []int{p.like(x, channels)})
		}
		if p.rng.IntN(2) == 0 {
			dy := p.like(x, c)
			p.call(plan.OpConvBackwardData, one, []int{p.tensor(plan.Input, 8, c, 3, 3), p.tensor(plan.Input, s[0], 8, s[2], s[3])}, []int{dy})
			if p.rng.IntN(2) == 0 {
				p.maps = p.maps[:len(p.maps)-1]
			}
			in := []int{x, gamma, mean, inv, dy}
			if norm.ReLU {
				in = append(in, y, beta)
			}
			p.call(plan.OpBatchNormBackward, norm, in, []int{p.like(x, c), p.tensor(plan.Output, c), p.tensor(plan.Output, c)})
		}
	case 4, 5: // a pooling, its gradient, and often the sum with another
		y := p.tensor(plan.Activation, s[0], c, s[2]/2, s[3]/2)
		d := p.like(x, c)
		p.call(plan.OpMaxPool, two, []int{x}, []int{y})
		p.call(plan.OpMaxPoolBackward, two, []int{x, y, p.tensor(plan.Input, s[0], c, s[2]/2, s[3]/2)}, []int{d})
		if p.rng.IntN(3) > 0 {
			p.maps = p.maps[:len(p.maps)-1]
			other := x
			for _, id := range p.maps {
				if p.Tensors[id].Shape[1] == c && p.rng.IntN(2) == 0 {
					other = id
				}
			}
			p.call(plan.OpAdd, plan.KernelAttr{}, []int{d, other}, []int{p.like(x, c)})
		}
	case 6: // a concatenation followed by a convolution
		b := p.any()
		both := c + p.Tensors[b].Shape[1]
		y := p.like(x, both)
		p.call(plan.OpConcat, plan.KernelAttr{}, []int{x, b}, []int{y})
		if p.rng.IntN(3) > 0 {
			p.maps = p.maps[:len(p.maps)-1]
			p.call(plan.OpConv, one, []int{y, p.tensor(plan.Input, channels, both, 3, 3)}, []int{p.like(x, channels)})
		} else {
			p.call(plan.OpReLU, plan.KernelAttr{}, []int{y}, []int{p.like(x, both)})
		}
	case 7: // slices of what nothing else reads
		all := c + 8 + 2*p.rng.IntN(2) // two more than the slices hold
		t := p.like(x, all)
		p.maps = p.maps[:len(p.maps)-1]
		p.call(plan.OpConv, one, []int{x, p.tensor(plan.Input, all, c, 3, 3)}, []int{t})
		a, b := p.like(x, 8), p.like(x, c)
		p.maps = p.maps[:len(p.maps)-2]
		p.call(plan.OpSlice, plan.KernelAttr{}, []int{t}, []int{a})
		p.call(plan.OpSlice, plan.KernelAttr{Offset: 8}, []int{t}, []int{b})
		p.call(plan.OpBiasBackward, plan.KernelAttr{}, []int{b}, []int{p.tensor(plan.Output, c)})
		p.call(plan.OpConvTranspose, one, []int{a, p.tensor(plan.Input, 8, channels, 3, 3)}, []int{p.like(x, channels)})
		p.call(plan.OpConvBackwardWeights, point, []int{x, a}, []int{p.tensor(plan.Output, 8, c, 1, 1)})
		p.call(plan.OpConvBackwardWeights, one, []int{b, x}, []int{p.tensor(plan.Output, c, c, 3, 3)})
		if p.rng.IntN(2) == 0 {
			d, y := p.like(x, c), p.tensor(plan.Activation, s[0], c, s[2]/2, s[3]/2)
			p.maps = p.maps[:len(p.maps)-1]
			p.call(plan.OpMaxPool, two, []int{x}, []int{y})
			p.call(plan.OpMaxPoolBackward, two, []int{x, y, p.tensor(plan.Input, s[0], c, s[2]/2, s[3]/2)}, []int{d})
			sum := p.like(x, c)
			p.call(plan.OpAdd, plan.KernelAttr{}, []int{b, d}, []int{sum})
			b = sum
			if p.rng.IntN(2) == 0 {
				p.maps = p.maps[:len(p.maps)-1]
			}
		}
		overlap := -1
		if p.rng.IntN(3) == 0 {
			overlap = p.like(x, c)
			p.maps = p.maps[:len(p.maps)-1]
			p.call(plan.OpSlice, plan.KernelAttr{Offset: 8}, []int{t}, []int{overlap})
		}
		p.call(plan.OpBatchNormBackward, plan.KernelAttr{Training: true}, []int{x, vector(), vector(), vector(), b}, []int{p.like(x, c), p.tensor(plan.Output, c), p.tensor(plan.Output, c)})
		if overlap >= 0 {
			p.call(plan.OpBiasBackward, plan.KernelAttr{}, []int{overlap}, []int{p.tensor(plan.Output, c)})
		}
	case 10: // slices, sometimes overlapping
		cut := min(c-1, 8)
		if c < 2 {
			return
		}
		p.call(plan.OpSlice, plan.KernelAttr{}, []int{x}, []int{p.like(x, cut)})
		p.call(plan.OpSlice, plan.KernelAttr{Offset: cut - p.rng.IntN(2)*min(cut, 8)}, []int{x}, []int{p.like(x, 1)})
		p.call(plan.OpSlice, plan.KernelAttr{Offset: cut}, []int{x}, []int{p.like(x, c-cut)})
	case 8:
		p.call(plan.OpReLU, plan.KernelAttr{}, []int{x}, []int{p.like(x, c)})
		p.call(plan.OpBiasBackward, plan.KernelAttr{}, []int{x}, []int{p.tensor(plan.Output, c)})
	case 9: // gradients of weights
		b := p.any()
		k := p.Tensors[b].Shape[1]
		p.call(plan.OpConvBackwardWeights, one, []int{x, b}, []int{p.tensor(plan.Output, k, c, 3, 3)})
		p.call(plan.OpConvBackwardWeights, point, []int{x, b}, []int{p.tensor(plan.Output, k, c, 1, 1)})
	}
}

// newRandomProgram returns a program a third of whose activations are outputs.
func newRandomProgram(seed uint64) *plan.Program {
	p := &randomProgram{Program: &plan.Program{Loss: -1}, rng: rand.New(rand.NewPCG(seed, 1))}
	for _, c := range []int{8, 5, 16} {
		p.maps = append(p.maps, p.tensor(plan.Input, 2, c, 6, 9))
	}
	for range 4 + p.rng.IntN(10) {
		p.step()
	}
	for id := range p.Tensors {
		t := &p.Tensors[id]
		if t.Role == plan.Activation && p.rng.IntN(3) == 0 {
			t.Role = plan.Output
		}
		if t.Role == plan.Output {
			p.Outputs = append(p.Outputs, id)
		}
		t.First, t.Last = -1, -1
	}
	for at, k := range p.Kernels {
		for _, ids := range [][]int{k.In, k.Out} {
			for _, id := range ids {
				if p.Tensors[id].First < 0 {
					p.Tensors[id].First = at
				}
				p.Tensors[id].Last = at
			}
		}
	}
	p.Forward = len(p.Kernels)
	return p.Program
}

// outputs runs p twice and returns its outputs.
func outputs(t *testing.T, e engine.Engine, p *plan.Program) map[string][]float64 {
	t.Helper()
	x, err := e.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	poison(x)
	all := map[string][]float64{}
	for range 2 {
		for _, id := range p.Inputs {
			v := make([]float32, p.Tensors[id].Elements())
			rng := rand.New(rand.NewPCG(uint64(id), 2))
			for i := range v {
				v[i] = float32(rng.NormFloat64())
			}
			if err := x.SetInput(p.Tensors[id].Name, v); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := x.Step(context.Background(), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range p.Outputs {
		v := make([]float32, p.Tensors[id].Elements())
		if err := x.Output(p.Tensors[id].Name, v); err != nil {
			t.Fatal(err)
		}
		for _, f := range v {
			all[p.Tensors[id].Name] = append(all[p.Tensors[id].Name], float64(f))
		}
	}
	if err := checkPadding(x); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestFusionIsInvisible checks that random programs compute the same with and without
// fusion, except for rounding in statistics, and the same bits for any number of threads.
// The seeds are fixed, since rounding can change the decision of a ReLU or a pooling. Plain Go
// computes fewer programs, because it is slow.
func TestFusionIsInvisible(t *testing.T) {
	for _, set := range sets {
		t.Run(set, func(t *testing.T) {
			slow := strings.HasPrefix(set, "go")
			if testing.Short() && slow {
				t.Skip("slow")
			}
			programs := uint64(30)
			if slow {
				programs = 10
			}
			one, three, plain := open(t, set, 1), open(t, set, 3), unfused(t, set, 2)
			met := map[tensorOriginKind]int{}
			for seed := range programs {
				p := newRandomProgram(seed)
				want, got, again := outputs(t, plain, p), outputs(t, one, p), outputs(t, three, p)
				for name := range want {
					for i, v := range want[name] {
						// Some are sums of values of about 1 that cancel to rounding errors.
						if d := math.Abs(got[name][i] - v); !(d <= 2e-4*(1+largest(want[name]))) {
							t.Fatalf("seed %d: %s[%d] is %v with fusion, %v without", seed, name, i, got[name][i], v)
						}
					}
					near(t, fmt.Sprintf("seed %d: %s by three threads", seed, name), again[name], got[name], 0)
				}
				for _, o := range loaderOf(t, one, p).origins {
					met[o.kind]++
				}
			}
			for h := stored; h <= overwriting; h++ {
				if met[h] < 4 && !slow {
					t.Errorf("origin %d came up %d times: the programs show nothing of it", h, met[h])
				}
			}
		})
	}
}
