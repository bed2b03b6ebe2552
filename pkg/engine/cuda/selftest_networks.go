package cuda

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// testedUNets are the networks whose whole steps are checked: one with channels
// that fill no vector, biases, and maps smaller than a tile, and one as trained.
func testedUNets() []model.UNet2DConfig {
	return []model.UNet2DConfig{
		{Base: 5, Depth: 3, InChannels: 2, OutChannels: 1, Height: 24, Width: 16, Bias: true, Norm: "batch"},
		{Base: 8, Depth: 2, InChannels: 1, OutChannels: 1, Height: 16, Width: 16, Norm: "batch"},
		{Base: 6, Depth: 2, InChannels: 1, OutChannels: 1, Height: 12, Width: 20, Bias: true, Norm: "none", DiceWeight: 0.5},
	}
}

// networkSteps are the steps of training that are compared. The first runs as it
// is, the second is recorded, those behind it are the recorded one.
const networkSteps = 5

// trace is what some steps of training left.
type trace struct {
	losses    []float64
	gradients []float64 // of the first step, parameter by parameter
	after     []float64 // every parameter, state and slot behind the last
	kernels   []string
}

// networks checks whole steps.
func (t *tester) networks() error {
	for i, c := range testedUNets() {
		for _, fuse := range []bool{true, false} {
			if !fuse && i > 0 {
				continue
			}
			u, err := model.UNet2D(c)
			if err != nil {
				return err
			}
			shape := fmt.Sprintf("U-Net base %d, depth %d, %d×%d×%d, batch %d", c.Base, c.Depth, c.Height, c.Width, c.InChannels, testedBatch)
			if err := t.network("U-Net", shape, fuse, func() (*nn.Graph, error) { return u.Graph(testedBatch, nn.Train) }); err != nil {
				return err
			}
		}
	}
	for _, fuse := range []bool{true, false} {
		if err := t.network("classifier", "residual blocks, 34×30×3, 10 classes, batch 3", fuse, testedClassifier); err != nil {
			return err
		}
		if err := t.network("3-D network", "8×12×10×2, batch 3", fuse, testedVolumes); err != nil {
			return err
		}
	}
	return t.rules()
}

// testedBatch is the batch of the networks.
const testedBatch = 3

// testedClassifier has what a ResNet has: a strided first layer, an overlapping
// pooling with padding, blocks with and without a projection, batch norm before and
// behind its convolutions, a global average and a linear layer.
func testedClassifier() (*nn.Graph, error) {
	g := nn.NewGraph(nn.Train)
	conv := func(name string, x *gorgonia.Node, out, kernel, stride int, bias bool) *gorgonia.Node {
		return g.Conv2D(name, x, out, kernel, stride, kernel/2, bias)
	}
	x := conv("stem", g.Input(model.ImageInput, testedBatch, 3, 34, 30), 16, 7, 2, true)
	x = g.MaxPool(x, nn.Pool{Kernel: []int{3}, Stride: []int{2}, Pad: []int{1}, PadZeros: true})
	for i, stride := range []int{1, 2} {
		name := fmt.Sprint("block", i)
		pre := g.ReLU(g.BatchNorm(name+".bn0", x))
		short := conv(name+".project", pre, 24, 1, stride, true)
		y := g.ReLU(g.BatchNorm(name+".bn1", conv(name+".a", pre, 8, 1, 1, false)))
		y = g.ReLU(g.BatchNorm(name+".bn2", conv(name+".b", y, 8, 3, stride, false)))
		x = g.Add(short, conv(name+".c", y, 24, 1, 1, true))
	}
	// A block of the other kind: the sum, then ReLU, no projection.
	y := g.BatchNorm("last.bn", conv("last.a", x, 24, 3, 1, false))
	x = g.ReLU(g.Add(x, y))
	z := g.Linear("fc", g.GlobalAvgPool(x), nn.Dense{Out: 10, Bias: true})
	g.Output(model.LogitsOutput, z)
	g.SetLoss(g.SoftmaxCrossEntropy(z, g.Input(model.TargetInput, testedBatch, 1), 0.1))
	return g, g.Err()
}

// testedVolumes has what a 3-D U-Net for regression has: strided and transposed
// convolutions, LeakyReLU, concatenation, tanh, an L1 loss.
func testedVolumes() (*nn.Graph, error) {
	g := nn.NewGraph(nn.Train)
	half := nn.Convolution{Out: 8, Kernel: []int{4}, Stride: []int{2}, Pad: []int{1}}
	x := g.LeakyReLU(g.Conv("down0", g.Input(model.ImageInput, testedBatch, 2, 8, 12, 10), half), 0.2)
	y := g.BatchNorm("bn1", g.Conv("down1", g.LeakyReLU(x, 0.2), nn.Convolution{Out: 16, Kernel: []int{3}, Stride: []int{2}, Pad: []int{1}}))
	y = g.ConvTranspose("up1", g.ReLU(y), nn.Convolution{Out: 8, Kernel: []int{4, 4, 3}, Stride: []int{2}, Pad: []int{1}, Bias: true})
	y = g.Concat(x, y)
	y = g.Tanh(g.ConvTranspose("up0", g.ReLU(y), nn.Convolution{Out: 2, Kernel: []int{2}, Stride: []int{2}, Bias: true}))
	g.Output(model.LogitsOutput, y)
	g.SetLoss(g.L1(y, g.Input(model.TargetInput, testedBatch, 2, 8, 12, 10), 0))
	return g, g.Err()
}

