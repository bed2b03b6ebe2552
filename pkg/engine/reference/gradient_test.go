package reference_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
)

// uniform is an initialiser of distinct values around zero, so that max-pool
// and ReLU have no ties within the step of a finite difference.
func uniform(u func() float64, v []float64) {
	for i := range v {
		v[i] = 2*u() - 1
	}
}

// gradientCase is a network whose every tensor, the image included, is a
// parameter, so that every gradient is checked.
type gradientCase struct {
	name  string
	input []int
	build func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node
}

// gradientCases are those of this file, of classification and of volumes. A case
// that gives no scalar is followed by a loss.
func gradientCases() []gradientCase {
	return slices.Concat(imageCases(), classificationCases(), volumeCases())
}

func imageCases() []gradientCase {
	conv := func(out, kernel, stride, pad int, bias bool) func(*nn.Graph, *gorgonia.Node) *gorgonia.Node {
		return func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			return g.Conv2D("c", x, out, kernel, stride, pad, bias)
		}
	}
	transpose := func(out, kernel, stride, pad int, bias bool) func(*nn.Graph, *gorgonia.Node) *gorgonia.Node {
		return func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			return g.ConvTranspose2D("t", x, out, kernel, stride, pad, bias)
		}
	}
	return []gradientCase{
		{"conv 3x3 same", []int{2, 3, 5, 6}, conv(4, 3, 1, 1, true)},
		{"conv 1x1 head", []int{2, 3, 3, 4}, conv(1, 1, 1, 0, true)},
		{"conv stride 2, odd size", []int{1, 2, 7, 5}, conv(3, 3, 2, 1, false)},
		{"conv stride 3, rows left over", []int{2, 1, 9, 8}, conv(2, 2, 3, 0, true)},
		{"conv kernel larger than image", []int{1, 2, 2, 3}, conv(2, 5, 1, 2, true)},
		{"conv wide padding", []int{1, 1, 3, 3}, conv(2, 2, 2, 3, true)},
		{"conv transpose 2x2 stride 2", []int{2, 3, 3, 2}, transpose(2, 2, 2, 0, true)},
		{"conv transpose 3x3 stride 2 pad 1", []int{1, 2, 4, 3}, transpose(3, 3, 2, 1, false)},
		{"conv transpose 3x3 stride 1", []int{2, 2, 3, 3}, transpose(1, 3, 1, 0, true)},
		{"conv transpose stride above kernel", []int{1, 2, 3, 2}, transpose(2, 2, 3, 0, true)},
		{"batch norm", []int{3, 2, 3, 4}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.BatchNorm("n", x) }},
		{"batch norm, batch 1", []int{1, 3, 2, 5}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.BatchNorm("n", x) }},
		{"batch norm, relu", []int{2, 3, 4, 3}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.ReLU(g.BatchNorm("n", x)) }},
		{"relu", []int{2, 2, 3, 3}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.ReLU(x) }},
		{"max pool 2", []int{2, 2, 4, 6}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.MaxPool2D(x, 2, 2) }},
		{"max pool 2, odd size", []int{1, 3, 5, 7}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.MaxPool2D(x, 2, 2) }},
		{"max pool 3 stride 1, overlapping", []int{1, 2, 5, 4}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.MaxPool2D(x, 3, 1) }},
		{"concat", []int{2, 2, 3, 3}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			return g.Concat(g.Parameter("y", uniform, 2, 3, 3, 3), x)
		}},
		{"concat with itself", []int{2, 2, 3, 3}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.Concat(x, x) }},
		{"add", []int{2, 2, 3, 3}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			return g.Add(g.Parameter("y", uniform, 2, 2, 3, 3), x)
		}},
		{"add to itself", []int{1, 2, 2, 3}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.Add(x, x) }},
		{"residual block", []int{2, 2, 4, 4}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			h := g.ReLU(g.BatchNorm("n1", g.Conv2D("c1", x, 3, 3, 1, 1, false)))
			return g.Add(h, g.ReLU(g.BatchNorm("n2", g.Conv2D("c2", h, 3, 3, 1, 1, false))))
		}},
		{"batch norm read twice", []int{2, 2, 3, 3}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			h := g.BatchNorm("n", x)
			return g.Add(h, g.ReLU(h))
		}},
		{"two batch norms of one input", []int{2, 2, 3, 3}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			return g.Add(g.BatchNorm("n1", x), g.ReLU(g.BatchNorm("n2", x)))
		}},
		{"input of three readers", []int{1, 2, 3, 3}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			return g.Add(g.Concat(g.Conv2D("a", x, 1, 1, 1, 0, true), g.ReLU(x)), g.Conv2D("b", x, 3, 3, 1, 1, true))
		}},
		{"one level of a U-Net", []int{1, 1, 6, 4}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
			skip := g.ReLU(g.BatchNorm("n1", g.Conv2D("c1", x, 2, 3, 1, 1, true)))
			h := g.ReLU(g.BatchNorm("n2", g.Conv2D("c2", g.MaxPool2D(skip, 2, 2), 3, 3, 1, 1, true)))
			h = g.Concat(g.ConvTranspose2D("t", h, 2, 2, 2, 0, true), skip)
			return g.Conv2D("head", h, 1, 1, 1, 0, true)
		}},
	}
}

