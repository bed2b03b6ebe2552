package cpu

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
)

// TestLinear has features that fill no block and batches that fill no tile.
func TestLinear(t *testing.T) {
	for _, c := range [][3]int{{1, 1, 1}, {3, 5, 10}, {1, 33, 16}, {7, 64, 9}, {13, 17, 40}} {
		n, k, m := c[0], c[1], c[2]
		x, w, y := []int{n, k}, []int{m, k}, []int{n, m}
		for _, node := range []node{
			{op: plan.OpLinear, in: [][]int{x, w}, out: [][]int{y}},
			{op: plan.OpLinear, in: [][]int{x, w, {m}}, out: [][]int{y}},
			{op: plan.OpLinearBackwardData, in: [][]int{w, y}, out: [][]int{x}},
			{op: plan.OpLinearBackwardWeights, in: [][]int{x, y}, out: [][]int{w}},
			{op: plan.OpBiasBackward, in: [][]int{y}, out: [][]int{{m}}},
		} {
			t.Run(fmt.Sprintf("%s/%d/%v", node.op, len(node.in), c), func(t *testing.T) { node.agrees(t, 1e-5) })
		}
	}
}

// maps are activations of two and three dimensions.
func maps() [][]int {
	return [][]int{{2, 3, 5, 7}, {1, 17, 6, 4}, {3, 8, 4, 5, 6}, {1, 9, 2, 3, 30}, {2, 5, 1, 1}, {1, 16, 23, 25}}
}

// TestAverages are means of everything and of windows that touch, overlap and
// leave gaps.
func TestAverages(t *testing.T) {
	for _, s := range maps() {
		for _, n := range []node{
			{op: plan.OpGlobalAvgPool, in: [][]int{s}, out: [][]int{s[:2]}},
			{op: plan.OpGlobalAvgPoolBackward, in: [][]int{s[:2]}, out: [][]int{s}},
		} {
			t.Run(fmt.Sprintf("%s/%v", n.op, s), func(t *testing.T) { n.agrees(t, 1e-6) })
		}
		for _, w := range [][2]int{{1, 1}, {2, 2}, {2, 1}, {1, 2}} {
			attr := plan.KernelAttr{Kernel: slices.Repeat([]int{w[0]}, len(s)-2), Stride: slices.Repeat([]int{w[1]}, len(s)-2)}
			if slices.Min(s[2:]) < w[0] {
				continue
			}
			y := pooledShape(s, attr)
			for _, n := range []node{
				{op: plan.OpAvgPool, attr: attr, in: [][]int{s}, out: [][]int{y}},
				{op: plan.OpAvgPoolBackward, attr: attr, in: [][]int{y}, out: [][]int{s}},
			} {
				t.Run(fmt.Sprintf("%s/%v/%v", n.op, s, w), func(t *testing.T) { n.agrees(t, 1e-6) })
			}
		}
	}
}

// pooledShape is the shape of a pooling's output.
func pooledShape(s []int, a plan.KernelAttr) []int {
	y := slices.Clone(s)
	for i := range a.Kernel {
		y[2+i] = (s[2+i]-a.Kernel[i])/a.Stride[i] + 1
		if len(a.Pad) > 0 {
			y[2+i] = (s[2+i]+2*a.Pad[i]-a.Kernel[i])/a.Stride[i] + 1
		}
	}
	return y
}

// TestMaxPoolPadded has windows of two and three dimensions, of volumes and over
// the edge, with either kind of padding; values are negative for a large part,
// so that zeros win.
func TestMaxPoolPadded(t *testing.T) {
	for _, c := range []struct {
		shape, kernel, stride, pad []int
	}{
		{[]int{2, 9, 7, 8}, []int{3, 3}, []int{2, 2}, []int{1, 1}},
		{[]int{1, 8, 5, 6}, []int{3, 2}, []int{1, 2}, []int{1, 0}},
		{[]int{1, 3, 4, 4}, []int{3, 3}, []int{3, 3}, []int{2, 2}},
		{[]int{1, 17, 1, 2}, []int{2, 2}, []int{2, 2}, []int{1, 1}},
		{[]int{2, 5, 4, 6, 5}, []int{2, 2, 2}, []int{2, 2, 2}, nil},
		{[]int{1, 8, 5, 4, 7}, []int{3, 3, 3}, []int{2, 1, 2}, []int{1, 1, 1}},
		{[]int{1, 4, 3, 6, 5}, []int{1, 2, 3}, []int{2, 2, 1}, []int{0, 1, 0}},
		{[]int{1, 4, 3, 6, 5}, []int{1, 2, 3}, []int{2, 2, 1}, nil},
	} {
		for _, zeros := range []bool{false, true} {
			if zeros && c.pad == nil {
				continue
			}
			attr := plan.KernelAttr{Kernel: c.kernel, Stride: c.stride, Pad: c.pad, PadZeros: zeros}
			y := pooledShape(c.shape, attr)
			coarse := func(_ *rand.Rand, _ int, v []float32) {
				for j := range v {
					v[j] = float32(int(2*v[j])) - 1
				}
			}
			forward := node{op: plan.OpMaxPool, attr: attr, in: [][]int{c.shape}, out: [][]int{y}, fill: coarse}
			t.Run(fmt.Sprintf("%v", c), func(t *testing.T) { forward.agrees(t, 0) })
			// The engine finds the maxima again; it does not read y.
			back := node{op: plan.OpMaxPoolBackward, attr: attr, in: [][]int{c.shape, y, y}, out: [][]int{c.shape}}
			back.fill = func(rng *rand.Rand, i int, v []float32) {
				if i == 0 {
					coarse(rng, i, v)
				}
			}
			t.Run(fmt.Sprintf("backward/%v", c), func(t *testing.T) { back.agrees(t, 1e-6) })
		}
	}
}

