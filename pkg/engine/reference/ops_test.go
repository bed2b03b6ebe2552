package reference_test

import (
	"math"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
)

// built lowers g and loads it with its initial values.
func built(t *testing.T, g *nn.Graph, precision string) engine.Executable {
	t.Helper()
	p, err := plan.Lower(g, plan.Options{Fuse: true})
	if err != nil {
		t.Fatal(err)
	}
	x, err := open(t, precision).Load(p, nil)
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

// parameter is one that starts with these values.
func parameter(v ...float64) nn.Initializer {
	return func(_ func() float64, to []float64) { copy(to, v) }
}

// TestSoftmaxCrossEntropyByHand: the softmax of 0, ln 2, ln 5 is 1/8, 2/8, 5/8,
// and equal logits, however large, are 1/3 each.
func TestSoftmaxCrossEntropyByHand(t *testing.T) {
	for _, smoothing := range []float64{0, 0.3} {
		g := nn.NewGraph(nn.Train)
		z := g.Parameter("z", parameter(0, math.Log(2), math.Log(5), 2000, 2000, 2000), 2, 3)
		g.SetLoss(g.SoftmaxCrossEntropy(z, g.Input("class", 2, 1), smoothing))
		x := built(t, g, "fp64")
		input(t, x, "class", 2, 0)
		step(t, x, nil, nil)
		at, even := 1-smoothing+smoothing/3, smoothing/3
		p := []float64{1. / 8, 2. / 8, 5. / 8, 1. / 3, 1. / 3, 1. / 3}
		q := []float64{even, even, at, at, even, even}
		want := 0.0
		for i, v := range gradient(t, x, "z") {
			want -= q[i] * math.Log(p[i]) / 2
			if !near(v, (p[i]-q[i])/2, 1e-12) { // 2000 + ln 3 has an ulp of 2e-13
				t.Errorf("smoothing %v: gradient %d is %v, want %v", smoothing, i, v, (p[i]-q[i])/2)
			}
		}
		if !near(x.Loss(), want, 1e-12) {
			t.Errorf("smoothing %v: loss %v, want %v", smoothing, x.Loss(), want)
		}
	}
}

// TestClassOutOfRange: an index that is no class is refused before it is used,
// and what was set before stays.
func TestClassOutOfRange(t *testing.T) {
	g := nn.NewGraph(nn.Train)
	g.SetLoss(g.SoftmaxCrossEntropy(g.Parameter("z", uniform, 3, 4), g.Input("class", 3, 1), 0))
	x := built(t, g, "fp32")
	input(t, x, "class", 3, 0, 1)
	step(t, x, nil, nil)
	before := x.Loss()
	for _, bad := range []float32{4, -1, 1.5, float32(math.NaN()), float32(math.Inf(1))} {
		err := x.SetInput("class", []float32{0, 0, bad})
		if err == nil || !strings.Contains(err.Error(), "of sample 2: the network has classes 0 to 3: check the labels") {
			t.Errorf("class %v: error %v", bad, err)
		}
	}
	if step(t, x, nil, nil); x.Loss() != before {
		t.Errorf("the loss went from %v to %v by inputs that were refused", before, x.Loss())
	}
}

// TestMaxPoolPadding: padding of −∞ is never the maximum (as in PyTorch), and
// zeros are where all else is negative (as behind Keras' ZeroPadding2D); what
// these win gets no gradient.
func TestMaxPoolPadding(t *testing.T) {
	for _, zeros := range []bool{false, true} {
		g := nn.NewGraph(nn.Train)
		x := g.Parameter("x", parameter(-1, -2, -3, -4), 1, 1, 2, 2)
		z := g.Output("z", g.MaxPool(x, nn.Pool{Kernel: []int{2}, Stride: []int{1}, Pad: []int{1}, PadZeros: zeros}))
		g.SetLoss(g.BCEWithLogits(z, g.Input("t", 1, 1, 3, 3)))
		e := built(t, g, "fp64")
		step(t, e, nil, nil)
		// The four corners see one element each, the edges two, the middle all.
		want := []float32{-1, -1, -2, -1, -1, -2, -3, -3, -4}
		slope := func(v float64) float64 { return 1 / (1 + math.Exp(-v)) / 9 }
		grads := []float64{4 * slope(-1), 2 * slope(-2), 2 * slope(-3), slope(-4)}
		if zeros {
			want = []float32{0, 0, 0, 0, -1, 0, 0, 0, 0}
			grads = []float64{slope(-1), 0, 0, 0}
		}
		got := make([]float32, 9)
		if err := e.Output("z", got); err != nil {
			t.Fatal(err)
		}
		for i, v := range got {
			if v != want[i] {
				t.Errorf("zeros %v: y[%d] = %v, want %v", zeros, i, v, want[i])
			}
		}
		for i, v := range gradient(t, e, "x") {
			if !near(v, grads[i], 1e-15) {
				t.Errorf("zeros %v: gradient %d is %v, want %v", zeros, i, v, grads[i])
			}
		}
	}
}

// TestL1ByHand: the gradient is the sign, 0 where prediction and target are
// equal; the exponentials count in channel 0 alone.
func TestL1ByHand(t *testing.T) {
	g := nn.NewGraph(nn.Train)
	y := g.Parameter("y", parameter(0.25, 0.5, 3, 1), 1, 2, 1, 2)
	g.SetLoss(g.L1(y, g.Input("t", 1, 2, 1, 2), 0.1))
	x := built(t, g, "fp64")
	input(t, x, "t", 0.5, 0.5, 1, 2)
	step(t, x, nil, nil)
	// |0.25−0.5|, |0.5−0.5|, |3−1|, |1−2| over four, and e^7 − e^3.5 over two.
	if want := 3.25/4 + 0.1*(math.Exp(7)-math.Exp(3.5))/2; !near(x.Loss(), want, 1e-12) {
		t.Errorf("loss %v, want %v", x.Loss(), want)
	}
	want := []float64{-0.25 - 0.1*14*math.Exp(3.5)/2, 0, 0.25, -0.25}
	for i, v := range gradient(t, x, "y") {
		if !near(v, want[i], 1e-12) {
			t.Errorf("gradient %d is %v, want %v", i, v, want[i])
		}
	}
}

// TestActivationsByHand: leaky ReLU and tanh at a point of each side and at 0.
func TestActivationsByHand(t *testing.T) {
	g := nn.NewGraph(nn.Eval)
	x := g.Input("x", 1, 3)
	g.Output("leaky", g.LeakyReLU(x, 0.25))
	g.Output("tanh", g.Tanh(x))
	e := built(t, g, "fp64")
	input(t, e, "x", -2, 0, 2)
	step(t, e, nil, nil)
	for name, want := range map[string][]float32{"leaky": {-0.5, 0, 2}, "tanh": {float32(math.Tanh(-2)), 0, float32(math.Tanh(2))}} {
		got := make([]float32, 3)
		if err := e.Output(name, got); err != nil {
			t.Fatal(err)
		}
		for i, v := range got {
			if v != want[i] {
				t.Errorf("%s[%d] = %v, want %v", name, i, v, want[i])
			}
		}
	}
}

// TestPrecisionsAgree: every gradient of every layer in fp32 differs from fp64
// by rounding alone. ReLU and max-pool are left out of the comparison where a
// rounding could flip them: the values are distinct, so none does here.
func TestPrecisionsAgree(t *testing.T) {
	for _, tt := range gradientCases() {
		var grads [2]map[string][]float64
		var loss [2]float64
		for i, precision := range []string{"fp32", "fp64"} {
			g := nn.NewGraph(nn.Train)
			z := tt.build(g, g.Parameter("x", uniform, tt.input...))
			if z.Dims() > 0 {
				z = g.BCEWithLogits(z, g.Input("target", z.Shape()...))
			}
			g.SetLoss(z)
			x := built(t, g, precision)
			step(t, x, nil, nil)
			loss[i], grads[i] = x.Loss(), map[string][]float64{}
			for _, q := range g.Parameters() {
				grads[i][q.Name] = gradient(t, x, q.Name)
			}
		}
		if !near(loss[0], loss[1], 1e-5*math.Abs(loss[1])) {
			t.Errorf("%s: loss %v in fp32, %v in fp64", tt.name, loss[0], loss[1])
		}
		for name, double := range grads[1] {
			largest := 0.0
			for _, d := range double {
				largest = max(largest, math.Abs(d))
			}
			for i, d := range double {
				// A gradient that is 0 but for rounding is compared absolutely.
				if !near(grads[0][name][i], d, 1e-4*largest+1e-6) {
					t.Errorf("%s: gradient of %s[%d] is %v in fp32, %v in fp64", tt.name, name, i, grads[0][name][i], d)
				}
			}
		}
	}
}

// TestLossesAreMeans: the loss of a batch is the mean of its halves' losses, and
// so is its gradient: what data-parallel training rests on.
func TestLossesAreMeans(t *testing.T) {
	const ignored = 255
	for name, tt := range map[string]struct {
		sample, target []int
		loss           func(g *nn.Graph, z, target *node) *node
	}{
		"bce":           {[]int{2, 3, 2}, []int{2, 3, 2}, func(g *nn.Graph, z, target *node) *node { return g.BCEWithLogits(z, target) }},
		"dice":          {[]int{2, 3, 2}, []int{2, 3, 2}, func(g *nn.Graph, z, target *node) *node { return g.DiceBCE(z, target, 0.7) }},
		"cross-entropy": {[]int{5}, []int{1}, func(g *nn.Graph, z, target *node) *node { return g.SoftmaxCrossEntropy(z, target, 0.1) }},
		"pixels": {[]int{3, 2, 4}, []int{1, 2, 4}, func(g *nn.Graph, z, target *node) *node {
			return g.PixelCrossEntropy(z, target, nn.PixelLoss{ClassWeights: []float64{1, 3, 2}, Ignore: ignored, DiceWeight: 0.7})
		}},
		"l1": {[]int{2, 2, 1, 2}, []int{2, 2, 1, 2}, func(g *nn.Graph, z, target *node) *node { return g.L1(z, target, 0.01) }},
	} {
		run := func(lo, hi int) (float64, []float64) {
			g := nn.NewGraph(nn.Train)
			z := g.Parameter("z", nn.Constant(0), append([]int{hi - lo}, tt.sample...)...)
			g.SetLoss(tt.loss(g, z, g.Input("t", append([]int{hi - lo}, tt.target...)...)))
			x := built(t, g, "fp64")
			values := make([]float64, g.Parameters()[0].Elements())
			for i := range values {
				values[i] = math.Sin(float64(i + lo*len(values)/(hi-lo)))
			}
			target := make([]float32, g.Inputs()[0].Elements())
			for i := range target {
				at := i + lo*len(target)/(hi-lo)
				target[i] = float32(at % 2)
				if name == "pixels" && at*at%16 == 1 && at < 16 { // in the first half only
					target[i] = ignored
				}
			}
			if err := x.Set("z", values); err != nil {
				t.Fatal(err)
			}
			input(t, x, "t", target...)
			step(t, x, nil, nil)
			return x.Loss(), gradient(t, x, "z")
		}
		loss, all := run(0, 4)
		first, a := run(0, 2)
		second, b := run(2, 4)
		if !near(loss, (first+second)/2, 1e-14*math.Abs(loss)) {
			t.Errorf("%s: loss %v of the batch, %v and %v of its halves", name, loss, first, second)
		}
		for i, v := range append(a, b...) {
			if !near(all[i], v/2, 1e-14*(1+math.Abs(v))) {
				t.Errorf("%s: gradient %d is %v in the batch, %v in its half", name, i, all[i], v)
			}
		}
	}
}
