package reference_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"lockstep/pkg/internal/device"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/nn"
	"lockstep/pkg/optim"
)

// TestMixedPrecisionByHand follows two linear layers with a leaky ReLU between
// them through a step, written down with a rounding at each place that
// plan.ConvertToMixedPrecision names, and wants the very same numbers.
func TestMixedPrecisionByHand(t *testing.T) {
	const n, in, hidden, out, slope = 2, 3, 4, 5, 0.3
	scale := map[device.ElementType]float64{device.BF16: 1, device.F16: 65536} // what the loss is multiplied by
	for precision, typ := range map[string]device.ElementType{"bf16": device.BF16, "fp16": device.F16} {
		g := nn.NewGraph(nn.Train)
		h := g.LeakyReLU(g.Linear("a", g.Input("x", n, in), nn.Dense{Out: hidden, Bias: true}), slope)
		g.SetLoss(g.SoftmaxCrossEntropy(g.Linear("b", h, nn.Dense{Out: out}), g.Input("class", n, 1), 0))
		e := built(t, g, precision)
		values := map[string][]float32{}
		for name, v := range g.InitialValues(5) {
			for _, f := range v {
				values[name] = append(values[name], float32(f))
			}
		}
		x := []float32{0.1, -1.3, 2.7, 0.33, 5.1, -0.77}
		class := []float32{4, 1}
		input(t, e, "x", x...)
		input(t, e, "class", class...)
		step(t, e, nil, nil)

		low := func(v []float32) []float32 {
			r := make([]float32, len(v))
			for i, f := range v {
				r[i] = typ.Round(f)
			}
			return r
		}
		xl, al, bl := low(x), low(values["a.weight"]), low(values["b.weight"])
		y := make([]float32, n*hidden) // stored
		pre := make([]float32, n*out)  // logits, stored
		for i := range n {
			for j := range hidden {
				sum := float64(values["a.bias"][j])
				for k := range in {
					sum += float64(xl[i*in+k]) * float64(al[j*in+k])
				}
				v := typ.Round(float32(sum)) // the convolution's result
				if v < 0 {
					v = typ.Round(v * float32(slope)) // the activation's
				}
				y[i*hidden+j] = v
			}
			for j := range out {
				sum := 0.0
				for k := range hidden {
					sum += float64(y[i*hidden+k]) * float64(bl[j*hidden+k])
				}
				pre[i*out+j] = typ.Round(float32(sum))
			}
		}
		loss := 0.0
		dz := make([]float32, n*out)
		for i := range n {
			sum := 0.0
			for j := range out {
				sum += math.Exp(float64(pre[i*out+j]))
			}
			for j := range out {
				p := math.Exp(float64(pre[i*out+j])) / sum
				if j == int(class[i]) {
					loss -= math.Log(p) / n
					p--
				}
				dz[i*out+j] = typ.Round(float32(scale[typ] / n * p))
			}
		}
		db := make([]float64, out*hidden)
		da := make([]float64, hidden*in)
		dbias := make([]float64, hidden)
		for i := range n {
			for j := range hidden {
				sum := 0.0
				for k := range out {
					sum += float64(dz[i*out+k]) * float64(bl[k*hidden+j])
					db[k*hidden+j] += float64(dz[i*out+k]) * float64(y[i*hidden+j])
				}
				d := typ.Round(float32(sum))
				if y[i*hidden+j] <= 0 {
					d = typ.Round(float32(slope) * d)
				}
				dbias[j] += float64(d)
				for k := range in {
					da[j*in+k] += float64(d) * float64(xl[i*in+k])
				}
			}
		}
		if !near(e.Loss(), loss, 1e-7) { // The loss is float32, and exponentials are added up in another way.
			t.Errorf("%s: loss %v, want %v", precision, e.Loss(), loss)
		}
		for name, want := range map[string][]float64{"b.weight": db, "a.weight": da, "a.bias": dbias} {
			for i, v := range gradient(t, e, name) {
				if v != float64(float32(want[i]))/scale[typ] {
					t.Errorf("%s: gradient of %s[%d] is %v, want %v", precision, name, i, v, float64(float32(want[i]))/scale[typ])
				}
			}
		}
	}
}