// TestGradients compares every gradient, computed in float64 by the whole path
// (graph, gorgonia.Grad, lowering, kernels), with central differences of the
// loss, with and without fusion.
func TestGradients(t *testing.T) {
	for _, tt := range gradientCases() {
		for _, fuse := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/fuse=%v", tt.name, fuse), func(t *testing.T) {
				g := nn.NewGraph(nn.Train)
				z := tt.build(g, g.Parameter("x", uniform, tt.input...))
				if err := g.Err(); err != nil {
					t.Fatal(err)
				}
				if z.Dims() > 0 {
					z = g.BCEWithLogits(z, g.Input("target", z.Shape()...))
				}
				g.SetLoss(z)
				checkGradients(t, g, fuse)
			})
		}
	}
}

// checkGradients loads g in float64 and compares.
func checkGradients(t *testing.T, g *nn.Graph, fuse bool) {
	t.Helper()
	p, err := plan.Lower(g, plan.Options{Fuse: fuse})
	if err != nil {
		t.Fatal(err)
	}
	x, err := open(t, "fp64").Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range g.InitialValues(3) {
		if err := x.Set(name, v); err != nil {
			t.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, in := range g.Inputs() {
		v := make([]float32, in.Elements())
		for i := range v {
			v[i] = rng.Float32()
			if classes := p.ClassCount(p.FindTensor(plan.Input, in.Name)); classes > 0 {
				v[i] = float32(i % classes)
			}
			if len(in.Shape) > 2 && p.ClassCount(p.FindTensor(plan.Input, in.Name)) > 0 && i%5 == 3 {
				v[i] = 255 // ignored
			}
		}
		if err := x.SetInput(in.Name, v); err != nil {
			t.Fatal(err)
		}
	}
	loss := func() float64 {
		if _, err := x.Step(context.Background(), nil, nil); err != nil {
			t.Fatal(err)
		}
		return x.Loss()
	}
	loss()
	grads := map[string][]float64{}
	for _, q := range g.Parameters() {
		if grads[q.Name], err = x.Gradient(q.Name); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range g.Parameters() {
		worst := 0.0
		for i := range q.Elements() {
			fd := difference(t, x, q.Name, i, loss)
			worst = math.Max(worst, math.Abs(fd-grads[q.Name][i])/(1e-3+math.Abs(fd)))
		}
		// The truncation and rounding of a central difference with step 1e-5
		// in float64 are of the order of 1e-10 and 1e-11.
		if worst > 1e-6 {
			t.Errorf("gradient of %s is off by %.2g relative to the finite difference", q.Name, worst)
		}
	}
}

// difference is the central difference of the loss for element i of name.
func difference(t *testing.T, x engine.Executable, name string, i int, loss func() float64) float64 {
	t.Helper()
	const step = 1e-5
	v, err := x.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	at := v[i]
	sides := [2]float64{}
	for s, shift := range []float64{step, -step} {
		v[i] = at + shift
		if err := x.Set(name, v); err != nil {
			t.Fatal(err)
		}
		sides[s] = loss()
	}
	v[i] = at
	if err := x.Set(name, v); err != nil {
		t.Fatal(err)
	}
	return (sides[0] - sides[1]) / (2 * step)
}