// network checks steps of a network, which build makes.
func (t *tester) network(kind, shape string, fuse bool, build func() (*nn.Graph, error)) error {
	name := "steps of a " + kind
	if !fuse {
		name += ", nothing fused"
	}
	if !t.wanted(name) {
		return nil
	}
	g, err := build()
	if err != nil {
		return err
	}
	p, err := plan.Lower(g, plan.Options{Fuse: fuse, BucketBytes: 4096})
	if err != nil {
		return err
	}
	seed := t.random.Uint64()
	want, err := t.train(t.truth, g, p, seed)
	if err != nil {
		return err
	}
	var runs [2]trace // as they are, and recorded
	for i, graph := range []bool{false, true} {
		if runs[i], err = t.trainOn(graph, fuse, g, p, seed); err != nil {
			return t.failed(Check{Name: name, Shape: shape}, err)
		}
	}
	// Roundings turn some decisions of ReLUs and pools, in 16 bits many: the angle
	// between all gradients taken together and the reference's counts.
	t.add(Check{
		Name: name + ": gradients (1 − cosine)", Shape: shape, Error: 1 - cosine(runs[0].gradients, want.gradients),
		Bound: map[string]float64{"fp32": 1e-5, "tf32": 5e-3, "fp16": 1e-2, "bf16": 0.1}[t.precision], Kernels: runs[0].kernels,
	})
	off := 0.0
	for i := range want.losses {
		// Relative where a loss is large: that of ten classes begins at ln 10.
		off = max(off, math.Abs(runs[0].losses[i]-want.losses[i])/max(1, math.Abs(want.losses[i])))
	}
	t.add(Check{
		Name: name + ": losses (of the loss, at least of 1)", Shape: shape, Error: off,
		Bound: map[string]float64{"fp32": 1e-3, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2}[t.precision],
	})
	t.add(Check{
		Name: name + ": recorded as a CUDA graph (numbers that differ)", Shape: shape,
		Error: float64(differing(runs[0].after, runs[1].after) + differing(runs[0].losses, runs[1].losses)),
	})
	return nil
}

func cosine(a, b []float64) float64 {
	var dot, aa, bb float64
	for i := range a {
		dot, aa, bb = dot+a[i]*b[i], aa+a[i]*a[i], bb+b[i]*b[i]
	}
	return dot / math.Sqrt(aa*bb)
}

// differing counts the numbers whose bits are not the same.
func differing(a, b []float64) (n int) {
	for i := range a {
		if math.Float64bits(a[i]) != math.Float64bits(b[i]) {
			n++
		}
	}
	return n
}

// trainOn trains on an engine of its own, recorded or not.
func (t *tester) trainOn(graph, fuse bool, g *nn.Graph, p *plan.Program, seed uint64) (all trace, err error) {
	e, err := t.start(func(o *engine.Options) { o.Graph, o.Fuse = graph, fuse })
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	return t.train(e, g, p, seed)
}

// feedNoise gives x a batch of noise, with masks or classes.
func feedNoise(x engine.Executable, seed uint64) error {
	p, random := x.Program(), rand.New(rand.NewPCG(seed, 1))
	for _, name := range []string{model.ImageInput, model.TargetInput} {
		id := p.Lookup(plan.Input, name)
		v := make([]float32, p.Tensors[id].Elements())
		for i := range v {
			v[i] = random.Float32()
			if name == model.TargetInput {
				v[i] = float32(math.Round(float64(v[i])))
			}
			if classes := p.Classes(id); classes > 0 {
				v[i] = float32(random.IntN(classes))
			}
		}
		if err := x.SetInput(name, v); err != nil {
			return err
		}
	}
	return nil
}

// fresh loads p with the values of g from seed; on a GPU all memory is poisoned first.
func fresh(e engine.Engine, g *nn.Graph, p *plan.Program, seed uint64) (engine.Executable, error) {
	x, err := e.Load(p, nil)
	if err != nil {
		return nil, err
	}
	if ours, onGPU := x.(*executable); onGPU {
		err = ours.poisonAll()
	}
	for name, v := range g.InitialValues(int64(seed >> 1)) {
		err = errors.Join(err, x.Set(name, v))
	}
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// train does some steps with Adam, and one with SGD, on data of seed.
func (t *tester) train(e engine.Engine, g *nn.Graph, p *plan.Program, seed uint64) (all trace, err error) {
	x, err := fresh(e, g, p, seed)
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	ours, onGPU := x.(*executable)
	for step := 1; step <= networkSteps; step++ {
		if err := feedNoise(x, seed+uint64(step)); err != nil {
			return all, err
		}
		u := &optim.Update{Rule: optim.RuleAdam, LearningRate: 1e-3, Step: step, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-6}
		if step == networkSteps {
			u = &optim.Update{Rule: optim.RuleSGD, LearningRate: 1e-2, Momentum: 0.9, Step: step}
		}
		if _, err := x.Step(t.ctx, nil, u); err != nil {
			return all, err
		}
		all.losses = append(all.losses, x.Loss())
		for _, q := range p.Params {
			v, err := x.Gradient(q.Name)
			if err != nil {
				return all, err
			}
			if step == 1 {
				all.gradients = append(all.gradients, v...)
			}
		}
	}
	for _, name := range x.Names() {
		v, err := x.Get(name)
		if err != nil {
			return all, err
		}
		all.after = append(all.after, v...)
	}
	if onGPU {
		all.kernels = t.launched(ours.ofExecutable()...)
		// The weights that were set were rounded before the first step.
		t.ran["cast_from_f32_"+kernelType(t.low).String()] = true
	}
	return all, nil
}
