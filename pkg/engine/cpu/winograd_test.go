package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/plan"
)

// The greatest error of Winograd's convolutions against float64, relative to
// the greatest value: what a prototype of the same algorithm was measured to
// keep within, beside a direct convolution, on a U-Net's layers of up to 512
// channels and 128×128 pixels. doc.go repeats them.
const (
	winogradTolerance         = 2e-5
	winogradGradientTolerance = 4.2e-5
)

// tolerance is what a kernel may be off by with an algorithm; see TestConvolution
// for the direct one.
func tolerance(op plan.Op, convolution string) float64 {
	switch {
	case convolution == "direct":
		return 1e-5
	case op == plan.OpConvBackwardWeights || op == plan.OpConvTransposeBackwardWeights:
		return winogradGradientTolerance
	}
	return winogradTolerance
}

// TestWinogradTwin compares the transforms' assembly with plain Go.
func TestWinogradTwin(t *testing.T) {
	fast, slow := twins(t)
	rng := rand.New(rand.NewPCG(4, 4))
	tmp := alignedFloats(points * lanes)
	run := func(name string, size int, f func(k *winogradKernels, from, to *float32)) {
		t.Helper()
		from, _ := values(rng, 4096)
		a, allA := values(rng, size)
		b, allB := copied(a)
		copy(allB, allA)
		f(&fast.winograd, &from[0], &a[0])
		f(&slow.winograd, &from[0], &b[0])
		same(t, name, allA, allB, 2e-6)
	}
	for _, count := range []int{1, 3} {
		const width, plane, ld = 9 * lanes, 9 * 9 * lanes, 3*lanes + pointGap
		run("input", points*ld, func(k *winogradKernels, x, v *float32) {
			k.input(x, v, &tmp[0], 4*width, 4*plane, 4*ld, 4*lanes, count)
		})
		run("normalised input", points*ld, func(k *winogradKernels, x, v *float32) {
			k.normInput(x, v, &tmp[0], at(x, 8000), 4*width, 4*plane, 4*ld, 4*lanes, count)
		})
		run("gradient", points*ld, func(k *winogradKernels, x, v *float32) {
			k.gradient(x, v, &tmp[0], 4*width, 4*plane, 4*ld, 4*lanes, count)
		})
		for _, step := range []int{0, 4 * lanes} {
			run("output", 3*plane, func(k *winogradKernels, m, y *float32) {
				k.output(m, y, at(m, 12000), &tmp[0], 4*ld, 4*width, 4*plane, step, count)
			})
		}
	}
	const ld = lanes*lanes + pointGap
	run("weights", points*ld, func(k *winogradKernels, w, u *float32) { k.weights(w, u, &tmp[0], 4*ld) })
	run("weight gradient", 9*lanes*lanes, func(k *winogradKernels, d, dw *float32) { k.weightGradient(d, dw, &tmp[0], 4*ld) })
}

// worst is the greatest distance of got from want, relative to want's greatest
// or to the deviation of sums of so many products of normal values: a single
// sum may happen to be close to 0.
func worst(got, want []float64, products int) (d float64) {
	for i := range want {
		d = max(d, math.Abs(got[i]-want[i]))
	}
	return d / max(math.Sqrt(float64(products)), largest(want))
}

// products is the number of products that a value of the kernel's output sums up.
func (c convCase) products(op plan.Op) int {
	switch op {
	case plan.OpConv:
		return c.c * min(3, c.h) * min(3, c.w)
	case plan.OpConvBackwardData:
		return c.k * min(3, c.h) * min(3, c.w)
	}
	return c.n * c.h * c.w
}

// TestWinogradError measures each kernel's error against float64 over random
// shapes, and holds it to the documented bounds.
func TestWinogradError(t *testing.T) {
	for _, set := range []string{"avx2", "go"} {
		t.Run(set, func(t *testing.T) {
			fast, slow := openWith(t, set, 2, "winograd"), truth(t)
			most := map[plan.Op]float64{}
			rapid.Check(t, func(r *rapid.T) {
				draw := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(r, name) }
				c := convCase{n: draw("n", 1, 3), c: draw("c", 1, 48), k: draw("k", 1, 40), h: draw("h", 1, 19), w: draw("w", 1, 19), r: 3, s: 3, stride: 1, pad: 1}
				for _, n := range c.nodes("winograd") {
					got, want := n.results(t, fast, 1), n.results(t, slow, 1)
					for i := range want {
						d := worst(got[i], want[i], c.products(n.op))
						if !(d <= tolerance(n.op, "winograd")) {
							r.Fatalf("%s of %s is off by %.2g of the greatest value", n.op, c, d)
						}
						most[n.op] = max(most[n.op], d)
					}
				}
			})
			t.Log("greatest errors:", most)
		})
	}
}

// TestWinogradDeep holds deep layers and a wide one to the same bounds, where
// the sums are longest.
func TestWinogradDeep(t *testing.T) {
	for _, c := range []convCase{{2, 256, 8, 8, 64, 3, 3, 1, 1}, {1, 512, 8, 8, 24, 3, 3, 1, 1}, {1, 24, 8, 8, 512, 3, 3, 1, 1}, {2, 512, 4, 5, 520, 3, 3, 1, 1}, {2, 9, 96, 96, 8, 3, 3, 1, 1}} {
		for _, n := range c.nodes("winograd") {
			got, want := n.results(t, openWith(t, "", 2, "winograd"), 1), n.results(t, truth(t), 1)
			for i := range want {
				near(t, fmt.Sprintf("%s of %s", n.op, c), got[i], want[i], tolerance(n.op, "winograd"))
				t.Logf("%s of %s: %.2g", n.op, c, worst(got[i], want[i], c.products(n.op)))
			}
		}
	}
}

// TestUseWinograd: the options force a choice where there is one.
func TestUseWinograd(t *testing.T) {
	shape := func(c, side int) operand {
		return operand{Tensor: plan.Tensor{Shape: []int{1, c, side, side}}, layout: activationLayout}
	}
	weights := operand{Tensor: plan.Tensor{Shape: []int{64, 64, 3, 3}}, space: [3]int{1, 3, 3}}
	one := plan.Attr{Stride: []int{1, 1}, Pad: []int{1, 1}}
	for _, c := range []struct {
		convolution    string
		channels, side int
		attr           plan.Attr
		want           bool
	}{
		{"auto", 64, 64, one, true},
		{"auto", 8, 64, one, true},
		{"auto", 64, 8, one, true},
		{"auto", 512, 8, one, false},
		{"auto", 64, 4, one, false}, // a tile does not pay for the weights
		{"auto", 1, 64, one, false},
		{"winograd", 1, 2, one, true},
		{"direct", 64, 64, one, false},
		{"winograd", 64, 64, plan.Attr{Stride: []int{2, 2}, Pad: []int{1, 1}}, false},
		{"winograd", 64, 64, plan.Attr{Stride: []int{1, 1}, Pad: []int{0, 1}}, false},
	} {
		o := engine.DefaultOptions()
		o.Convolution = c.convolution
		x := &executable{engine: &Engine{options: o}}
		if got := x.useWinograd(call{Kernel: plan.Kernel{Attr: c.attr}}, shape(c.channels, c.side), shape(c.channels, c.side), weights); got != c.want {
			t.Errorf("%s with %d channels of side %d and %+v: %v", c.convolution, c.channels, c.side, c.attr, got)
		}
	}
}