// TestPad has borders of different widths.
func TestPad(t *testing.T) {
	for _, c := range []struct{ shape, before, after []int }{
		{[]int{2, 9, 3, 4}, []int{0, 1}, []int{1, 2}},
		{[]int{1, 8, 2, 3, 4}, []int{1, 0, 2}, []int{0, 3, 1}},
		{[]int{1, 3, 5, 5}, []int{0, 0}, []int{0, 0}},
	} {
		y := slices.Clone(c.shape)
		for i := range c.before {
			y[2+i] += c.before[i] + c.after[i]
		}
		attr := plan.KernelAttr{Pad: c.before, PadEnd: c.after}
		for _, n := range []node{
			{op: plan.OpPad, attr: attr, in: [][]int{c.shape}, out: [][]int{y}},
			{op: plan.OpPadBackward, attr: attr, in: [][]int{y}, out: [][]int{c.shape}},
		} {
			t.Run(fmt.Sprintf("%s/%v", n.op, c), func(t *testing.T) { n.agrees(t, 0) })
		}
	}
}

// TestReshape keeps the logical order.
func TestReshape(t *testing.T) {
	for _, c := range [][2][]int{
		{{2, 3, 4, 5}, {2, 60}},
		{{2, 60}, {2, 3, 4, 5}},
		{{1, 9, 2, 3, 4}, {1, 216}},
		{{3, 17}, {3, 17}},
		{{2, 8, 1, 1}, {2, 8}},
		{{12}, {3, 4}},
		{{2, 6}, {12}},
		{{2, 10, 2, 2}, {2, 5, 2, 2, 2}},
	} {
		n := node{op: plan.OpReshape, in: [][]int{c[0]}, out: [][]int{c[1]}}
		t.Run(fmt.Sprint(c), func(t *testing.T) { n.agrees(t, 0) })
	}
}

// TestActivations covers leaky ReLU and tanh, of any number of dimensions.
func TestActivations(t *testing.T) {
	for _, s := range append(maps(), []int{3, 5}, []int{11}) {
		for _, n := range []node{
			{op: plan.OpLeakyReLU, attr: plan.KernelAttr{Slope: 0.01}, in: [][]int{s}, out: [][]int{s}},
			{op: plan.OpLeakyReLUBackward, attr: plan.KernelAttr{Slope: 1.5}, in: [][]int{s, s}, out: [][]int{s}},
			{op: plan.OpTanh, in: [][]int{s}, out: [][]int{s}},
			{op: plan.OpTanhBackward, in: [][]int{s, s}, out: [][]int{s}},
			{op: plan.OpReLU, in: [][]int{s}, out: [][]int{s}},
			{op: plan.OpAdd, in: [][]int{s, s}, out: [][]int{s}},
			{op: plan.OpBCEWithLogits, in: [][]int{s, s}, out: [][]int{{1}}},
		} {
			t.Run(fmt.Sprintf("%s/%v", n.op, s), func(t *testing.T) { n.agrees(t, 2e-6) })
		}
	}
}

// TestL1 has the term on exponentials, small values for it, and equal elements.
func TestL1(t *testing.T) {
	for _, s := range append(maps(), []int{3, 5}) {
		for _, weight := range []float64{0, 0.5} {
			small := func(_ *rand.Rand, i int, v []float32) {
				for j := range v {
					if i < 2 {
						v[j] = float32(int(4*v[j])) / 40
					}
				}
			}
			for _, n := range []node{
				{op: plan.OpL1, attr: plan.KernelAttr{ExpWeight: weight}, in: [][]int{s, s}, out: [][]int{{1}}, fill: small},
				{op: plan.OpL1Backward, attr: plan.KernelAttr{ExpWeight: weight}, in: [][]int{s, s, {1}}, out: [][]int{s}, fill: small},
			} {
				t.Run(fmt.Sprintf("%s/%v/%v", n.op, s, weight), func(t *testing.T) { n.agrees(t, 2e-6) })
			}
		}
	}
}

