package cuda

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

// programOf is the program of a network.
func programOf(t testing.TB, c model.UNet2DConfig, batch int, mode nn.Mode, o plan.Options) (*nn.Graph, *plan.Program) {
	t.Helper()
	u, err := model.UNet2D(c)
	if err != nil {
		t.Fatal(err)
	}
	g, err := u.Graph(batch, mode)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Lower(g, o)
	if err != nil {
		t.Fatal(err)
	}
	return g, p
}

// initialise sets every parameter and state of x.
func initialise(t testing.TB, x engine.Executable, g *nn.Graph) {
	t.Helper()
	for name, v := range g.InitialValues(3) {
		if err := x.Set(name, v); err != nil {
			t.Fatal(err)
		}
	}
}

// feed gives x a batch of noise and random masks.
func feed(t testing.TB, x engine.Executable, seed uint64) {
	t.Helper()
	image, target := batchOf(x, seed)
	if err := x.SetInput(model.ImageInput, image); err != nil {
		t.Fatal(err)
	}
	if err := x.SetInput(model.TargetInput, target); err != nil {
		t.Fatal(err)
	}
}

// batchOf is a batch of noise and random masks for x.
func batchOf(x engine.Executable, seed uint64) (image, target []float32) {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := x.Program()
	image = make([]float32, p.Tensors[p.Lookup(plan.Input, model.ImageInput)].Elements())
	for i := range image {
		image[i] = rng.Float32()
	}
	target = make([]float32, p.Tensors[p.Lookup(plan.Input, model.TargetInput)].Elements())
	for i := range target {
		target[i] = float32(math.Round(float64(rng.Float32())))
	}
	return image, target
}

// smallUNet has channels that fill no block and maps smaller than a tile.
func smallUNet() model.UNet2DConfig {
	return model.UNet2DConfig{Base: 5, Depth: 3, InChannels: 2, OutChannels: 1, Height: 24, Width: 16, Bias: true, Norm: "batch"}
}

// TestUNetGradients compares a whole network's loss, gradients and running
// statistics with the reference in float64. Roundings may turn a ReLU's or a
// pool's decision, so that in fp32 1e-3 of a gradient's greatest value is
// allowed; in 16 bits, where they turn many, the angle between all gradients
// taken together and the reference's counts. Single kernels are held to one
// rounding elsewhere.
func TestUNetGradients(t *testing.T) {
	for _, fuse := range []bool{true, false} {
		g, p := programOf(t, smallUNet(), 3, nn.Train, plan.Options{Fuse: fuse, BucketBytes: 4096})
		want := loaded(t, truth(t), p, g)
		for _, c := range []struct {
			precision                string
			loss, cosine, statistics float64
		}{{"fp32", 1e-5, 0.999999, 1e-4}, {"fp16", 1e-3, 0.995, 2e-3}, {"bf16", 1e-2, 0.95, 2e-2}} {
			t.Run(fmt.Sprintf("%s/fuse-%v", c.precision, fuse), func(t *testing.T) {
				o := gpuOptions(c.precision)
				o.Fuse = fuse
				x := loaded(t, open(t, o), p, g)
				if d := math.Abs(x.Loss() - want.Loss()); !(d < c.loss) {
					t.Errorf("loss is %v, the reference has %v", x.Loss(), want.Loss())
				}
				var dot, aa, bb float64
				for _, q := range p.Params {
					a, err1 := x.Gradient(q.Name)
					b, err2 := want.Gradient(q.Name)
					if err1 != nil || err2 != nil {
						t.Fatal(err1, err2)
					}
					// A bias before a batch norm has no gradient but roundings.
					if largest(b) > 1e-9 && c.precision == "fp32" {
						near(t, "gradient of "+q.Name, a, b, 1e-3)
					}
					for i := range a {
						dot, aa, bb = dot+a[i]*b[i], aa+a[i]*a[i], bb+b[i]*b[i]
					}
				}
				if cosine := dot / math.Sqrt(aa*bb); !(cosine > c.cosine) {
					t.Errorf("the cosine between the gradients and the reference's is %v", cosine)
				}
				for _, id := range p.States {
					name := p.Tensors[id].Name
					a, err1 := x.Get(name)
					b, err2 := want.Get(name)
					if err1 != nil || err2 != nil {
						t.Fatal(err1, err2)
					}
					near(t, name, a, b, c.statistics)
				}
				if err := checkPadding(x); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

func largest(v []float64) (m float64) {
	for _, f := range v {
		m = max(m, math.Abs(f))
	}
	return m
}

// loaded loads p, initialises it, and runs a step without update.
func loaded(t testing.TB, e engine.Engine, p *plan.Program, g *nn.Graph) engine.Executable {
	t.Helper()
	x, err := e.Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	poison(t, x)
	initialise(t, x, g)
	feed(t, x, 1)
	if _, err := x.Step(context.Background(), nil, nil); err != nil {
		t.Fatal(err)
	}
	return x
}

// deafSync takes buckets and changes nothing.
type deafSync struct {
	buckets []device.Buffer
	waits   int
	err     error
}

func (s *deafSync) Bucket(i int, b device.Buffer, _ device.Stream) error {
	if i != len(s.buckets) {
		return fmt.Errorf("bucket %d comes as number %d", i, len(s.buckets))
	}
	s.buckets = append(s.buckets, b)
	return s.err
}

func (s *deafSync) Wait() error      { s.waits++; return nil }
func (s *deafSync) Capturable() bool { return false }
