package reference_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// small builds a network on an input "x" with the loss against "t", loaded in
// fp64 with its initial values.
func small(t *testing.T, mode nn.Mode, shape []int, build func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node) engine.Executable {
	t.Helper()
	g := nn.NewGraph(mode)
	z := g.Output("z", build(g, g.Input("x", shape...)))
	if g.Err() != nil {
		t.Fatal(g.Err())
	}
	g.SetLoss(g.BCEWithLogits(z, g.Input("t", z.Shape()...)))
	p, err := plan.Lower(g, plan.Options{Fuse: true, BucketBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	x, err := open(t, "fp64").Load(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range g.InitialValues(5) {
		if err := x.Set(name, v); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

func step(t *testing.T, x engine.Executable, sync engine.GradSync, u *optim.Update) {
	t.Helper()
	if _, err := x.Step(context.Background(), sync, u); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, x engine.Executable, name string) []float64 {
	t.Helper()
	v, err := x.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func gradient(t *testing.T, x engine.Executable, name string) []float64 {
	t.Helper()
	v, err := x.Gradient(name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func input(t *testing.T, x engine.Executable, name string, v ...float32) {
	t.Helper()
	if err := x.SetInput(name, v); err != nil {
		t.Fatal(err)
	}
}

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance }

// scalar is z = w·x with one pixel: the loss and its derivative are written
// down below.
func scalar(t *testing.T) engine.Executable {
	x := small(t, nn.Train, []int{1, 1, 1, 1}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
		return g.Conv2D("c", x, 1, 1, 1, 0, false)
	})
	if err := x.Set("c.weight", []float64{0}); err != nil {
		t.Fatal(err)
	}
	input(t, x, "x", 1)
	input(t, x, "t", 1)
	return x
}

// TestLossByHand: at z = 0 and t = 1 the cross-entropy is ln 2 and its
// derivative σ(0) − 1 = −1/2.
func TestLossByHand(t *testing.T) {
	x := scalar(t)
	step(t, x, nil, nil)
	if !near(x.Loss(), math.Ln2, 1e-15) || !near(gradient(t, x, "c.weight")[0], -0.5, 1e-15) {
		t.Errorf("loss %v, gradient %v, want ln 2 and −0.5", x.Loss(), gradient(t, x, "c.weight"))
	}
	// Far out the naive formula overflows: at z = −1000 and t = 1 the loss is
	// 1000, and the derivative −1.
	if err := x.Set("c.weight", []float64{-1000}); err != nil {
		t.Fatal(err)
	}
	step(t, x, nil, nil)
	if x.Loss() != 1000 || gradient(t, x, "c.weight")[0] != -1 {
		t.Errorf("loss %v, gradient %v, want 1000 and −1", x.Loss(), gradient(t, x, "c.weight"))
	}
}

// TestBatchNormByHand: the values 1, 2, 3, 4 have mean 2.5, biased variance
// 1.25 and unbiased variance 5/3. With PyTorch's momentum of 0.1 the running
// ones go from 0 and 1 to 0.25 and 0.9 + 0.1·5/3.
func TestBatchNormByHand(t *testing.T) {
	build := func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node { return g.BatchNorm("n", x) }
	x := small(t, nn.Train, []int{1, 1, 2, 2}, build)
	input(t, x, "x", 1, 2, 3, 4)
	input(t, x, "t", 0, 0, 0, 0)
	step(t, x, nil, nil)
	z := make([]float32, 4)
	if err := x.Output("z", z); err != nil {
		t.Fatal(err)
	}
	for i, v := range []float64{1, 2, 3, 4} {
		if want := (v - 2.5) / math.Sqrt(1.25+1e-5); !near(float64(z[i]), want, 1e-7) {
			t.Errorf("y[%d] = %v, want %v", i, z[i], want)
		}
	}
	mean, variance := 0.25, 0.9+0.1*5./3
	if m, v := get(t, x, "n.running_mean")[0], get(t, x, "n.running_var")[0]; !near(m, mean, 1e-15) || !near(v, variance, 1e-15) {
		t.Errorf("running mean %v and variance %v, want %v and %v", m, v, mean, variance)
	}
	step(t, x, nil, nil)
	if m := get(t, x, "n.running_mean")[0]; !near(m, 0.9*0.25+0.25, 1e-15) {
		t.Errorf("running mean after two steps is %v, want 0.475", m)
	}

	eval := small(t, nn.Eval, []int{1, 1, 2, 2}, build)
	for name, v := range map[string]float64{"n.running_mean": 1, "n.running_var": 4, "n.weight": 3, "n.bias": 0.5} {
		if err := eval.Set(name, []float64{v}); err != nil {
			t.Fatal(err)
		}
	}
	input(t, eval, "x", 1, 2, 3, 4)
	input(t, eval, "t", 0, 0, 0, 0)
	step(t, eval, nil, nil)
	if err := eval.Output("z", z); err != nil {
		t.Fatal(err)
	}
	for i, v := range []float64{1, 2, 3, 4} {
		if want := 3*(v-1)/math.Sqrt(4+1e-5) + 0.5; !near(float64(z[i]), want, 1e-6) {
			t.Errorf("eval: y[%d] = %v, want %v", i, z[i], want)
		}
	}
	if m := get(t, eval, "n.running_mean")[0]; m != 1 {
		t.Errorf("evaluation moved the running mean to %v", m)
	}
}

// TestAdam follows algorithm 1 of Kingma and Ba (2015) as printed there, on
// the network whose gradient is known: σ(w) − 1.
func TestAdam(t *testing.T) {
	x := scalar(t)
	var w, m, v float64
	for k := 1; k <= 5; k++ {
		u := optim.Update{Rule: "adam", LearningRate: 0.1, Step: k, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.01}
		step(t, x, nil, &u)
		g := 1/(1+math.Exp(-w)) - 1 + 0.01*w
		m = 0.9*m + 0.1*g
		v = 0.999*v + 0.001*g*g
		mHat, vHat := m/(1-math.Pow(0.9, float64(k))), v/(1-math.Pow(0.999, float64(k)))
		w -= 0.1 * mHat / (math.Sqrt(vHat) + 1e-8)
		if got := get(t, x, "c.weight")[0]; !near(got, w, 1e-13) {
			t.Fatalf("step %d: weight %v, want %v", k, got, w)
		}
		if k == 1 && !near(w, 0.1, 1e-8) { // The first step is as long as the learning rate (section 2.1).
			t.Fatalf("the first step went to %v", w)
		}
	}
	if !near(get(t, x, "optimizer.m.c.weight")[0], m, 1e-15) || !near(get(t, x, "optimizer.v.c.weight")[0], v, 1e-15) {
		t.Error("the slots are not m and v")
	}
}

func TestSGD(t *testing.T) {
	for _, momentum := range []float64{0, 0.9} {
		x := scalar(t)
		var w, buf float64
		for k := 1; k <= 4; k++ {
			u := optim.Update{Rule: "sgd", LearningRate: 0.5, Step: k, Momentum: momentum, WeightDecay: 0.01}
			step(t, x, nil, &u)
			buf = momentum*buf + 1/(1+math.Exp(-w)) - 1 + 0.01*w
			w -= 0.5 * buf
			if got := get(t, x, "c.weight")[0]; !near(got, w, 1e-15) {
				t.Fatalf("momentum %v, step %d: weight %v, want %v", momentum, k, got, w)
			}
		}
		if momentum == 0 {
			buf = 0
		}
		if got := get(t, x, "optimizer.momentum.c.weight")[0]; !near(got, buf, 1e-15) {
			t.Errorf("momentum buffer is %v, want %v", got, buf)
		}
	}
}

// TestFusionChangesNothing: fused and plain programs do the same arithmetic.
func TestFusionChangesNothing(t *testing.T) {
	image, mask := blobs(2, 16)
	var losses [2][]float64
	for i, fuse := range []bool{false, true} {
		x := load(t, open(t, "fp32"), tinyUNet(t), 2, nn.Train, plan.Options{Fuse: fuse}, nil)
		set(t, x, image, mask)
		for k := 1; k <= 5; k++ {
			step(t, x, nil, &optim.Update{Rule: "sgd", LearningRate: 0.1, Step: k, Momentum: 0.9})
			losses[i] = append(losses[i], x.Loss())
		}
	}
	if !slices.Equal(losses[0], losses[1]) {
		t.Errorf("losses %v without fusion, %v with", losses[0], losses[1])
	}
}

// TestSingleAndDoubleAgree: fp32 differs from fp64 by rounding alone. The
// network has no ReLU mask or pool that could flip: gradients are smooth.
func TestSingleAndDoubleAgree(t *testing.T) {
	var grads [2]map[string][]float64
	for i, precision := range []string{"fp32", "fp64"} {
		g := nn.NewGraph(nn.Train)
		h := g.BatchNorm("n", g.Conv2D("a", g.Input("x", 2, 3, 7, 5), 8, 3, 1, 1, true))
		z := g.Conv2D("head", g.ConvTranspose2D("t", h, 4, 2, 2, 0, true), 1, 1, 1, 0, true)
		if g.Err() != nil {
			t.Fatal(g.Err())
		}
		g.SetLoss(g.BCEWithLogits(z, g.Input("t", z.Shape()...)))
		p, err := plan.Lower(g, plan.Options{})
		if err != nil {
			t.Fatal(err)
		}
		x, err := open(t, precision).Load(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		grads[i] = map[string][]float64{}
		for name, v := range g.InitialValues(9) {
			if err := x.Set(name, v); err != nil {
				t.Fatal(err)
			}
		}
		for _, in := range g.Inputs() {
			v := make([]float32, in.Elements())
			for j := range v {
				v[j] = float32(math.Sin(float64(7*j))+1) / 2
			}
			input(t, x, in.Name, v...)
		}
		step(t, x, nil, nil)
		for _, q := range p.Params {
			grads[i][q.Name] = gradient(t, x, q.Name)
		}
	}
	for name, double := range grads[1] {
		largest := 0.0
		for _, g := range double {
			largest = max(largest, math.Abs(g))
		}
		for j, g := range grads[0][name] {
			// A conv bias before batch norm has gradient 0: compared absolutely.
			if !near(g, double[j], 1e-5*largest+1e-7) {
				t.Errorf("%s[%d]: %v in fp32, %v in fp64", name, j, g, double[j])
			}
		}
	}
}

// TestMaxPoolTies: of equal maxima the first in row order gets the gradient,
// and rows and columns that no window covers get none.
func TestMaxPoolTies(t *testing.T) {
	x := small(t, nn.Train, []int{1, 1, 3, 3}, func(g *nn.Graph, x *gorgonia.Node) *gorgonia.Node {
		return g.MaxPool2D(g.Add(x, g.Parameter("p", nn.Constant(0), 1, 1, 3, 3)), 2, 2)
	})
	input(t, x, "x", 0, 5, 9, 5, 5, 9, 9, 9, 9)
	input(t, x, "t", 0)
	step(t, x, nil, nil)
	sigma := 1 / (1 + math.Exp(-5)) // the derivative of the loss at z = 5, t = 0
	for i, g := range gradient(t, x, "p") {
		want := 0.0
		if i == 1 {
			want = sigma
		}
		if !near(g, want, 1e-15) {
			t.Errorf("gradient of element %d is %v, want %v", i, g, want)
		}
	}
}