// TestDiceBCE has maps of more than one run, and weights of either term alone.
func TestDiceBCE(t *testing.T) {
	for _, s := range [][]int{{2, 3, 5, 7}, {1, 1, 70, 65}, {2, 9, 3, 4, 5}, {1, 2, 1, 1}} {
		masks := func(rng *rand.Rand, i int, v []float32) {
			for j := range v {
				if i == 1 {
					v[j] = float32(rng.IntN(2))
				}
			}
		}
		for _, weight := range []float64{0.001, 0.3, 1} {
			for _, n := range []node{
				{op: plan.OpDiceBCE, attr: plan.KernelAttr{DiceWeight: weight}, in: [][]int{s, s}, out: [][]int{{1}}, fill: masks},
				{op: plan.OpDiceBCEBackward, attr: plan.KernelAttr{DiceWeight: weight}, in: [][]int{s, s, {1}}, out: [][]int{s}, fill: masks},
			} {
				t.Run(fmt.Sprintf("%s/%v/%v", n.op, s, weight), func(t *testing.T) { n.agrees(t, 1e-5) })
			}
		}
	}
}

// TestSoftmax has logits far apart, and labels that are smoothed.
func TestSoftmax(t *testing.T) {
	for _, c := range [][2]int{{1, 2}, {3, 10}, {7, 33}, {2, 8}, {4, 1}} {
		z, target := []int{c[0], c[1]}, []int{c[0], 1}
		fill := func(rng *rand.Rand, i int, v []float32) {
			for j := range v {
				switch i {
				case 0:
					v[j] *= 20
				case 1:
					v[j] = float32(rng.IntN(c[1]))
				}
			}
		}
		for _, smoothing := range []float64{0, 0.1} {
			for _, n := range []node{
				{op: plan.OpSoftmaxCrossEntropy, attr: plan.KernelAttr{Smoothing: smoothing}, in: [][]int{z, target}, out: [][]int{{1}}, fill: fill},
				{op: plan.OpSoftmaxCrossEntropyBackward, attr: plan.KernelAttr{Smoothing: smoothing}, in: [][]int{z, target, {1}}, out: [][]int{z}, fill: fill},
			} {
				t.Run(fmt.Sprintf("%s/%v/%v", n.op, c, smoothing), func(t *testing.T) { n.agrees(t, 2e-6) })
			}
		}
	}
	x, err := open(t, "", 1).Load(node{op: plan.OpSoftmaxCrossEntropy, in: [][]int{{2, 3}, {2, 1}}, out: [][]int{{1}}}.program(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.SetInput("b", []float32{0, 3}); err == nil || !strings.Contains(err.Error(), "class 3 of sample 1: the network has classes 0 to 2") {
		t.Errorf("a class that is none: %v", err)
	}
}

// TestPixelCrossEntropy has runs that end in the middle of a sample, more classes than a block
// of channels, logits far apart and equal ones, ignored pixels, and weights of either term alone.
func TestPixelCrossEntropy(t *testing.T) {
	const ignored = 255
	for _, s := range [][]int{{2, 2, 5, 7}, {3, 4, 37, 31}, {1, 2, 40, 60}, {1, 20, 23, 25}, {2, 8, 3, 4, 5}, {1, 3, 1, 1}} {
		target := slices.Clone(s)
		target[1] = 1
		scale, classes := float32(20), s[1]
		if s[2] == 40 {
			scale, classes = 0.01, 0 // the product of the sums of a class's exponentials overflows
		}
		fill := func(rng *rand.Rand, i int, v []float32) {
			for j := range v {
				switch i {
				case 0:
					v[j] *= scale
				case 1:
					if v[j] = float32(rng.IntN(classes + 1)); v[j] == float32(s[1]) {
						v[j] = ignored
					}
				}
			}
		}
		weights := make([]float64, s[1])
		for i := range weights {
			weights[i] = float64(i) / 2
		}
		for _, attr := range []plan.KernelAttr{{}, {ClassWeights: weights}, {DiceWeight: 0.3}, {DiceWeight: 0.3, ClassWeights: weights}, {DiceWeight: 1}} {
			attr.Ignore = ignored
			for _, n := range []node{
				{op: plan.OpPixelCrossEntropy, attr: attr, in: [][]int{s, target}, out: [][]int{{1}}, fill: fill},
				{op: plan.OpPixelCrossEntropyBackward, attr: attr, in: [][]int{s, target, {1}}, out: [][]int{s}, fill: fill},
			} {
				t.Run(fmt.Sprintf("%s/%v/%v", n.op, s, attr), func(t *testing.T) { n.agrees(t, 2e-6) })
			}
		}
	}
}

// TestPixelTargets: pixels that are all ignored give a loss and a gradient of 0, and a target
// that is no class is refused.
func TestPixelTargets(t *testing.T) {
	const ignored = 255
	z, target := []int{2, 3, 2, 2}, []int{2, 1, 2, 2}
	attr := plan.KernelAttr{Ignore: ignored, DiceWeight: 0.5}
	all := func(_ *rand.Rand, i int, v []float32) {
		if i == 1 {
			for j := range v {
				v[j] = ignored
			}
		}
	}
	for _, n := range []node{
		{op: plan.OpPixelCrossEntropy, attr: attr, in: [][]int{z, target}, out: [][]int{{1}}, fill: all},
		{op: plan.OpPixelCrossEntropyBackward, attr: attr, in: [][]int{z, target, {1}}, out: [][]int{z}, fill: all},
	} {
		for _, e := range []engine.Engine{open(t, "", 1), truth(t)} {
			if got := n.results(t, e, 1)[0]; slices.ContainsFunc(got, func(v float64) bool { return v != 0 }) {
				t.Errorf("%s on %s: %v, want 0", n.op, e.Name(), got)
			}
		}
		for _, e := range []engine.Engine{open(t, "", 1), truth(t)} {
			x, err := e.Load(n.program(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, bad := range []float32{3, -1, 0.5, 254, float32(math.NaN()), float32(math.Inf(1))} {
				err := x.SetInput("b", []float32{0, ignored, 2, bad, 0, 0, 0, 0})
				if want := fmt.Sprintf("invalid class %v of pixel 3: the network has classes 0 to 2 (or 255: ignored)", bad); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s on %s: got error %v, want %q", n.op, e.Name(), err, want)
				}
			}
		}
	}
}

// TestPixelCrossEntropyAgainstTorch compares loss and gradient with what PyTorch computed; see
// testdata/torch_ops.py of the reference engine.
func TestPixelCrossEntropyAgainstTorch(t *testing.T) {
	text, err := os.ReadFile("../reference/testdata/torch_ops.json")
	if err != nil {
		t.Fatal(err)
	}
	type fixture struct {
		Name                      string
		Loss                      float64
		Values, Inputs, Gradients map[string][]float32
	}
	var fixtures []fixture
	if err := json.Unmarshal(text, &fixtures); err != nil {
		t.Fatal(err)
	}
	const classes, ignored = 20, 255
	ramp := make([]float64, classes)
	for i := range ramp {
		ramp[i] = 0.25 * float64(i)
	}
	for name, c := range map[string]struct {
		shape []int
		attr  plan.KernelAttr
	}{
		"pixel cross-entropy":                                     {[]int{2, 4, 3, 3}, plan.KernelAttr{}},
		"pixel cross-entropy, weighted":                           {[]int{2, 4, 3, 3}, plan.KernelAttr{ClassWeights: []float64{0.5, 2, 0, 1}}},
		"pixel cross-entropy of 2 classes, and Dice":              {[]int{3, 2, 2, 3}, plan.KernelAttr{ClassWeights: []float64{1, 3}, DiceWeight: 0.25}},
		"pixel cross-entropy of 20 classes of a volume, and Dice": {[]int{2, classes, 2, 1, 3}, plan.KernelAttr{ClassWeights: ramp, DiceWeight: 0.5}},
		"Dice of 4 classes":                                       {[]int{2, 4, 3, 3}, plan.KernelAttr{DiceWeight: 1}},
	} {
		f := fixtures[slices.IndexFunc(fixtures, func(f fixture) bool { return f.Name == name })]
		target := slices.Clone(c.shape)
		target[1], c.attr.Ignore = 1, ignored
		fill := func(_ *rand.Rand, i int, v []float32) { copy(v, [][]float32{f.Values["x"], f.Inputs["t"], {1}}[i]) }
		e := open(t, "", 2)
		loss := node{op: plan.OpPixelCrossEntropy, attr: c.attr, in: [][]int{c.shape, target}, out: [][]int{{1}}, fill: fill}.results(t, e, 1)
		near(t, name, loss[0], []float64{f.Loss}, 1e-6)
		gradient := node{op: plan.OpPixelCrossEntropyBackward, attr: c.attr, in: [][]int{c.shape, target, {1}}, out: [][]int{c.shape}, fill: fill}.results(t, e, 1)
		want := make([]float64, len(f.Gradients["x"]))
		for i, v := range f.Gradients["x"] {
			want[i] = float64(v)
		}
		near(t, name, gradient[0], want, 1e-6)
	}
}