// TestLossScale: two classes, the sure one wrong, so that the gradient of the
// logits is ±1 times the scale. 65536 is beyond fp16: the step is left out and
// the scale halved. 2000 good steps later it doubles, and overflows once more.
func TestLossScale(t *testing.T) {
	g := nn.NewGraph(nn.Train)
	z := g.Linear("l", g.Input("x", 1, 1), nn.Dense{Out: 2, Weight: nn.FixedScheme(parameter(20, -20))})
	g.SetLoss(g.SoftmaxCrossEntropy(z, g.Input("class", 1, 1), 0))
	x := built(t, g, "fp16")
	input(t, x, "x", 1)
	input(t, x, "class", 1)
	var skipped []int
	for k := 1; k <= 2004; k++ {
		before := get(t, x, "l.weight")
		step(t, x, nil, &optim.Update{Rule: "adam", LearningRate: 1e-4, Step: k, Beta1: .9, Beta2: .999, Epsilon: 1e-8})
		after := get(t, x, "l.weight")
		if slices.Equal(before, after) {
			skipped = append(skipped, k)
			if !math.IsInf(gradient(t, x, "l.weight")[0], 1) {
				t.Errorf("step %d was left out with gradient %v", k, gradient(t, x, "l.weight"))
			}
			continue
		}
		// Adam's first step is as long as the learning rate, when it counts from 1
		// (Kingma and Ba, section 2.1): 0.74 of it, were the skipped one counted.
		if k == 2 && !near(before[0]-after[0], 1e-4, 2e-6) { // 20 has an ulp of 1.9e-6
			t.Errorf("the first step that counts went from %v to %v", before, after)
		}
		if !near(gradient(t, x, "l.weight")[0], 1, 1e-6) {
			t.Fatalf("step %d: gradient %v, want 1: it must be divided by the scale", k, gradient(t, x, "l.weight"))
		}
	}
	if !slices.Equal(skipped, []int{1, 2002}) {
		t.Errorf("steps %v were left out, want 1 and 2002", skipped)
	}
}

// TestLossScaleIsTheEngines: it is no input that one could set, and not among
// those of the program that was loaded.
func TestLossScaleIsTheEngines(t *testing.T) {
	x := load(t, open(t, "fp16"), tinyUNet(t), 2, nn.Train, plan.Options{Fuse: true}, nil)
	if err := x.SetInput(plan.LossScaleInput, []float32{1}); err == nil || !strings.Contains(err.Error(), "unknown input") {
		t.Errorf("error %v", err)
	}
	if x.Program().FindTensor(plan.Input, plan.LossScaleInput) >= 0 {
		t.Error("the program has an input for the loss scale")
	}
}

// TestTrainsInLowPrecision: on the whole U-Net the losses of 30 steps follow
// those of fp32 closely, and are not the same ones.
func TestTrainsInLowPrecision(t *testing.T) {
	image, mask := blobs(2, 16)
	run := func(precision string) []float64 {
		x := load(t, open(t, precision), tinyUNet(t), 2, nn.Train, plan.Options{Fuse: true}, nil)
		set(t, x, image, mask)
		var losses []float64
		for k := 1; k <= 30; k++ {
			u := optim.Update{Rule: "adam", LearningRate: 1e-2, Step: k, Beta1: .9, Beta2: .999, Epsilon: 1e-8}
			if _, err := x.Step(context.Background(), nil, &u); err != nil {
				t.Fatal(err)
			}
			losses = append(losses, x.Loss())
		}
		return losses
	}
	full := run("fp32")
	for precision, tolerance := range map[string]float64{"bf16": 0.08, "fp16": 0.01} { // 8 and 11 bits of mantissa
		worst := 0.0
		for k, v := range run(precision) {
			worst = max(worst, math.Abs(v-full[k]))
		}
		t.Logf("%s: losses of 30 steps differ from fp32's by up to %.2g", precision, worst)
		if worst == 0 || worst > tolerance {
			t.Errorf("%s: losses differ from fp32's by %v, want at most %v, and not 0", precision, worst, tolerance)
		}
	}
}
